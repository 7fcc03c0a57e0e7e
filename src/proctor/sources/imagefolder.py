"""A folder of images as a source of rows: ids from the names alone.

Columns are ``image`` (the file), ``path`` (its name below the folder) and, where images lie in sub-folders, ``label``:
the name of the sub-folder that the image lies in. With files called ``metadata.jsonl``, ``metadata.csv`` or
``metadata.parquet``, as Hugging Face's ImageFolder has them, a row is a line of one of these: its ``file_name`` says
which image, relative to the metadata's own folder; its other keys are columns, and images that none names are no rows.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import xxhash
from pyroaring import BitMap64

from proctor.rows import ErrorKind, Failure, UserError
from proctor.sources.base import BLOCK_BYTES, ReadGroup
from proctor.sources.blocks import BlockShape, RawRows, check_distinct
from proctor.sources.faults import FileError
from proctor.sources.files import NOT_UTF8, DataFolder, ids_between, shown
from proctor.sources.jsonrows import RowError, decode_row, discover, schema_of, table_of
from proctor.sources.listing import folder_of
from proctor.sources.planning import Extent, plan_groups
from proctor.sources.segments import rows_at

if TYPE_CHECKING:
    from proctor.storage.connect import StorageOptions

ENDINGS = (
    *(".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif"),
    *(".jp2", ".ppm", ".pgm", ".pbm", ".pnm"),
)
"""Endings of image files, in lower case."""
METADATA = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
_FILE_NAME = "file_name"
_OWN = ("image", "path")
_PREFIX = "metadata_"
_EXTENT_ROWS = 1024
_SAMPLED = 16
_USUAL_BYTES = 256 << 10


class ImageFolderSource:
    """The images below a folder. Implements `base.Source`.

    Args:
        path: the folder, or its URL (not on a web server, which cannot be asked for names).
        images: further columns of the metadata that hold images; ``image`` always does.
        storage: how object storage is reached, for a URL.

    Raises:
        UserError: no folder, no image in it, or metadata that cannot be used; names file and line.
    """

    def __init__(self, path: str | Path, *, images: Sequence[str] = (), storage: StorageOptions | None = None) -> None:
        folder, name = folder_of(path, storage)
        if name:
            raise UserError("not a folder", where=str(path), fix="give the folder that the images lie in")
        try:
            names = folder.names()
        except FileError as error:
            raise UserError(error.message, where=str(path)) from None
        listed = [name for name in names if PurePosixPath(name).name in METADATA]
        images_of = [name for name in names if _is_image(name)]
        rows = _metadata_rows(folder, listed) if listed else _labelled(images_of)
        if not rows.num_rows:
            raise UserError("no images in it", where=str(path), fix=f"images end in {', '.join(ENDINGS)}")
        self._folder = folder
        self._rows = rows
        self._unnamed = {} if listed else _faults_of(images_of)
        self._shape = BlockShape(rows.schema, tuple(dict.fromkeys(("image", *images))), "folder_", str(path))
        self._image_bytes = _mean_size(folder, rows.column("path"))

    def expected(self) -> BitMap64:
        """All row ids, ``0 .. n-1``: images in order of their names, or lines of metadata in their order."""
        return ids_between(0, self._rows.num_rows)

    def columns(self) -> pa.Schema:
        """``image``, ``path``, ``label`` if there are sub-folders, and what the metadata has."""
        return self._shape.columns

    def fingerprint(self) -> str:
        """Hash of names and metadata; not of what is in the image files."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._rows.schema) as writer:
            writer.write_table(self._rows)
        return xxhash.xxh3_128_hexdigest(sink.getvalue())

    def groups(self, todo: BitMap64, max_rows: int, max_bytes: int = BLOCK_BYTES) -> list[ReadGroup]:
        """Splits the wanted rows by number and by the mean size of a few of the images."""
        count = self._rows.num_rows
        extents = [
            Extent(start, min(_EXTENT_ROWS, count - start), min(_EXTENT_ROWS, count - start) * self._image_bytes)
            for start in range(0, count, _EXTENT_ROWS)
        ]
        return list(plan_groups(todo, [extents], max_rows, max_bytes))

    def read(self, group: ReadGroup) -> Iterator[pa.Table]:
        """Yields the group's rows in order, as blocks of at most about `BLOCK_BYTES`."""
        ids = list(group.row_ids)
        table = rows_at(self._rows, ids)
        paths = table.column("path").to_pylist()
        faults = {at: self._unnamed[row] for at, row in enumerate(ids) if row in self._unnamed}
        yield from self._shape.blocks(RawRows(ids, table, faults, lambda at: paths[at], self._folder))


def _is_image(name: str) -> bool:
    return name.lower().endswith(ENDINGS)


def _faults_of(names: Sequence[str]) -> dict[int, Failure]:
    """Faults, by row, of image files whose names cannot be paths in a table."""
    return {
        row: Failure(ErrorKind.READ_CORRUPT, f"{shown(name)}: {NOT_UTF8}")
        for row, name in enumerate(names)
        if shown(name) != name
    }


def _labelled(names: Sequence[str]) -> pa.Table:
    names = [shown(name) for name in names]
    folders = [PurePosixPath(name).parent.name or None for name in names]
    paths = pa.array(names, pa.large_string())
    columns = {"image": paths, "path": paths}
    if any(folders):
        columns["label"] = pa.array(folders, pa.large_string())
    return pa.table(columns)


def _metadata_rows(folder: DataFolder, names: Sequence[str]) -> pa.Table:
    tables = []
    for name in names:
        where = shown(folder.place(name))
        if shown(name) != name:
            raise UserError(NOT_UTF8, where=where)
        try:
            table = _READERS[PurePosixPath(name).suffix](folder.content(name), where)
        except FileError as error:
            raise UserError(error.message, where=where) from None
        except (OSError, ValueError, pa.ArrowException) as error:
            raise UserError(f"cannot be read: {' '.join(str(error).split())[:200]}", where=where) from None
        tables.append(_with_paths(table, PurePosixPath(name).parent, where))
    try:
        return pa.concat_tables(tables, promote_options="default")
    except pa.ArrowException as error:
        where = folder.place(names[0])
        raise UserError(f"differs from other metadata of the folder: {error}", where=where) from None


def _with_paths(table: pa.Table, below: PurePosixPath, where: str) -> pa.Table:
    """The table of a metadata file with its images in front."""
    check_distinct(table.column_names, where)
    if _FILE_NAME not in table.column_names:
        there = ", ".join(table.column_names)
        raise UserError(f"has no column {_FILE_NAME!r}", where=where, fix=f"it has: {there}")
    paths = []
    for number, name in enumerate(table.column(_FILE_NAME).to_pylist(), 1):
        if not isinstance(name, str) or not name:
            raise UserError(f"row {number} has no {_FILE_NAME}", where=where)
        paths.append(str(below / name) if below.parts else name)
    rest = table.drop_columns([_FILE_NAME])
    rest = rest.rename_columns([_PREFIX + name if name in _OWN else name for name in rest.column_names])
    check_distinct(rest.column_names, where)
    columns = [pa.array(paths, pa.large_string())] * len(_OWN)
    own = [pa.field(name, pa.large_string()) for name in _OWN]
    return pa.table([*columns, *rest.columns], schema=pa.schema([*own, *rest.schema]))


def _read_jsonl(content: bytes, where: str) -> pa.Table:
    lines = [(number, line) for number, line in enumerate(io.BytesIO(content), 1) if not line.isspace()]
    columns = discover((line for _, line in lines), where)
    rows: list[tuple[Any, ...]] = []
    for number, line in lines:
        try:
            rows.append(decode_row(columns, line))
        except RowError as error:
            raise UserError(str(error), where=f"{where}, line {number}") from None
    return table_of(columns, rows) if rows else schema_of(columns).empty_table()


def _read_csv(content: bytes, where: str) -> pa.Table:
    import pyarrow.csv as pc

    guessed = pc.read_csv(pa.BufferReader(content))
    check_distinct(guessed.column_names, where)
    as_text = pc.ConvertOptions(column_types=dict.fromkeys(guessed.column_names, pa.string()))
    texts = pc.read_csv(pa.BufferReader(content), convert_options=as_text)
    pairs = zip(guessed.column_names, guessed.columns, texts.columns, strict=True)
    columns = [text if name == _FILE_NAME or not _says_the_same(guess, text) else guess for name, guess, text in pairs]
    return pa.table(columns, names=guessed.column_names)


def _says_the_same(guess: pa.ChunkedArray, text: pa.ChunkedArray) -> bool:
    """Whether nothing of a column of a CSV file is lost if it is read as numbers: ``007`` and long ids are text."""
    import pyarrow.compute as pc

    if guess.type == pa.null() or guess.type == pa.bool_():
        return True
    there = pc.is_valid(guess)
    if guess.type == pa.int64():
        return bool(pc.all(pc.equal(guess.cast(pa.string()), text), min_count=0).as_py())
    if guess.type != pa.float64():
        return False
    odd = pc.match_substring_regex(text, r"^\s*[+-]?(0[0-9]|[0-9]{16})")
    return not pc.any(pc.and_(there, odd), min_count=0).as_py()


def _read_parquet(content: bytes, _where: str) -> pa.Table:
    import pyarrow.parquet as pq

    with pq.ParquetFile(pa.BufferReader(content)) as file:
        return file.read()


_READERS = {".jsonl": _read_jsonl, ".csv": _read_csv, ".parquet": _read_parquet}


def _mean_size(folder: DataFolder, paths: pa.ChunkedArray) -> int:
    """Mean bytes of a few images, spread over all."""
    sizes = []
    for at in range(0, len(paths), max(1, len(paths) // _SAMPLED)):
        try:
            sizes.append(folder.version(paths[at].as_py()).size)
        except FileError:
            continue
    return max(1, sum(sizes) // len(sizes)) if sizes else _USUAL_BYTES
