"""Datasets below a URL: the same rows as from a local directory, and what a store's faults cost."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from typing import Any

import pytest
from pyroaring import BitMap64

from proctor.rows import UserError
from proctor.sources.mds import MDSSource
from proctor.sources.mds.files import RemoteFiles
from proctor.sources.mds.layout import ShardError
from proctor.sources.mds.verify import inspect, verify
from proctor.storage.connect import StorageOptions
from proctor.storage.remote import Remote, Stat
from tests.faults.proxy import Fault, FaultProxy
from tests.sources.mds.support import edit_file, edit_index, errors, messages, read_rows, write

COLUMNS = {"id": "int", "data": "bytes"}
SECOND = "shard.00001.mds"


@pytest.fixture
def dataset(bucket: tuple[Path, str]) -> Path:
    """Thirty rows in four shards with hashes, in a folder of the bucket."""
    return make(Path(tempfile.mkdtemp(dir=bucket[0])), hashes=["sha1"])


def make(path: Path, **options: Any) -> Path:
    rows = [{"id": row, "data": bytes([row]) * 1000} for row in range(30)]
    return write(path, COLUMNS, rows, size_limit=10_000, **options)


def url(dataset: Path) -> str:
    return f"s3://bucket/{dataset.name}"


def read(dataset: Path, storage: StorageOptions, **options: Any) -> list[dict[str, Any]]:
    return read_rows(url(dataset), storage=storage, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("compression", [None, "zstd", "snappy"])
def test_rows_are_those_of_the_local_files(
    bucket: tuple[Path, str], proxy: FaultProxy, storage: StorageOptions, compression: str | None
) -> None:
    path = make(bucket[0] / f"plain-{compression}", compression=compression, hashes=["xxh64"])
    expected = read_rows(path)
    assert read(path, storage, max_rows=4) == expected
    assert read_rows(f"{proxy.endpoint}/bucket/{path.name}", storage=storage) == expected  # type: ignore[arg-type]
    assert read_rows(f"file://{path}") == expected  # type: ignore[arg-type]
    assert MDSSource(url(path), storage=storage).fingerprint() == MDSSource(path).fingerprint()


@pytest.mark.parametrize("end", ["", "/", "/index.json"])
def test_a_url_may_end_as_people_write_it(dataset: Path, storage: StorageOptions, end: str) -> None:
    assert inspect(url(dataset) + end, storage).path == url(dataset)
    assert inspect(f"file://{dataset}{end}").path == str(dataset)


def test_a_shard_is_fetched_once_for_all_its_groups(dataset: Path, proxy: FaultProxy, storage: StorageOptions) -> None:
    assert errors(read(dataset, storage, max_rows=2)) == {}
    shards = sorted(file.name for file in dataset.glob("*.mds"))
    assert [proxy.count(name) for name in shards] == [1, 1, 1, 1]
    assert proxy.count("index.json") == 1


def test_only_shards_with_wanted_rows_are_fetched(dataset: Path, proxy: FaultProxy, storage: StorageOptions) -> None:
    source = pickle.loads(pickle.dumps(MDSSource(url(dataset), storage=storage)))
    proxy.asked.clear()
    groups = source.groups(BitMap64([9, 17]), 10)
    assert proxy.asked == []
    assert [block["id"].to_pylist() for group in groups for block in source.read(group)] == [[9, 17]]
    assert {asked.key for asked in proxy.asked} == {f"/bucket/{dataset.name}/{SECOND}"}


def test_a_shard_that_is_replaced_is_another_one(dataset: Path, storage: StorageOptions) -> None:
    pristine = (dataset / SECOND).read_bytes()
    (dataset / SECOND).write_bytes(b"")
    assert errors(read(dataset, storage)) == dict.fromkeys(range(9, 18), "read.corrupt")
    (dataset / SECOND).write_bytes(pristine)
    assert errors(read(dataset, storage)) == {}


def test_what_is_not_there(dataset: Path, storage: StorageOptions) -> None:
    (dataset / SECOND).unlink()
    rows = read(dataset, storage)
    assert errors(rows) == dict.fromkeys(range(9, 18), "read.missing")
    assert messages(rows).splitlines()[0] == f"no shard file {SECOND} below {url(dataset)}"


def test_no_room_for_a_shard_is_not_the_rows_fault(
    dataset: Path, storage: StorageOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(dataset / "nowhere"))
    rows = read(dataset, storage)
    assert errors(rows) == dict.fromkeys(range(30), "read.failed")
    assert "No such file or directory" in messages(rows)


def test_what_is_larger_than_any_shard_is_not_fetched(
    dataset: Path, proxy: FaultProxy, storage: StorageOptions
) -> None:
    files = RemoteFiles(Remote(url(dataset), storage))
    with pytest.raises(ShardError, match="has 4,294,967,296 bytes, which no shard can have"):
        files.open(SECOND, Stat(1 << 32, "tag"))
    assert proxy.asked == []


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault(SECOND, "status", status=403, methods=("HEAD",)), "access denied (HTTP 403); check the credentials"),
        (Fault(SECOND, "status", status=403), "access denied (HTTP 403 Planted); check the credentials"),
        (Fault(SECOND, "status", status=503), "HTTP 503 Planted (3 tries)"),
        (Fault(SECOND, "cut", at=99), "the connection was cut (3 tries)"),
        (Fault(SECOND, "stall", at=99), "the server went silent (3 tries)"),
    ],
    ids=["denied", "denied body", "storm", "cut", "stall"],
)  # fmt: skip
def test_a_fault_that_may_pass_costs_its_shard_until_it_has_passed(
    dataset: Path, proxy: FaultProxy, storage: StorageOptions, fault: Fault, message: str
) -> None:
    proxy.faults = [fault]
    rows = read(dataset, storage)
    assert errors(rows) == dict.fromkeys(range(9, 18), "read.failed")
    assert f"{url(dataset)}/{SECOND}: {message}" in messages(rows)
    proxy.faults = []
    assert errors(read(dataset, storage)) == {}


def test_a_byte_flipped_on_its_way_is_fetched_again(dataset: Path, proxy: FaultProxy, storage: StorageOptions) -> None:
    proxy.faults = [Fault(SECOND, "flip", at=5000, times=1)]
    assert errors(read(dataset, storage)) == {}
    assert proxy.count(SECOND) == 2


def test_a_byte_flipped_for_good_costs_its_shard(dataset: Path, proxy: FaultProxy, storage: StorageOptions) -> None:
    proxy.faults = [Fault(SECOND, "flip", at=5000)]
    rows = read(dataset, storage, max_rows=3)
    assert errors(rows) == dict.fromkeys(range(9, 18), "read.corrupt")
    assert f"sha1 of {SECOND} is" in messages(rows)
    assert proxy.count(SECOND) == 2  # the verdict is kept, for the shard's other groups
    proxy.faults = []
    edit_index(dataset, lambda index: [shard["raw_data"].update(hashes={}) for shard in index["shards"]])
    edit_file(dataset / SECOND, lambda data: data.replace(b"\x0a\x0a", b"\x0a\x0b"))
    assert errors(read(dataset, storage)) == {}  # without a hash, nobody can tell


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault("index.json", "status", status=404, methods=("HEAD",)), "not there .HTTP 404. .give the URL of the"),
        (Fault("index.json", "status", status=403, methods=("HEAD",)), "access denied .HTTP 403.; check the"),
        (Fault("index.json", "status", status=503), "HTTP 503 Planted .3 tries"),
    ],
    ids=["missing", "denied", "storm"],
)
def test_an_index_that_cannot_be_read_is_one_line(
    dataset: Path, proxy: FaultProxy, storage: StorageOptions, fault: Fault, message: str
) -> None:
    proxy.faults = [fault]
    with pytest.raises(UserError, match=f"no MDS index: {url(dataset)}/index.json: {message}") as caught:
        MDSSource(url(dataset), storage=storage)
    assert "\n" not in str(caught.value)


def test_a_damaged_index_is_named_by_its_url(dataset: Path, storage: StorageOptions) -> None:
    (dataset / "index.json").write_bytes(b"<html>")
    with pytest.raises(UserError, match=f"{url(dataset)}/index.json: not JSON"):
        MDSSource(url(dataset), storage=storage)


def test_verify_needs_no_permission_to_list(dataset: Path, proxy: FaultProxy, storage: StorageOptions) -> None:
    proxy.faults = [Fault("/bucket", "status", status=403)]
    assert list(verify(url(dataset), storage)) == []
    proxy.faults = [Fault("/bucket", "status", status=500)]
    with pytest.raises(UserError, match=r"HTTP 500 Planted \(3 tries\)"):
        list(verify(url(dataset), storage))


def test_inspect_and_verify(dataset: Path, storage: StorageOptions) -> None:
    summary = inspect(url(dataset), storage)
    assert (summary.path, summary.rows, summary.shards) == (url(dataset), 30, 4)
    assert list(verify(url(dataset), storage)) == []
    edit_file(dataset / SECOND, lambda data: data[:-1])
    (dataset / "shard.00009.mds").write_bytes(b"")
    problems = {finding.file: finding.problem for finding in verify(url(dataset), storage)}
    assert list(problems) == [SECOND, "shard.00009.mds"]
    assert f"sha1 of {SECOND} is" in problems[SECOND]
    assert problems["shard.00009.mds"].startswith("the index does not name this shard file")
