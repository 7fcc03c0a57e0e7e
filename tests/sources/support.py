"""Helpers that the tests of all sources share."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from PIL import Image
from pyroaring import BitMap64

from proctor.sources.base import BLOCK_FIELDS, Source

Members = list[tuple[str, bytes]]
FACTS = [field.name for field in BLOCK_FIELDS]


def picture(shade: int = 0, format_: str = "PNG") -> bytes:
    """A small encoded image."""
    out = io.BytesIO()
    Image.new("RGB", (4, 3), (shade, 128, 255 - shade)).save(out, format_)
    return out.getvalue()


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any] | str | bytes]) -> Path:
    """Writes rows as JSON lines; text and bytes are written as they are."""
    with path.open("wb") as file:
        for row in rows:
            data = row if isinstance(row, bytes) else row.encode() if isinstance(row, str) else msgspec.json.encode(row)
            file.write(data + b"\n")
    return path


def write_tar(path: Path, members: Members, format_: int = tarfile.USTAR_FORMAT) -> Path:
    with tarfile.open(path, "w", format=format_) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def save(folder: Path, parts: list[pa.Table], batch: int = 10, **state: Any) -> Path:
    """What `datasets` writes with ``save_to_disk``: Arrow streams, ``state.json`` and ``dataset_info.json``."""
    folder.mkdir(parents=True)
    names = [f"data-{number:05}-of-{len(parts):05}.arrow" for number in range(len(parts))]
    for name, part in zip(names, parts, strict=True):
        with pa.ipc.new_stream(str(folder / name), part.schema) as writer:
            writer.write_table(part, max_chunksize=batch)
    data_files = [{"filename": name} for name in names]
    whole = {"_data_files": data_files, "_fingerprint": "1234", "_format_columns": None, "_split": None, **state}
    (folder / "state.json").write_text(json.dumps(whole))
    (folder / "dataset_info.json").write_text(json.dumps({"features": {"n": {"dtype": "int64", "_type": "Value"}}}))
    return folder


def read_blocks(source: Source, todo: BitMap64 | None = None, max_rows: int = 1000) -> list[pa.Table]:
    """Every block of the wanted rows (default: all), fully validated."""
    todo = source.expected() if todo is None else todo
    blocks = [block for group in source.groups(todo, max_rows) for block in source.read(group)]
    for block in blocks:
        block.validate(full=True)
        assert block.schema.names == [*FACTS, *source.columns().names]
        assert block.schema.types[len(FACTS) :] == source.columns().types
    return blocks


def read_rows(source: Source, todo: BitMap64 | None = None, max_rows: int = 1000) -> list[dict[str, Any]]:
    """Every wanted row as a dict, after checking that each id came out exactly once and faulty rows hold nothing."""
    rows = [row for block in read_blocks(source, todo, max_rows) for row in block.to_pylist()]
    assert [row["row_id"] for row in rows] == list(source.expected() if todo is None else todo)
    for row in rows:
        if row["error_kind"] is not None:
            assert row["error_message"]
            assert all(value is None for name, value in row.items() if name not in FACTS)
    return rows


def errors(rows: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Error kind by row id."""
    return {row["row_id"]: row["error_kind"] for row in rows if row["error_kind"] is not None}


def column(rows: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """Values of one column."""
    return [row[name] for row in rows]
