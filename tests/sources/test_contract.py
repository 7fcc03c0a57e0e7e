"""What `sources.base.Source` promises, asked of every source with the same data."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from proctor.sources.base import BLOCK_BYTES, BLOCK_FIELDS, ReadGroup, Source
from proctor.sources.huggingface import HuggingFaceSource
from proctor.sources.imagefolder import ImageFolderSource
from proctor.sources.jsonl import JsonlSource
from proctor.sources.lancedata import LanceSource
from proctor.sources.mds import MDSSource, MDSWriter
from proctor.sources.parquet import ParquetSource
from proctor.sources.registry import FirstRows
from proctor.sources.webdataset import WebDatasetSource
from tests.sources.support import column, read_rows, save, write_jsonl, write_tar

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


def compressed_jsonl(folder: Path) -> Source:
    jsonl(folder)
    for name, codec, ending in (("a", "gzip", "gz"), ("b", "bz2", "bz2"), ("c", "zstd", "zst")):
        plain = folder / f"{name}.jsonl"
        with pa.output_stream(f"{plain}.{ending}", compression=codec) as out:
            out.write(plain.read_bytes())
        plain.unlink()
    return JsonlSource(folder)


def webdataset(folder: Path) -> Source:
    folder.mkdir()
    for name, part in (("a", cells()[:40]), ("b", cells()[40:41]), ("c", cells()[41:])):
        parts = [
            (f"{row['n']:06}.{extension}", str(value).encode())
            for row in part
            for extension, value in (("n.cls", row["n"]), ("text", row["text"]), ("data.txt", row["data"]))
        ]
        write_tar(folder / f"{name}.tar", parts)
    return Renamed(WebDatasetSource(folder), {"n.cls": "n", "data.txt": "data"})


def compressed_webdataset(folder: Path) -> Source:
    webdataset(folder)
    for plain in folder.glob("*.tar"):
        with pa.output_stream(f"{plain}.zst", compression="zstd") as out:
            out.write(plain.read_bytes())
        plain.unlink()
    return Renamed(WebDatasetSource(folder), {"n.cls": "n", "data.txt": "data"})


def imagefolder(folder: Path) -> Source:
    folder.mkdir()
    for row in cells():
        (folder / f"{row['n']}.png").write_bytes(str(row["data"]).encode())
    write_jsonl(
        folder / "metadata.jsonl",
        [{"file_name": f"{row['n']}.png", "n": row["n"], "text": row["text"]} for row in cells()],
    )
    return ImageFolderSource(folder)


def huggingface(folder: Path) -> Source:
    save(folder, [pa.Table.from_pylist(part) for part in (cells()[:40], cells()[40:41], cells()[41:])], batch=13)
    return HuggingFaceSource(folder)


def lance_(folder: Path) -> Source:
    pytest.importorskip("lance").write_dataset(pa.Table.from_pylist(cells()), str(folder), max_rows_per_file=40)
    return LanceSource(folder)


def first_rows(folder: Path) -> Source:
    return FirstRows(parquet(folder), 1000)


class Renamed(FirstRows):
    """A source whose columns have names that another format can have."""

    def __init__(self, source: Source, names: dict[str, str]) -> None:
        super().__init__(source, 1000)
        self._names = names

    def columns(self) -> pa.Schema:
        return pa.schema([field.with_name(self._names.get(field.name, field.name)) for field in super().columns()])

    def read(self, group: ReadGroup) -> Iterator[pa.Table]:
        for block in super().read(group):
            yield block.rename_columns([self._names.get(name, name) for name in block.column_names])


MAKERS = [
    *(mds, parquet, jsonl, compressed_jsonl, webdataset, compressed_webdataset, imagefolder, huggingface, lance_),
    first_rows,
]


@pytest.fixture(scope="module", params=MAKERS, ids=lambda make: make.__name__)
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
