"""Sources over a real S3 server: the same rows as from disk, by ranges, also while the server fails."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from proctor.rows import UserError
from proctor.sources.base import Source
from proctor.sources.jsonl import JsonlSource
from proctor.sources.listing import folder_of
from proctor.sources.parquet import ParquetSource
from proctor.sources.webdataset import WebDatasetSource
from proctor.storage.connect import StorageOptions
from tests.faults.proxy import Fault, FaultProxy
from tests.sources.support import column, errors, picture, read_rows, write_jsonl, write_tar
from tests.storage.bucket import Bucket, served


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    with served(tmp_path / "server") as bucket:
        (bucket.root / "data").mkdir()
        yield bucket


def rows(count: int) -> list[dict[str, Any]]:
    return [{"n": n, "text": f"row {n} " * 50, "image": f"images/{n % 3}.png"} for n in range(count)]


def put_images(folder: Path) -> None:
    (folder / "images").mkdir()
    for n in range(3):
        (folder / "images" / f"{n}.png").write_bytes(picture(n))


def put_parquet(folder: Path) -> None:
    for name, part in (("a", rows(60)[:40]), ("b", rows(60)[40:])):
        pq.write_table(pa.Table.from_pylist(part), folder / f"{name}.parquet", row_group_size=13)


def gets(bucket: Bucket, end: str) -> int:
    return sum(method == "GET" and path.endswith(end) for method, path in bucket.requests)


def test_parquet_is_read_by_ranges_with_the_image_files_beside_it(bucket: Bucket) -> None:
    put_parquet(bucket.root / "data")
    put_images(bucket.root / "data")
    source = ParquetSource(bucket.url("data"), images=["image"], storage=bucket.options)
    local = ParquetSource(bucket.root / "data", images=["image"])
    assert source.expected() == BitMap64(range(60))
    assert source.fingerprint() == local.fingerprint()
    assert source.columns() == local.columns()
    again = pickle.loads(pickle.dumps(source))
    assert read_rows(again) == read_rows(local)
    assert column(read_rows(again, BitMap64([4])), "image") == [picture(1)]
    bucket.requests.clear()
    assert column(read_rows(source, BitMap64([41])), "n") == [41]
    assert gets(bucket, "a.parquet") == 0


def test_of_a_large_file_only_the_wanted_row_groups_travel(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    from proctor.sources.files import RemoteFolder

    data = [bytes([n]) * 100_000 for n in range(80)]
    options: dict[str, Any] = {"compression": "none", "use_dictionary": False, "row_group_size": 20}
    pq.write_table(pa.table({"n": range(80), "data": data}), bucket.root / "data" / "a.parquet", **options)
    source = ParquetSource(bucket.url("data/a.parquet"), storage=bucket.options)
    fetched = []
    plain = RemoteFolder.fetch

    def fetch(self: RemoteFolder, name: str, start: int, end: int, tag: str) -> bytes:
        fetched.append(end - start)
        return plain(self, name, start, end, tag)

    monkeypatch.setattr(RemoteFolder, "fetch", fetch)
    got = read_rows(source, BitMap64(range(40, 60)))
    assert column(got, "data") == data[40:60]
    assert 2_000_000 <= sum(fetched) < 2_700_000
    assert len(fetched) < 12


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_json_lines_are_counted_in_a_stream_and_read_by_ranges(bucket: Bucket, ending: str) -> None:
    put_images(bucket.root / "data")
    plain = write_jsonl(bucket.root / "data" / "a.jsonl", rows(3000))
    if ending:
        codec = {".gz": "gzip", ".zst": "zstd"}[ending]
        with pa.output_stream(f"{plain}{ending}", compression=codec) as out:
            out.write(plain.read_bytes())
        plain.unlink()
    source = JsonlSource(bucket.url("data"), images=["image"], storage=bucket.options)
    assert source.expected() == BitMap64(range(3000))
    got = read_rows(pickle.loads(pickle.dumps(source)), BitMap64([0, 5, 2999]), max_rows=1)
    assert column(got, "n") == [0, 5, 2999]
    assert column(got, "image") == [[picture(0)], [picture(2)], [picture(2)]]
    assert source.fingerprint() == JsonlSource(bucket.root / "data", images=["image"]).fingerprint()


def test_what_a_server_refuses_for_now_is_asked_for_again(bucket: Bucket) -> None:
    put_parquet(bucket.root / "data")
    put_images(bucket.root / "data")
    write_jsonl(bucket.root / "data" / "a.jsonl", rows(50))
    bucket.refuse = {"GET": 0.3, "HEAD": 0.3}
    for source in (
        ParquetSource(bucket.url("data"), images=["image"], storage=bucket.options),
        JsonlSource(bucket.url("data"), images=["image"], storage=bucket.options),
    ):
        assert errors(read_rows(source, BitMap64(range(10)))) == {}


def test_what_goes_or_changes_costs_its_rows(bucket: Bucket) -> None:
    put_parquet(bucket.root / "data")
    put_images(bucket.root / "data")
    write_jsonl(bucket.root / "data" / "a.jsonl", rows(60))
    sources = [
        ParquetSource(bucket.url("data"), images=["image"], storage=bucket.options),
        JsonlSource(bucket.url("data"), images=["image"], storage=bucket.options),
    ]
    (bucket.root / "data" / "images" / "1.png").unlink()
    for source in sources:
        got = read_rows(source)
        assert errors(got) == {n: "read.missing" for n in range(60) if n % 3 == 1}
        assert got[1]["error_message"].endswith(
            f"{bucket.url('data/images/1.png')}: not there (HTTP 404): 'images/1.png'"
        )
    write_jsonl(bucket.root / "data" / "a.jsonl", rows(61))
    pq.write_table(pa.Table.from_pylist(rows(20)), bucket.root / "data" / "b.parquet")
    for source, last in zip(sources, (range(40, 60), range(60)), strict=True):
        changed = {row for row, kind in errors(read_rows(source)).items() if kind == "read.failed"}
        assert changed == set(last)
    (bucket.root / "data" / "a.jsonl").unlink()
    assert set(errors(read_rows(sources[1])).values()) == {"read.missing"}


def test_a_damaged_page_over_the_network_costs_what_it_costs_on_disk(bucket: Bucket) -> None:
    table = pa.table({"n": range(60), "text": [f"<row {n}>" for n in range(60)]})
    path = bucket.root / "data" / "a.parquet"
    options: dict[str, Any] = {"compression": "none", "use_dictionary": False, "row_group_size": 20}
    pq.write_table(table, path, write_page_checksum=True, **options)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"<row 25>", b"<r0w 25>"))
    got = read_rows(ParquetSource(bucket.url("data"), storage=bucket.options))
    assert errors(got) == errors(read_rows(ParquetSource(path)))
    assert set(errors(got)) == set(range(20, 40))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("data/none", r"s3://bucket/data/none: the directory holds no \*\.parquet files"),
        ("data/", r"s3://bucket/data/: the directory holds no \*\.parquet files"),
        ("data/x.parquet", "x.parquet: cannot read the Parquet footer: "),
    ],
)
def test_nothing_to_read_is_the_users_mistake(bucket: Bucket, path: str, message: str) -> None:
    (bucket.root / "data" / "x.parquet").write_bytes(b"PAR1")
    if not path.endswith(".parquet"):
        (bucket.root / "data" / "x.parquet").unlink()
    with pytest.raises(UserError, match=message):
        ParquetSource(bucket.url(path), storage=bucket.options)


def test_on_a_web_server_a_path_is_a_file(bucket: Bucket) -> None:
    put_parquet(bucket.root / "data")
    (bucket.root / "data" / "a.parquet").rename(bucket.root / "data" / "with space.parquet")
    url = f"{bucket.endpoint}/bucket/data"
    assert len(ParquetSource(f"{url}/with%20space.parquet").expected()) == 40
    with pytest.raises(UserError, match=r"not there \(HTTP 404\) \(check the URL: a web server gives files"):
        ParquetSource(f"{url}/none.parquet")


def test_a_file_url_is_a_local_path(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a b.jsonl", rows(3))
    assert folder_of(f"file://{tmp_path}/a%20b.jsonl") == folder_of(path)
    assert len(JsonlSource(f"file://{tmp_path}/a%20b.jsonl").expected()) == 3


def test_archives_are_read_by_ranges(bucket: Bucket) -> None:
    members = [(f"{n:04}.{name}", data) for n in range(40) for name, data in (("png", picture(n)), ("cls", b"%d" % n))]
    members += [("big.bin", bytes(3_000_000)), ("big.cls", b"40"), ("last.cls", b"41")]
    write_tar(bucket.root / "data" / "a.tar", members)
    source = WebDatasetSource(bucket.url("data/a.tar"), storage=bucket.options)
    assert source.fingerprint() == WebDatasetSource(bucket.root / "data").fingerprint()
    rows_ = read_rows(pickle.loads(pickle.dumps(source)), BitMap64([0, 7, 39, 41]), max_rows=2)
    assert column(rows_, "cls") == [0, 7, 39, 41]
    assert column(rows_, "png") == [picture(0), picture(7), picture(39), None]
    write_tar(bucket.root / "data" / "a.tar", members[:10])
    assert set(errors(read_rows(source)).values()) == {"read.failed"}
    (bucket.root / "data" / "a.tar").unlink()
    assert set(errors(read_rows(source)).values()) == {"read.missing"}


@pytest.mark.slow
def test_cut_and_silent_connections_cost_nothing_and_those_that_stay_cost_their_rows(
    bucket: Bucket,
) -> None:
    put_parquet(bucket.root / "data")
    write_jsonl(bucket.root / "data" / "a.jsonl", rows(60))
    write_tar(bucket.root / "data" / "a.tar", [(f"{n}.cls", b"%d" % n) for n in range(60)])
    with FaultProxy(bucket.endpoint) as proxy:
        options = StorageOptions(endpoint=proxy.endpoint, anonymous=True, attempts=3, read_seconds=0.4)
        passing = [
            Fault(end, kind, at=at, times=1)
            for end in ("a.parquet", "b.parquet", "a.jsonl", "a.tar")
            for kind, at in (("cut", 100), ("stall", 50))
        ]
        proxy.faults = [*passing, Fault("a.jsonl", "status", status=503, times=2, methods=("HEAD",))]
        sources: list[Source] = [
            kind(bucket.url("data"), storage=options) for kind in (ParquetSource, JsonlSource, WebDatasetSource)
        ]
        for source in sources:
            assert errors(read_rows(source)) == {}
        assert [fault.times for fault in proxy.faults] == [0] * len(proxy.faults)
        proxy.faults = [Fault("b.parquet", "cut"), Fault("a.jsonl", "status", status=503), Fault("a.tar", "cut")]
        fresh = [pickle.loads(pickle.dumps(source)) for source in sources]
        hit = [errors(read_rows(source)) for source in fresh]
        assert hit == [dict.fromkeys(range(first, 60), "read.failed") for first in (40, 0, 0)]
