"""One row of an MDS dataset, told to a person: text as it is, of images and arrays what they are."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proctor.sources.base import BLOCK_FIELDS
from proctor.sources.mds.source import MDSSource

if TYPE_CHECKING:
    from proctor.storage.connect import StorageOptions

_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a row.

    Attributes:
        column: name of its column.
        type: the Arrow type that it has in a block.
        value: numbers and text as they are; ``{"format", "width", "height", "bytes"}`` for an image file, ``{"bytes",
            "head"}`` (hexadecimal) for other bytes, ``{"dtype", "shape"}`` for arrays that say theirs; lists of these.
    """

    column: str
    type: str
    value: Any


@dataclass(frozen=True, slots=True)
class Row:
    """A row as it was read.

    Attributes:
        error_kind, error_message: why it could not be; None if it could.
        cells: in the order of the columns.
    """

    row_id: int
    error_kind: str | None
    error_message: str | None
    cells: tuple[Cell, ...]


def show_row(path: str | Path, row_id: int, storage: StorageOptions | None = None) -> Row:
    """Reads one row of the dataset at `path` (its directory, URL or ``index.json``), by ranges where it can.

    Raises:
        UserError: the index is missing or unsound, or has no such row.
    """
    block = MDSSource(path, allow_pickle=True, storage=storage).fetch([row_id])
    kind, message = block["error_kind"][0].as_py(), block["error_message"][0].as_py()
    fields = list(block.schema)[len(BLOCK_FIELDS) :]
    cells = tuple(Cell(field.name, str(field.type), _told(block[field.name][0].as_py())) for field in fields)
    return Row(row_id, kind, message, () if kind else cells)


def _told(value: Any) -> Any:
    if isinstance(value, bytes):
        return _image(value) or {"bytes": len(value), "head": value[:16].hex()}
    if isinstance(value, list):
        return [_told(item) for item in value]
    if isinstance(value, dict):
        return {name: item for name, item in value.items() if name in {"dtype", "shape"}}
    return value


def _image(data: bytes) -> dict[str, Any] | None:
    """What an image file says of itself; None if it is none."""
    from PIL import Image

    try:
        with warnings.catch_warnings(action="ignore"), Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            return {"format": image.format, "width": image.width, "height": image.height, "bytes": len(data)}
    except Exception:  # damaged headers raise all kinds of errors
        return None


def in_words(value: Any) -> str:
    """The value of a cell in a line."""
    match value:
        case {"format": name, "width": width, "height": height, "bytes": size}:
            return f"{name}, {width} x {height}, {size:,} bytes"
        case {"bytes": size, "head": head}:
            return f"{size:,} bytes: {head}" + ("..." if size > len(head) // 2 else "")
        case {"shape": shape, **rest}:
            return " ".join([*map(str, rest.values()), "array of shape", " x ".join(map(str, shape))])
        case [*items] if items and isinstance(items[0], dict):
            return "\n".join(map(in_words, items))
        case _:
            return "-" if value is None else str(value)
