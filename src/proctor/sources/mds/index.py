"""``index.json`` of an MDS dataset: what it says about columns, shards and rows. Nothing here opens a shard."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, TypeVar

import msgspec

from proctor.rows import UserError
from proctor.sources.mds.compression import parse_compression
from proctor.sources.mds.encodings import Encoding, parse_encoding
from proctor.sources.mds.files import INDEX_NAME, LARGEST_SHARD, DatasetFiles
from proctor.sources.mds.hashing import hash_names
from proctor.sources.mds.layout import head_bytes

T = TypeVar("T")
_DEFAULT_SHARD_BYTES = 1 << 26


class _FileEntry(msgspec.Struct):
    basename: str
    bytes: int | None = None
    hashes: dict[str, str] | None = None


class _ShardEntry(msgspec.Struct):
    version: int
    format: str
    samples: int
    column_names: list[str]
    column_encodings: list[str]
    column_sizes: list[int | None]
    raw_data: _FileEntry
    zip_data: _FileEntry | None = None
    compression: str | None = None
    size_limit: int | str | None = None


class _IndexFile(msgspec.Struct):
    version: int
    shards: list[_ShardEntry]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the dataset: its name and encoding."""

    name: str
    encoding: Encoding


@dataclass(frozen=True, slots=True)
class ShardFile:
    """One file of a shard as the index describes it; `size` is None where the index does not know (or says 0)."""

    basename: str
    size: int | None
    hashes: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ShardInfo:
    """One shard as the index describes it.

    Attributes:
        number: position in the index.
        first_row: row id of its first row.
        samples: how many rows it should hold.
        sizes: bytes of each column's cells, None where every cell says its own size (dataset column order).
        compression: file extension of the algorithm (``zstd`` ...), None if the shard is not compressed.
        raw, zipped: the uncompressed and the compressed file; either may be the one that is there.
    """

    number: int
    first_row: int
    samples: int
    sizes: tuple[int | None, ...]
    compression: str | None
    raw: ShardFile
    zipped: ShardFile | None

    @property
    def size_bytes(self) -> int:
        """Uncompressed bytes: as the index says, or a guess where it does not."""
        return self.raw.size or _DEFAULT_SHARD_BYTES


@dataclass(frozen=True, slots=True)
class Index:
    """An MDS dataset as its index describes it.

    Attributes:
        files: where the index and the shards lie.
        columns: in the order in which cells lie in a row.
        rows: number of rows of all shards together.
        fingerprint: hash of the index's content, independent of white space and key order.
    """

    files: DatasetFiles
    columns: tuple[Column, ...]
    shards: tuple[ShardInfo, ...]
    rows: int
    fingerprint: str


def read_index(files: DatasetFiles, *, allow_pickle: bool = False) -> Index:
    """Reads and checks the index of a dataset.

    Raises:
        UserError: no index, or one that is not a sound MDS index of version 2; names file, shard and field.
    """
    content, file = files.index(), f"{files.where}/{INDEX_NAME}"
    tree, parsed = _parse(file, content)
    if parsed.version != 2:
        raise UserError(f"version {parsed.version} is not supported, only 2", where=f"{file}: version")
    shards: list[ShardInfo] = []
    for number, entry in enumerate(parsed.shards):
        _check_shard(entry, parsed.shards[0], f"{file}: shards[{number}]")
        first_row = shards[-1].first_row + shards[-1].samples if shards else 0
        shards.append(_shard_info(entry, number, first_row))
    _check_names(shards, file)
    columns = _columns(parsed.shards[0], file, allow_pickle) if shards else ()
    rows = shards[-1].first_row + shards[-1].samples if shards else 0
    return Index(files, columns, tuple(shards), rows, _fingerprint(tree))


def require_known_hashes(index: Index) -> None:
    """Raises `UserError` if the index has a digest of an algorithm that this machine cannot compute."""
    for shard in index.shards:
        for file in (shard.raw, shard.zipped):
            unknown = [name for name, _ in file.hashes if name not in hash_names()] if file else []
            if unknown:
                raise UserError(
                    f"hash {unknown[0]!r} cannot be computed here",
                    where=f"{index.files.where}/{INDEX_NAME}: shards[{shard.number}]",
                    fix="verify_hashes: false reads without checking",
                )


def _parse(file: str, content: bytes) -> tuple[Any, _IndexFile]:
    """The whole content (unknown fields, too, have to be sound JSON), and what is known of it."""
    try:
        tree = msgspec.json.decode(content)
        return tree, msgspec.convert(tree, _IndexFile)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$.")
        raise UserError(what, where=f"{file}: {place.rstrip('`')}" if place else file) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"not JSON: {error}", where=file) from None


def _fingerprint(tree: Any) -> str:
    ordered = msgspec.json.encode(tree, order="deterministic")
    return hashlib.sha256(ordered).hexdigest()


def _check_shard(entry: _ShardEntry, first: _ShardEntry, where: str) -> None:
    if entry.version != 2:
        raise UserError(f"version {entry.version} is not supported, only 2", where=f"{where}.version")
    if entry.format != "mds":
        raise UserError(f"format {entry.format!r} is not supported, only 'mds'", where=f"{where}.format")
    if entry.samples < 0 or head_bytes(entry.samples) > LARGEST_SHARD:
        raise UserError(f"{entry.samples} is not a number of rows that a shard can have", where=f"{where}.samples")
    if len({len(entry.column_names), len(entry.column_encodings), len(entry.column_sizes)}) != 1:
        raise UserError("column_names, column_encodings and column_sizes differ in length", where=where)
    if entry.column_names != first.column_names or entry.column_encodings != first.column_encodings:
        raise UserError("columns differ from those of shard 0", where=where, fix="make it a dataset of its own")
    if entry.raw_data.bytes and 0 < entry.raw_data.bytes < head_bytes(entry.samples):
        what = f"{entry.samples:,} rows do not go into a file of {entry.raw_data.bytes:,} bytes"
        raise UserError(what, where=f"{where}.samples")
    if entry.compression is not None:
        _check(parse_compression, entry.compression, f"{where}.compression")
    if entry.compression is None and entry.zip_data is not None:
        raise UserError("has a compressed file but no compression", where=f"{where}.zip_data")
    _check_file(entry.raw_data, f"{where}.raw_data")
    if entry.zip_data is not None:
        _check_file(entry.zip_data, f"{where}.zip_data")
    _check_sizes(entry, where)


def _check_names(shards: Sequence[ShardInfo], file: str) -> None:
    """Two shards in one file would be the same rows twice, under other ids."""
    seen: dict[str, int] = {}
    for shard in shards:
        for name in {str(PurePosixPath(f.basename)) for f in (shard.raw, shard.zipped) if f is not None}:
            if seen.setdefault(name, shard.number) != shard.number:
                where = f"{file}: shards[{shard.number}]"
                raise UserError(f"{name!r} is the file of shards[{seen[name]}], too", where=where)


def _check_file(entry: _FileEntry, where: str) -> None:
    path = PurePosixPath(entry.basename)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in entry.basename:
        raise UserError(
            f"{entry.basename!r} does not lie inside the dataset's directory",
            where=f"{where}.basename",
            fix="shards outside it are refused",
        )


def _check_sizes(entry: _ShardEntry, where: str) -> None:
    columns = zip(entry.column_names, entry.column_encodings, entry.column_sizes, strict=True)
    for name, text, size in columns:
        expected = _check(parse_encoding, text, f"{where}: column {name!r}").size
        if size is not None and (
            not 0 <= size <= LARGEST_SHARD or (size and expected is not None and size != expected)
        ):
            raise UserError(f"{text} cells are not {size} bytes", where=f"{where}.column_sizes: column {name!r}")


def _check(parse: Callable[[str], T], text: str, where: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise UserError(str(error), where=where) from None


def _columns(entry: _ShardEntry, where: str, allow_pickle: bool) -> tuple[Column, ...]:
    if not entry.column_names:
        raise UserError("the dataset has no columns", where=where)
    if len(set(entry.column_names)) != len(entry.column_names):
        raise UserError("column names repeat", where=f"{where}: shards[0].column_names")
    columns = [
        Column(name, parse_encoding(text))
        for name, text in zip(entry.column_names, entry.column_encodings, strict=True)
    ]
    pickled = [column.name for column in columns if column.encoding.name == "pkl"]
    if pickled and not allow_pickle:
        raise UserError(
            f"column {pickled[0]!r} holds pickles, which run code when loaded",
            where=where,
            fix="allow_pickle lets the raw bytes through; they are never loaded here",
        )
    return tuple(columns)


def _shard_info(entry: _ShardEntry, number: int, first_row: int) -> ShardInfo:
    return ShardInfo(
        number=number,
        first_row=first_row,
        samples=entry.samples,
        # The public reader takes a size of 0 for "every cell says its own size", so it does here.
        sizes=tuple(size or None for size in entry.column_sizes),
        compression=entry.compression.partition(":")[0] if entry.compression else None,
        raw=_shard_file(entry.raw_data),
        zipped=_shard_file(entry.zip_data) if entry.zip_data else None,
    )


def _shard_file(entry: _FileEntry) -> ShardFile:
    size = entry.bytes if entry.bytes and entry.bytes > 0 else None
    return ShardFile(entry.basename, size, tuple(sorted((entry.hashes or {}).items())))
