"""Image cells: whatever form a data set gives its images in, out come encoded image bytes.

====================================  ==============================================================================
a cell (or an item of a list cell)    becomes
====================================  ==============================================================================
bytes                                 the same bytes
text ``data:...``                     the bytes of the data URI
text that begins like the base64      the decoded bytes
of an image, or of 4,096 characters
any other text                        the bytes of that file below the directory of the data file (never outside)
struct with ``bytes`` and ``path``    its ``bytes``; where they are null, the file named by ``path``
====================================  ==============================================================================

Bytes are not decoded here: whether they are an image shows later. Null stays null.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote_to_bytes

import pyarrow as pa
import pyarrow.types as pt

from proctor.rows import ErrorKind
from proctor.sources.faults import FileError
from proctor.sources.files import DataFolder

_BASE64_STARTS = ("/9j/", "_9j_", "iVBORw0KGgo", "R0lGOD", "UklGR", "SUkqA", "TU0AK", "AAAA", "Qk")
_LONGEST_PATH = 4096
_URL_SAFE = str.maketrans("-_", "+/")

IMAGE = pa.large_binary()
IMAGES = pa.list_(pa.field("item", pa.large_binary()))


class CellError(ValueError):
    """An image cell that gives no bytes: the kind and the message of its row's failure."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message

    def __reduce__(self) -> tuple[object, ...]:
        return (CellError, (self.kind, self.message))


def image_type(type_: pa.DataType) -> pa.DataType | None:
    """Type of an image column of blocks whose file has it as `type_`; None if such a column cannot hold images."""
    if _is_image(type_):
        return IMAGE
    if is_list(type_) and _is_image(type_.value_type):
        return IMAGES
    return None


def holds_bytes(type_: pa.DataType) -> bool:
    """Whether image cells of this type are bytes already."""
    return is_binary(type_.value_type if is_list(type_) else type_)


def is_binary(type_: pa.DataType) -> bool:
    """Whether values of this type are bytes."""
    return bool(
        pt.is_binary(type_) or pt.is_large_binary(type_) or pt.is_binary_view(type_) or pt.is_fixed_size_binary(type_)
    )


def is_text(type_: pa.DataType) -> bool:
    """Whether values of this type are text (dictionaries of text, too)."""
    if pt.is_dictionary(type_):
        return is_text(type_.value_type)
    return bool(pt.is_string(type_) or pt.is_large_string(type_) or pt.is_string_view(type_))


def is_list(type_: pa.DataType) -> bool:
    """Whether values of this type are lists of any kind."""
    return bool(pt.is_list(type_) or pt.is_large_list(type_) or pt.is_fixed_size_list(type_))


def _is_image(type_: pa.DataType) -> bool:
    if pt.is_struct(type_):
        fields = {field.name: field.type for field in type_}
        return is_binary(fields.get("bytes", pa.null())) or is_text(fields.get("path", pa.null()))
    return is_binary(type_) or is_text(type_)


def image_bytes(cell: Any, folder: DataFolder | None) -> bytes | None:
    """The encoded image that a cell stands for; None for null.

    Args:
        cell: bytes, text, or a mapping with ``bytes`` and ``path``.
        folder: where paths start, and what they must not leave; None: paths are refused.

    Raises:
        CellError: ``read.corrupt`` for text that is no sound base64 and for a path that leads outside, ``read.missing``
            for a file that is not there, ``read.failed`` for one that cannot be read now.
    """
    if cell is None or isinstance(cell, bytes):
        return cell
    if isinstance(cell, Mapping):
        inner = cell.get("bytes")
        return inner if isinstance(inner, bytes) else image_bytes(cell.get("path"), folder)
    if not isinstance(cell, str):
        raise CellError(ErrorKind.READ_CORRUPT, f"an image cannot be a {type(cell).__name__}")
    if cell.startswith("data:"):
        return _from_data_uri(cell)
    if _is_base64(cell):
        return _from_base64(cell)
    return _from_file(cell, folder)


def _from_data_uri(uri: str) -> bytes:
    head, comma, body = uri.partition(",")
    if not comma:
        raise CellError(ErrorKind.READ_CORRUPT, f"data URI without a comma: {_short(uri)}")
    return _from_base64(body) if head.endswith(";base64") else unquote_to_bytes(body)


def _is_base64(text: str) -> bool:
    # A path of an image file has a dot before its extension; base64 never has one.
    if len(text) >= _LONGEST_PATH:
        return True
    return text.startswith(_BASE64_STARTS) and "." not in text and len(text) >= 32


def _from_base64(text: str) -> bytes:
    if "-" in text or "_" in text:
        text = text.translate(_URL_SAFE)
    try:
        if any(space in text for space in " \t\r\n"):
            text = "".join(text.split())
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise CellError(ErrorKind.READ_CORRUPT, f"not base64: {error}: {_short(text)}") from None


def _from_file(name: str, folder: DataFolder | None) -> bytes:
    if folder is None:
        raise CellError(ErrorKind.READ_CORRUPT, f"neither base64 nor a data URI: {_short(name)}")
    if "://" in name:
        raise CellError(ErrorKind.READ_CORRUPT, f"URLs are not fetched: {_short(name)}")
    path = PurePosixPath(name)
    if path.is_absolute():
        what = "an absolute path: give it relative to the data's directory"
        raise CellError(ErrorKind.READ_CORRUPT, f"{what}: {_short(name)}")
    if ".." in path.parts or not path.parts or "\0" in name:
        raise CellError(ErrorKind.READ_CORRUPT, f"not a path below the data's directory: {_short(name)}")
    try:
        return folder.content(str(path))
    except FileError as fault:
        raise CellError(fault.kind, f"{fault.message}: {_short(name)}") from fault


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
