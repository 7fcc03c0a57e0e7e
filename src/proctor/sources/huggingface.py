"""Data sets that Hugging Face's `datasets` has saved to disk (``save_to_disk``), read by pyarrow alone.

Such a folder has a ``state.json`` that names its Arrow files, or a ``dataset_dict.json`` that names splits, each a
folder of its own. The Arrow files are mapped into memory: counting their rows touches the metadata of each record batch
only.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import xxhash
from pyroaring import BitMap64

from proctor.rows import ErrorKind, Failure, UserError
from proctor.sources.base import BLOCK_BYTES, ReadGroup
from proctor.sources.blocks import BlockShape, check_distinct
from proctor.sources.faults import FileError, open_failure
from proctor.sources.files import DataFile, LocalFolder, Version, ids_between
from proctor.sources.listing import folder_of
from proctor.sources.planning import Extent, plan_groups
from proctor.sources.segments import Segment, blocks_of, check_same_columns, lost, nullable, rows_at, types_of

_STATE = "state.json"
_SPLITS = "dataset_dict.json"
_END_MARK = b"\xff\xff\xff\xff\0\0\0\0"


@dataclass(frozen=True, slots=True)
class ArrowFile:
    """One file; an extent a record batch.

    Attributes:
        damage: why nothing behind the last row could be counted, which then stands for that; None: it is sound.
    """

    file: DataFile
    version: Version
    batches: tuple[Extent, ...]
    damage: str | None

    @property
    def first_row(self) -> int:
        """Id of its first row."""
        return self.batches[0].first_row if self.batches else 0


class HuggingFaceSource:
    """Rows of a data set on disk. Implements `base.Source`.

    Args:
        path: the folder that ``save_to_disk`` wrote.
        split: which split of a saved ``DatasetDict``; may be left out if there is one only.
        images: columns that hold images, usually structs of bytes and path.

    Raises:
        UserError: no such data set or split, or files that cannot be read or differ in their columns.
    """

    def __init__(self, path: str | Path, *, split: str | None = None, images: Sequence[str] = ()) -> None:
        self._files: list[ArrowFile] = []
        self._rows = 0
        digest = xxhash.xxh3_128()
        schema: pa.Schema | None = None
        for file in _data_files(path, split):
            found = self._add(file, digest)
            schema = schema or found
            check_same_columns(self._files[0].file, schema, file, found)
        if schema is None:
            raise UserError(f"{_STATE} names no data files", where=str(path))
        self._shape = BlockShape(schema, tuple(images), "hf_", str(path))
        self._fingerprint = digest.hexdigest()

    def _add(self, file: DataFile, digest: xxhash.xxh3_128) -> pa.Schema:
        """Counts the rows of a file."""
        try:
            version = file.version()
            schema, counts, damage = _count(file)
        except (OSError, ValueError, pa.ArrowException) as error:
            message = open_failure(error).message if isinstance(error, OSError) else " ".join(str(error).split())[:200]
            raise UserError(f"cannot read the Arrow file: {message}", where=file.place) from None
        total = max(1, sum(counts))
        batches = []
        for count in counts:
            batches.append(Extent(self._rows, count, version.size * count // total))
            self._rows += count
        digest.update(f"{version.size} {counts} {schema}".encode())
        if damage is not None:
            damage = f"{file.name} is damaged behind row {sum(counts):,}, and what follows cannot be counted: {damage}"
            batches.append(Extent(self._rows, 1, 1))
            self._rows += 1
        self._files.append(ArrowFile(file, version, tuple(batches), damage))
        return schema

    def expected(self) -> BitMap64:
        """All row ids, ``0 .. n-1``, as the record batches count them."""
        return ids_between(0, self._rows)

    def columns(self) -> pa.Schema:
        """The data set's columns; image columns as `cells.IMAGE` or `cells.IMAGES`."""
        return self._shape.columns

    def fingerprint(self) -> str:
        """Hash of the files' sizes, columns and numbers of rows, in order; not of the values."""
        return self._fingerprint

    def groups(self, todo: BitMap64, max_rows: int, max_bytes: int = BLOCK_BYTES) -> list[ReadGroup]:
        """Splits the wanted rows along record batches, by number and by their mean size. Opens no file."""
        return list(plan_groups(todo, [file.batches for file in self._files], max_rows, max_bytes))

    def read(self, group: ReadGroup) -> Iterator[pa.Table]:
        """Yields the group's rows in order, as blocks of at most about `BLOCK_BYTES`."""
        file = self._files[group.shard]

        def place(row_id: int) -> str:
            return f"{file.file.name}, row {row_id - file.first_row}"

        segments = self._segments(file, list(group.row_ids))
        yield from blocks_of(self._shape, segments, place, file.file.folder, file.damage)

    def _segments(self, file: ArrowFile, wanted: list[int]) -> Iterator[Segment]:
        schema = self._shape.file_schema
        done = 0
        try:
            file.file.same(file.version)
            with pa.memory_map(file.file.place) as mapped:
                for ids, rows in _wanted_rows(pa.ipc.open_stream(mapped), file.batches, wanted):
                    if types_of(rows.schema) != types_of(schema):
                        break
                    yield Segment(ids, pa.table(rows.select(schema.names).columns, schema=schema))
                    done += len(ids)
            failure = Failure(ErrorKind.READ_CORRUPT, file.damage or "the file holds fewer rows than it did")
        except (OSError, ValueError, pa.ArrowException) as error:
            fault = open_failure(error) if isinstance(error, OSError) else Failure(ErrorKind.READ_CORRUPT, str(error))
            failure = Failure(fault.kind, file.damage or fault.message)
        if wanted[done:]:
            yield lost(schema, wanted[done:], failure)


def _wanted_rows(stream: Any, batches: Sequence[Extent], wanted: Sequence[int]) -> Iterator[tuple[list[int], pa.Table]]:
    """The wanted rows of each record batch."""
    for extent in batches:
        inside = wanted[bisect_left(wanted, extent.first_row) : bisect_left(wanted, extent.first_row + extent.rows)]
        if extent.first_row > wanted[-1]:
            return
        try:
            batch = stream.read_next_batch()
        except StopIteration:
            return
        if batch.num_rows != extent.rows:
            return
        if inside:
            yield list(inside), rows_at(batch, [row - extent.first_row for row in inside])


def _count(file: DataFile) -> tuple[pa.Schema, list[int], str | None]:
    """Columns of an Arrow file, the rows of each record batch, and what is wrong behind them."""
    counts: list[int] = []
    with pa.memory_map(file.place) as mapped:
        stream = pa.ipc.open_stream(mapped)
        schema = nullable(stream.schema)
        for field in schema:
            _check_names(field)
        check_distinct(schema.names, file.place)
        try:
            for batch in stream:
                counts.append(batch.num_rows)  # noqa: PERF401 (what was counted before damage is kept)
        except (OSError, ValueError, pa.ArrowException) as error:
            return schema, counts, " ".join(str(error).split())[:200]
        mapped.seek(max(0, mapped.size() - len(_END_MARK)))
        ended = mapped.read() == _END_MARK
    return schema, counts, None if ended else "it ends without its end mark: it was probably cut off"


def _check_names(field: pa.Field) -> None:
    """Raises `UnicodeDecodeError` if the name of a column, or one inside it, is no text: pyarrow looks at it late."""
    assert isinstance(field.name, str)
    for number in range(field.type.num_fields):
        _check_names(field.type.field(number))


def _data_files(path: str | Path, split: str | None) -> list[DataFile]:
    """The Arrow files of a data set or of one of its splits, in order."""
    where = str(path)
    if "://" in where:
        from proctor.storage.connect import refuse_credentials

        refuse_credentials(where)
    folder, name = (None, "") if "://" in where and not where.startswith("file:///") else folder_of(path)
    if not isinstance(folder, LocalFolder):
        raise UserError("data sets on disk are mapped from local paths only", where=where, fix="copy or mount it first")
    if name:
        raise UserError("not a folder", where=where, fix="give the folder that save_to_disk wrote")
    if (folder.root / _SPLITS).is_file():
        folder = LocalFolder(folder.root / _chosen(_json(folder, _SPLITS).get("splits"), split, where))
    elif split is not None:
        raise UserError(f"has no splits: {_SPLITS} is not there", where=where, fix="leave source.split out")
    state = _json(folder, _STATE)
    if state.get("_indices_data_files"):
        raise UserError("rows are chosen by a separate index, which is not read", where=where, fix="save it anew")
    return [DataFile(folder, name) for name in _names(state, folder)]


def _names(state: dict[str, Any], folder: LocalFolder) -> list[str]:
    """The Arrow files that a data set's state names: in its folder, after all links."""
    where, home = folder.place(_STATE), os.path.realpath(folder.root)
    entries = state.get("_data_files") or []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UserError("_data_files is not a list of objects", where=where, fix="save it anew with save_to_disk")
    names = [entry.get("filename") for entry in entries]
    for name in names:
        if not isinstance(name, str) or os.path.basename(name) != name or name in ("", ".", "..") or "\0" in name:  # noqa: PTH119
            raise UserError(f"{_STATE} names a file outside of its folder: {name!r}", where=where)
        if os.path.dirname(os.path.realpath(folder.root / name)) != home:  # noqa: PTH120
            raise UserError("is a link that leads out of the data set's folder", where=folder.place(name))
    return names


def _chosen(splits: Any, split: str | None, where: str) -> str:
    names = [name for name in splits if isinstance(name, str)] if isinstance(splits, list) else []
    there = f"there are: {', '.join(names)}"
    if split is None and len(names) == 1:
        split = names[0]
    if split is None:
        raise UserError("has several splits", where=where, fix=f"set source.split; {there}")
    if split not in names or os.path.basename(split) != split or split in (".", ".."):  # noqa: PTH119
        raise UserError(f"has no split {split!r}", where=where, fix=there)
    return split


def _json(folder: LocalFolder, name: str) -> dict[str, Any]:
    where = folder.place(name)
    try:
        value = msgspec.json.decode(folder.content(name))
    except FileError as error:
        fix = "give the folder that save_to_disk wrote"
        raise UserError(f"no data set on disk: {error.message}", where=where, fix=fix) from None
    except RecursionError:
        raise UserError("not JSON of a data set: nested too deeply", where=where) from None
    except ValueError as error:
        raise UserError(f"not JSON: {error}", where=where) from None
    if not isinstance(value, dict):
        raise UserError("not a JSON object", where=where)
    return value
