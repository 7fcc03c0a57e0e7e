"""The source contract: groups, bounded blocks, pickling, names."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from proctor.sources.base import BLOCK_BYTES, Source
from proctor.sources.mds import MDSSource
from tests.sources.mds.support import FACTS, read_blocks, read_rows, write


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """A hundred rows of 1 kB in shards of 20 rows."""
    rows = [{"id": row, "data": bytes([row]) * 1000} for row in range(100)]
    return write(tmp_path / "data", {"id": "int", "data": "bytes"}, rows, size_limit=20_700)


def test_it_is_a_source(dataset: Path) -> None:
    source: Source = MDSSource(dataset)
    assert list(source.expected()) == list(range(100))


def test_groups_keep_to_shards_rows_and_bytes(dataset: Path) -> None:
    source = MDSSource(dataset)
    by_rows = source.groups(source.expected(), max_rows=15)
    assert [(group.shard, len(group.row_ids)) for group in by_rows] == [
        (number, count) for number in range(5) for count in (15, 5)
    ]
    by_bytes = source.groups(source.expected(), max_rows=1000, max_bytes=5000)
    assert {len(group.row_ids) for group in by_bytes} == {4}
    assert all(3500 < group.size_bytes <= 5000 for group in by_bytes)
    assert sorted(row for group in by_bytes for row in group.row_ids) == list(range(100))


def test_a_row_larger_than_a_group_is_a_group(dataset: Path) -> None:
    source = MDSSource(dataset)
    assert [list(group.row_ids) for group in source.groups(BitMap64([3, 4]), max_rows=9, max_bytes=10)] == [[3], [4]]


def test_only_shards_with_wanted_rows_are_touched(dataset: Path) -> None:
    for number in (0, 2, 4):
        (dataset / f"shard.0000{number}.mds").unlink()
    wanted = BitMap64([20, 25, 39, 79])
    rows = read_rows(dataset, wanted, max_rows=2)
    assert [(row["id"], row["error_kind"]) for row in rows] == [(20, None), (25, None), (39, None), (79, None)]


def test_nothing_wanted(dataset: Path) -> None:
    assert list(MDSSource(dataset).groups(BitMap64(), 10)) == []


def test_blocks_are_bounded_in_bytes(tmp_path: Path) -> None:
    sizes = [9 << 20, 9 << 20, 40 << 20, 100, 6 << 20, 6 << 20, 6 << 20]
    path = write(tmp_path, {"data": "bytes"}, [{"data": bytes(size)} for size in sizes], size_limit=None)
    source = MDSSource(path)
    (group,) = source.groups(source.expected(), 100, max_bytes=1 << 40)
    blocks = list(source.read(group))
    assert [block.num_rows for block in blocks] == [1, 1, 1, 3, 1]
    assert max(block.nbytes for block in blocks if block.num_rows > 1) < BLOCK_BYTES + 1000


def test_one_block_at_a_time_is_in_memory(tmp_path: Path) -> None:
    path = write(tmp_path, {"data": "bytes", "id": "int"}, [{"data": bytes(5 << 20), "id": n} for n in range(12)])
    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    source = MDSSource(path)
    (group,) = source.groups(source.expected(), 100, max_bytes=1 << 40)
    pa.set_memory_pool(pool)
    try:
        sizes = []
        for block in source.read(group):
            sizes.append(block.nbytes)
            del block
    finally:
        pa.set_memory_pool(before)
    assert len(sizes) == 4
    assert max(sizes) <= pool.max_memory() < 1.01 * max(sizes)


def test_blocks_are_bounded_in_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, {"n": "uint8"}, [{"n": row % 256} for row in range(1000)])
    monkeypatch.setattr("proctor.sources.mds.source.BLOCK_ROWS", 300)
    assert [block.num_rows for block in read_blocks(MDSSource(path))] == [300, 300, 300, 100]
    (path / "shard.00000.mds").unlink()
    assert [block.num_rows for block in read_blocks(MDSSource(path))] == [300, 300, 300, 100]


def test_blocks_of_sound_and_failed_shards_have_one_schema(dataset: Path) -> None:
    (dataset / "shard.00001.mds").write_bytes(b"")
    blocks = read_blocks(MDSSource(dataset))
    assert {str(block.schema) for block in blocks} == {str(blocks[0].schema)}


def test_a_source_travels_pickled(dataset: Path) -> None:
    source = MDSSource(dataset)
    copy, group = pickle.loads(pickle.dumps((source, source.groups(BitMap64([41, 43]), 10)[0])))
    assert copy.fingerprint() == source.fingerprint()
    (block,) = copy.read(group)
    assert block["id"].to_pylist() == [41, 43]


def test_a_source_stays_small(dataset: Path) -> None:
    assert len(pickle.dumps(MDSSource(dataset))) < 5000


def test_columns_that_bear_the_name_of_a_block_field(tmp_path: Path) -> None:
    columns = {"row_id": "int", "notice": "str", "other": "str"}
    path = write(tmp_path, columns, [{"row_id": 70, "notice": "n", "other": "o"}])
    row: dict[str, Any] = read_rows(path)[0]
    assert row == {**dict.fromkeys(FACTS), "row_id": 0, "mds_row_id": 70, "mds_notice": "n", "other": "o"}


def test_blocks_outlive_their_shard(tmp_path: Path) -> None:
    """Blocks hold copies, not views of a mapped file that may be gone by the time they are used."""
    path = write(tmp_path, {"data": "bytes"}, [{"data": b"some bytes, more than twelve"}])
    (block,) = read_blocks(MDSSource(path))
    (path / "shard.00000.mds").write_bytes(bytes(300))
    assert block["data"].to_pylist() == [b"some bytes, more than twelve"]
