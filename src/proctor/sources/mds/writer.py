"""Writes MDS datasets (index version 2), byte for byte as the public library does.

with MDSWriter("out", {"frames": "list[jpeg]", "prompt": "str"}) as writer:
    writer.write({"frames": [jpeg_bytes], "prompt": "What is ahead?"})
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from proctor.rows import UserError
from proctor.sources.mds.compression import deflate, parse_compression
from proctor.sources.mds.encode import encode_cell
from proctor.sources.mds.encodings import Encoding, parse_encoding
from proctor.sources.mds.files import INDEX_NAME
from proctor.sources.mds.hashing import hash_names, hexdigests

_OFFSET_LIMIT = 1 << 32  # offsets are 32-bit words


class MDSWriter:
    """Appends rows to shard files in a directory; the index appears last and at once, when the block ends well.

    Args:
        out: directory, made if needed; one that already holds an index is refused.
        columns: column name -> encoding (every encoding except ``pkl``).
        compression: e.g. ``zstd``, ``zstd:7``, ``gz``, ``br``, ``bz2``, ``snappy``; only the compressed file is kept.
        hashes: algorithms whose digests go into the index, of both the raw and the compressed file.
        size_limit: most bytes of a raw shard (a single larger row gets a shard of its own); None: as large as can be.

    Raises:
        UserError: a column, value or setting that MDS cannot hold; names the column and the row.
    """

    def __init__(
        self,
        out: str | Path,
        columns: Mapping[str, str],
        compression: str | None = None,
        hashes: Sequence[str] | None = None,
        size_limit: int | None = 1 << 26,
    ) -> None:
        self._out = Path(out)
        self._columns = {name: _writable_encoding(name, columns[name]) for name in sorted(columns)}
        self._compression = compression
        self._hashes = sorted(set(hashes or ()))
        self._size_limit = size_limit
        self._check_settings()
        self._config = json.dumps(self._shard_config(), sort_keys=True).encode()
        self._shards: list[dict[str, Any]] = []
        self._rows: list[bytes] = []
        self._rows_written = 0
        self._shard_bytes = self._empty_shard_bytes
        self._out.mkdir(parents=True, exist_ok=True)

    def write(self, row: Mapping[str, Any]) -> None:
        """Adds one row: a value for every column. Image cells take encoded bytes or PIL images."""
        data = self._encode(row)
        size = len(data) + 4
        limit = _OFFSET_LIMIT - 1 if self._size_limit is None else self._size_limit
        if self._rows and self._shard_bytes + size > limit:
            self._flush()
        if self._shard_bytes + size >= _OFFSET_LIMIT:
            raise UserError("a row does not fit into a shard of 4 GiB", where=self._here())
        self._rows.append(data)
        self._shard_bytes += size
        self._rows_written += 1

    def close(self) -> None:
        """Writes the last shard and the index."""
        if self._rows:
            self._flush()
        index = json.dumps({"shards": self._shards, "version": 2}, sort_keys=True)
        _write_whole(self._out / INDEX_NAME, index.encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an exception the rows are not all there: without an index nobody mistakes them for a dataset.
        if kind is None:
            self.close()

    def _check_settings(self) -> None:
        if not self._columns:
            raise UserError("an MDS dataset needs at least one column")
        if self._size_limit is not None and not 0 < self._size_limit < _OFFSET_LIMIT:
            raise UserError(f"size_limit is {self._size_limit}", fix="MDS offsets are 32 bits: 1 to 2**32 - 1")
        unknown = [name for name in self._hashes if name not in hash_names()]
        if unknown:
            raise UserError(f"unknown hash {unknown[0]!r}", fix=f"known: {', '.join(sorted(hash_names()))}")
        if self._compression is not None:
            try:
                parse_compression(self._compression)
            except ValueError as error:
                raise UserError(str(error)) from None
        if (self._out / INDEX_NAME).exists():
            raise UserError("holds an MDS dataset already", where=str(self._out), fix="choose another directory")

    def _shard_config(self) -> dict[str, Any]:
        return {
            "version": 2,
            "format": "mds",
            "compression": self._compression,
            "hashes": self._hashes,
            "size_limit": self._size_limit,
            "column_names": list(self._columns),
            "column_encodings": [encoding.text for encoding in self._columns.values()],
            "column_sizes": [encoding.size for encoding in self._columns.values()],
        }

    @property
    def _empty_shard_bytes(self) -> int:
        return 4 + 4 + len(self._config)

    def _encode(self, row: Mapping[str, Any]) -> bytes:
        if row.keys() != self._columns.keys():
            missing, extra = sorted(self._columns.keys() - row.keys()), sorted(row.keys() - self._columns.keys())
            raise UserError(f"missing columns {missing}, unknown columns {extra}", where=self._here())
        sizes: list[int] = []
        cells: list[bytes] = []
        for name, encoding in self._columns.items():
            try:
                cell = encode_cell(encoding, row[name])
            except (TypeError, ValueError, OSError, KeyError) as error:
                raise UserError(str(error), where=f"{self._here()}, column {name!r}") from error
            if encoding.size is None:
                sizes.append(len(cell))
            cells.append(cell)
        return b"".join([np.array(sizes, "<u4").tobytes(), *cells])

    def _here(self) -> str:
        return f"row {self._rows_written}"

    def _flush(self) -> None:
        raw_name = f"shard.{len(self._shards):05}.mds"
        raw = self._shard_file()
        raw_data, zip_data, stored, stored_name = self._file_info(raw_name, raw), None, raw, raw_name
        if self._compression is not None:
            stored_name = f"{raw_name}.{parse_compression(self._compression)[0]}"
            stored = deflate(self._compression, raw)
            zip_data = self._file_info(stored_name, stored)
        _write_whole(self._out / stored_name, stored)
        files = {"samples": len(self._rows), "raw_data": raw_data, "zip_data": zip_data}
        self._shards.append({**files, **self._shard_config()})
        self._rows = []
        self._shard_bytes = self._empty_shard_bytes

    def _shard_file(self) -> bytes:
        count = len(self._rows)
        table_end = 4 + 4 * (count + 1) + len(self._config)
        offsets = table_end + np.cumsum([0, *map(len, self._rows)], dtype=np.int64)
        head = np.array([count, *offsets], "<u4").tobytes()
        return b"".join([head, self._config, *self._rows])

    def _file_info(self, basename: str, data: bytes) -> dict[str, Any]:
        return {"basename": basename, "bytes": len(data), "hashes": hexdigests(self._hashes, data)}


def _writable_encoding(name: str, text: str) -> Encoding:
    try:
        encoding = parse_encoding(text)
    except ValueError as error:
        raise UserError(str(error), where=f"column {name!r}") from None
    if encoding.name == "pkl":
        raise UserError("pkl columns are not written", where=f"column {name!r}", fix="loading a pickle runs code")
    return encoding


def _write_whole(path: Path, data: bytes) -> None:
    """Puts `data` at `path` so that a reader sees all of it or nothing."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(data)
    partial.replace(path)
