"""Small helpers that the tests of the MDS source share."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64

from proctor.sources.base import BLOCK_FIELDS
from proctor.sources.mds import MDSSource, MDSWriter

FACTS = [field.name for field in BLOCK_FIELDS]


def write(out: Path, columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]], **options: Any) -> Path:
    """Writes a dataset and returns its directory."""
    with MDSWriter(out, columns, **options) as writer:
        for row in rows:
            writer.write(row)
    return out


def read_blocks(source: MDSSource, wanted: BitMap64 | None = None, max_rows: int = 1000) -> list[pa.Table]:
    """Every block of the wanted rows (default: all), fully validated."""
    todo = source.expected() if wanted is None else wanted
    blocks = [block for group in source.groups(todo, max_rows) for block in source.read(group)]
    for block in blocks:
        block.validate(full=True)
        assert block.schema.names == [*FACTS, *source.columns().names]
    return blocks


def read_rows(path: Path, wanted: BitMap64 | None = None, max_rows: int = 1000, **options: Any) -> list[dict[str, Any]]:
    """Every wanted row as a dict, block fields included, after checking that each id came out exactly once."""
    source = MDSSource(path, **options)
    rows = [row for block in read_blocks(source, wanted, max_rows) for row in block.to_pylist()]
    assert [row["row_id"] for row in rows] == list(source.expected() if wanted is None else wanted)
    for row in rows:
        if row["error_kind"] is not None:
            assert row["error_message"]
            assert all(value is None for name, value in row.items() if name not in FACTS)
    return rows


def errors(rows: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Error kind by row id."""
    return {row["row_id"]: row["error_kind"] for row in rows if row["error_kind"] is not None}


def messages(rows: Sequence[Mapping[str, Any]]) -> str:
    """All error messages, one a line."""
    return "\n".join(row["error_message"] for row in rows if row["error_message"] is not None)


def edit_index(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes a dataset's index in place; `change` gets the parsed JSON."""
    index = json.loads((path / "index.json").read_text())
    change(index)
    (path / "index.json").write_text(json.dumps(index))


def word(data: bytearray, position: int) -> int:
    """The 32-bit word at a position."""
    value: int = struct.unpack_from("<I", data, position)[0]
    return value


def set_word(data: bytearray, position: int, value: int) -> None:
    """Overwrites the 32-bit word at a position."""
    struct.pack_into("<I", data, position, value)


def edit_file(file: Path, change: Callable[[bytearray], bytes | bytearray | None]) -> None:
    """Rewrites a file; `change` edits the bytes in place or returns new ones."""
    data = bytearray(file.read_bytes())
    changed = change(data)
    file.write_bytes(data if changed is None else changed)
