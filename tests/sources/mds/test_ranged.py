"""Uncompressed shards below a URL: only what is wanted of them travels, straight into blocks."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyroaring import BitMap64

from proctor.rows import UserError
from proctor.sources.mds import MDSSource, windows
from proctor.storage import ahead, remote
from proctor.storage.connect import StorageOptions
from tests.faults.proxy import Fault, FaultProxy, wait_until
from tests.sources.mds.support import edit_file, errors, messages, read_blocks, read_rows, set_word, word, write

COLUMNS = {"data": "bytes", "id": "int"}
SHARD = "shard.00000.mds"
ROWS = 40
ROW_BYTES = 4 + 5000 + 8
HEAD = 4 + 4 * (ROWS + 1)


def rows_of(count: int) -> list[dict[str, Any]]:
    return [{"data": bytes([row]) * 5000, "id": row} for row in range(count)]


@pytest.fixture
def dataset(bucket: tuple[Path, str]) -> Path:
    """Forty rows of 5 kB in one shard, without hashes."""
    return write(Path(tempfile.mkdtemp(dir=bucket[0])), COLUMNS, rows_of(ROWS))


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Makes every temporary file an error."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))


def url(dataset: Path) -> str:
    return f"s3://bucket/{dataset.name}"


def read(dataset: Path, storage: StorageOptions, wanted: Sequence[int] | None = None, **options: Any) -> Any:
    todo = None if wanted is None else BitMap64(wanted)
    return read_rows(url(dataset), todo, storage=storage, **options)  # type: ignore[arg-type]


def ranges(proxy: FaultProxy) -> list[tuple[int, int]]:
    """First byte and end of what was asked for of the shard, in order of the file."""
    asked = [asked.range for asked in proxy.asked if asked.key.endswith(SHARD) and asked.method == "GET"]
    found = [tuple(map(int, (text or "").removeprefix("bytes=").split("-"))) for text in asked]
    return sorted((start, end + 1) for start, end in found)


def place(dataset: Path, row: int, count: int = 1) -> tuple[int, int]:
    """First byte and end of some rows in the shard."""
    data = bytearray((dataset / SHARD).read_bytes())
    return word(data, 4 + 4 * row), word(data, 4 + 4 * (row + count))


@pytest.mark.usefixtures("nowhere")
def test_one_row_takes_its_own_bytes_and_those_of_the_row_table(
    dataset: Path, proxy: FaultProxy, storage: StorageOptions
) -> None:
    source = MDSSource(url(dataset), storage=storage)
    assert source.fetch([17]).drop(["error_kind", "error_message", "notice"]).to_pylist() == [
        {"row_id": 17, **rows_of(18)[17]}
    ]
    assert ranges(proxy) == [(0, HEAD), place(dataset, 17)]
    assert sum(end - start for start, end in ranges(proxy)) == HEAD + ROW_BYTES
    proxy.asked.clear()
    assert source.fetch([39])["id"].to_pylist() == [39]
    assert ranges(proxy) == [place(dataset, 39)]


@pytest.mark.usefixtures("nowhere")
def test_a_group_takes_its_own_rows_in_one_request(dataset: Path, proxy: FaultProxy, storage: StorageOptions) -> None:
    rows = read(dataset, storage, max_rows=10)
    assert rows == read_rows(dataset)
    assert ranges(proxy) == [(0, HEAD), *(place(dataset, first, 10) for first in (0, 10, 20, 30))]


@pytest.mark.usefixtures("nowhere")
def test_small_gaps_come_along_and_large_ones_do_not(
    dataset: Path, proxy: FaultProxy, storage: StorageOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "_GAP", 2 * ROW_BYTES)
    wanted = [0, 1, 4, 8, 9, 20, 39]
    assert [row["id"] for row in read(dataset, storage, wanted)] == wanted
    assert ranges(proxy) == [
        (0, HEAD),
        (place(dataset, 0)[0], place(dataset, 4)[1]),
        place(dataset, 8, 2),
        place(dataset, 20),
        place(dataset, 39),
    ]


def test_what_comes_along_counts_for_the_size_of_a_block(
    dataset: Path, storage: StorageOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proctor.sources.mds.source.BLOCK_BYTES", 5 * ROW_BYTES)
    source = MDSSource(url(dataset), storage=storage)
    assert [block.num_rows for block in read_blocks(source)] == [5] * 8
    assert [block.num_rows for block in read_blocks(source, BitMap64(range(0, 40, 2)))] == [3] + [2] * 8 + [1]


@pytest.mark.usefixtures("nowhere")
def test_a_row_may_be_larger_than_a_request(
    dataset: Path, proxy: FaultProxy, storage: StorageOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "PIECE_BYTES", 2000)
    assert read(dataset, storage) == read_rows(dataset)
    assert max(end - start for start, end in ranges(proxy)) == 2000
    assert sum(end - start for start, end in ranges(proxy)) == (dataset / SHARD).stat().st_size - config_bytes(dataset)


def config_bytes(dataset: Path) -> int:
    """Bytes of the configuration between the row table and the rows, which nobody reads."""
    return place(dataset, 0)[0] - HEAD


@pytest.mark.usefixtures("nowhere")
def test_the_next_block_is_on_its_way_while_one_is_used(
    dataset: Path, proxy: FaultProxy, storage: StorageOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proctor.sources.mds.source.BLOCK_BYTES", ROW_BYTES)
    monkeypatch.setattr(ahead, "MOST_BYTES", 2 * ROW_BYTES)
    source = MDSSource(url(dataset), storage=storage)
    (group,) = source.groups(source.expected(), ROWS)
    blocks = source.read(group)
    assert next(blocks)["id"].to_pylist() == [0]
    wait_until(lambda: len(ranges(proxy)) == 1 + 2)
    time.sleep(0.1)
    assert len(ranges(proxy)) == 1 + 2  # but no more than fits into the bound
    assert [block["id"].to_pylist() for block in blocks] == [[row] for row in range(1, ROWS)]


DAMAGES: dict[str, Callable[[bytearray], bytes | bytearray | None]] = {
    "cut off": lambda data: data[:-7000],
    "cut off in the row table": lambda data: data[:50],
    "cut off in the first word": lambda data: data[:3],
    "empty": lambda data: b"",
    "longer": lambda data: data + b"more",
    "fewer rows": lambda data: set_word(data, 0, ROWS - 3),
    "more rows": lambda data: set_word(data, 0, ROWS + 3),
    "two offsets swapped": lambda data: data[:40] + data[44:48] + data[40:44] + data[48:],
    "an offset beyond the end": lambda data: set_word(data, 60, 1 << 31),
    "an offset inside a row": lambda data: set_word(data, 60, word(data, 60) + 100),
    "a size": lambda data: set_word(data, word(data, 60), 1 << 30),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
def test_damage_costs_what_it_costs_in_a_local_file(
    dataset: Path, storage: StorageOptions, damage: Callable[[bytearray], bytes | bytearray | None]
) -> None:
    edit_file(dataset / SHARD, damage)
    expected = read_rows(dataset)
    assert read(dataset, storage) == expected
    assert read(dataset, storage, [1, 12, 13, 39]) == [expected[row] for row in (1, 12, 13, 39)]


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    "fault",
    [
        Fault(SHARD, "status", status=503, times=2),
        Fault(SHARD, "status", status=500, times=2, methods=("HEAD",)),
        Fault(SHARD, "cut", at=60, times=2),
        Fault(SHARD, "stall", at=60, times=1),
    ],
    ids=lambda fault: fault.kind,
)
def test_a_fault_that_passes_costs_nothing(
    dataset: Path, proxy: FaultProxy, storage: StorageOptions, fault: Fault
) -> None:
    proxy.faults = [fault]
    assert read(dataset, storage, max_rows=7) == read_rows(dataset)
    assert proxy.faults[0].times == 0


@pytest.mark.parametrize(
    ("fault", "kind", "message"),
    [
        (Fault(SHARD, "status", status=503), "read.failed", "HTTP 503 Planted (3 tries); try again later"),
        (Fault(SHARD, "cut", at=1000), "read.failed", "the connection was cut (3 tries); try again later"),
        (Fault(SHARD, "status", status=403), "read.failed", "access denied (HTTP 403 Planted)"),
        (Fault(SHARD, "status", status=404), "read.missing", "not there (HTTP 404 Planted)"),
    ],
    ids=["storm", "cut", "denied", "gone"],
)
def test_a_fault_that_comes_and_stays_costs_the_rows_from_there(
    dataset: Path,
    proxy: FaultProxy,
    storage: StorageOptions,
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
    kind: str,
    message: str,
) -> None:
    monkeypatch.setattr("proctor.sources.mds.source.BLOCK_BYTES", 10 * ROW_BYTES)
    monkeypatch.setattr(ahead, "MOST_BYTES", 1)
    source = MDSSource(url(dataset), storage=storage)
    (group,) = source.groups(source.expected(), ROWS)
    blocks = source.read(group)
    rows = next(blocks).to_pylist()
    proxy.faults = [fault]
    rows += [row for block in blocks for row in block.to_pylist()]
    assert [row["row_id"] for row in rows] == list(range(ROWS))
    # One block was on its way when the fault came.
    assert list(errors(rows)) in (list(range(10, ROWS)), list(range(20, ROWS)))
    assert set(errors(rows).values()) == {kind}
    assert f"{url(dataset)}/{SHARD}: {message}" in messages(rows)
    proxy.faults = []
    assert errors(read(dataset, storage)) == {}


def test_a_shard_that_is_replaced_between_two_blocks_is_not_mixed(
    dataset: Path, storage: StorageOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proctor.sources.mds.source.BLOCK_BYTES", 10 * ROW_BYTES)
    monkeypatch.setattr(ahead, "MOST_BYTES", 1)
    source = MDSSource(url(dataset), storage=storage)
    (group,) = source.groups(source.expected(), ROWS)
    blocks = source.read(group)
    rows = next(blocks).to_pylist()
    other = [{"data": b"other" * 1000, "id": -row} for row in range(ROWS)]
    replace(dataset, other)
    rows += [row for block in blocks for row in block.to_pylist()]
    failed = errors(rows)
    assert list(failed) in (list(range(10, ROWS)), list(range(20, ROWS)))
    assert set(failed.values()) == {"read.failed"}
    assert "was replaced while it was read" in messages(rows)
    assert [row["id"] for row in rows if row["row_id"] not in failed] == list(range(min(failed)))
    assert [row["id"] for row in read(dataset, storage)] == [-row for row in range(ROWS)]


def replace(dataset: Path, rows: list[dict[str, Any]]) -> None:
    """Puts other rows into the dataset's shard."""
    with tempfile.TemporaryDirectory() as place:
        (dataset / SHARD).write_bytes((write(Path(place), COLUMNS, rows) / SHARD).read_bytes())


def test_a_byte_flipped_in_the_row_table_on_its_way_is_fetched_again(
    dataset: Path, proxy: FaultProxy, storage: StorageOptions
) -> None:
    proxy.faults = [Fault(SHARD, "flip", at=30, times=1)]
    assert errors(read(dataset, storage)) == {}


def test_a_byte_flipped_in_the_sizes_of_a_row_costs_that_row(
    dataset: Path, proxy: FaultProxy, storage: StorageOptions
) -> None:
    proxy.faults = [Fault(SHARD, "flip", at=place(dataset, 23)[0])]
    assert errors(read(dataset, storage)) == {23: "read.corrupt"}


def test_a_slow_server_that_fails_many_requests(dataset: Path) -> None:
    hadro = pytest.importorskip("hadro")
    root = dataset.parent.parent
    with hadro.Server(data=str(root), error_rate=0.3, latency_ms=5, bandwidth_mbps=50) as server:
        storage = StorageOptions(endpoint=server.endpoint, anonymous=True)
        assert read(dataset, storage, max_rows=10) == read_rows(dataset)


def test_a_web_server_serves_ranges_too(dataset: Path, proxy: FaultProxy) -> None:
    rows = read_rows(f"{proxy.endpoint}/bucket/{dataset.name}", BitMap64([3, 30]))  # type: ignore[arg-type]
    assert [row["id"] for row in rows] == [3, 30]
    assert (0, (dataset / SHARD).stat().st_size) not in ranges(proxy)


def test_the_row_tables_of_a_few_shards_are_kept(
    bucket: tuple[Path, str], proxy: FaultProxy, storage: StorageOptions
) -> None:
    path = write(Path(tempfile.mkdtemp(dir=bucket[0])), COLUMNS, rows_of(ROWS), size_limit=6 * ROW_BYTES)
    source = MDSSource(url(path), storage=storage)
    for _ in range(3):
        assert source.fetch([0, 7, 14])["id"].to_pylist() == [0, 7, 14]
    assert [proxy.count(f"shard.0000{number}.mds") for number in range(3)] == [1 + 3] * 3


def test_fetch_takes_each_row_once_and_in_order(tmp_path: Path) -> None:
    for compression in (None, "zstd"):
        source = MDSSource(write(tmp_path / str(compression), COLUMNS, rows_of(30), compression=compression))
        assert source.fetch([9, 2, 2, 29])["id"].to_pylist() == [2, 9, 29]
    nothing = source.fetch([])
    assert (nothing.num_rows, nothing.schema) == (0, source.fetch([1]).schema)
    with pytest.raises(UserError, match="no row 30: there are 30, counted from 0"):
        source.fetch([1, 30])


def test_fetch_does_not_check_digests_of_a_whole_shard_for_a_row(
    bucket: tuple[Path, str], proxy: FaultProxy, storage: StorageOptions
) -> None:
    path = write(Path(tempfile.mkdtemp(dir=bucket[0])), COLUMNS, rows_of(ROWS), hashes=["sha1"])
    edit_file(path / SHARD, lambda data: data.replace(b"\x11\x11", b"\x11\x12"))
    source = MDSSource(url(path), storage=storage)
    assert source.fetch([18])["id"].to_pylist() == [18]
    assert sum(end - start for start, end in ranges(proxy)) == HEAD + ROW_BYTES
    assert set(errors(read(path, storage)).values()) == {"read.corrupt"}
