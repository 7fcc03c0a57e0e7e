"""What `sources.base.Source` promises, asked of every source with the same data."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from proctor.sources.base import BLOCK_BYTES, BLOCK_FIELDS, Source
from proctor.sources.jsonl import JsonlSource
from proctor.sources.mds import MDSSource, MDSWriter
from proctor.sources.parquet import ParquetSource
from proctor.sources.registry import FirstRows
from tests.sources.support import column, read_rows, write_jsonl

ROWS = 97


def cells() -> list[dict[str, object]]:
    return [{"n": n, "text": f"row {n} " * (n % 7), "data": "x" * (n * 50)} for n in range(ROWS)]


def mds(folder: Path) -> Source:
    with MDSWriter(folder, {"n": "int", "text": "str", "data": "str"}, size_limit=30_000) as writer:
        for row in cells():
            writer.write(row)
    return MDSSource(folder)


def parquet(folder: Path) -> Source:
    folder.mkdir()
    for name, part in (("a", cells()[:40]), ("b", cells()[40:41]), ("c", cells()[41:])):
        pq.write_table(pa.Table.from_pylist(part), folder / f"{name}.parquet", row_group_size=13)
    return ParquetSource(folder)


def jsonl(folder: Path) -> Source:
    folder.mkdir()
    for name, part in (("a", cells()[:40]), ("b", cells()[40:41]), ("c", cells()[41:])):
        write_jsonl(folder / f"{name}.jsonl", part)
    return JsonlSource(folder)


def first_rows(folder: Path) -> Source:
    return FirstRows(parquet(folder), 1000)


@pytest.fixture(scope="module", params=[mds, parquet, jsonl, first_rows], ids=lambda make: make.__name__)
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Source:
    make: Callable[[Path], Source] = request.param
    return make(tmp_path_factory.mktemp("contract") / "data")


def test_ids_are_positions(source: Source) -> None:
    assert source.expected() == BitMap64(range(ROWS))
    rows = read_rows(source)
    assert column(rows, "n") == list(range(ROWS))
    assert column(rows, "text") == [row["text"] for row in cells()]


@given(todo=st.sets(st.integers(0, ROWS - 1)), max_rows=st.integers(1, 120), max_bytes=st.integers(1, 40_000))
@settings(max_examples=60, deadline=None)
def test_groups_cover_the_wanted_rows_exactly_once(
    source: Source, todo: set[int], max_rows: int, max_bytes: int
) -> None:
    groups = source.groups(BitMap64(todo), max_rows, max_bytes)
    assert [row for group in groups for row in group.row_ids] == sorted(todo)
    assert [group.shard for group in groups] == sorted(group.shard for group in groups)
    assert all(0 < len(group.row_ids) <= max_rows for group in groups)
    assert all(group.size_bytes >= 0 for group in groups)
    if not todo:
        assert list(groups) == []


@given(todo=st.sets(st.integers(0, ROWS - 1), min_size=1), max_rows=st.integers(1, 60))
@settings(max_examples=30, deadline=None)
def test_reading_gives_the_rows_of_the_groups(source: Source, todo: set[int], max_rows: int) -> None:
    rows = read_rows(source, BitMap64(todo), max_rows)
    assert column(rows, "n") == sorted(todo)
    assert column(rows, "error_kind") == [None] * len(todo)


def test_blocks_have_one_schema_and_a_bound(source: Source) -> None:
    schema = pa.schema([*BLOCK_FIELDS, *source.columns()])
    for group in source.groups(source.expected(), 1000):
        for block in source.read(group):
            assert block.schema.equals(schema)
            assert block.nbytes <= BLOCK_BYTES


def test_planning_and_identity_repeat(source: Source) -> None:
    again: Source = pickle.loads(pickle.dumps(source))
    assert again.fingerprint() == source.fingerprint()
    assert again.columns() == source.columns()
    todo = source.expected()
    assert source.groups(todo, 10) == again.groups(todo, 10) == source.groups(todo, 10)
    assert todo == BitMap64(range(ROWS))
