"""JSON lines and their columns: which there are, and of what type, is learned from the first rows.

==============================  =====================================================================================
values in the first rows        column
==============================  =====================================================================================
all text                        large_string
all true or false               bool
all whole numbers of 64 bits    int64
all numbers                     double, unless it cannot hold a whole number among them: then JSON
all lists of text               list<large_string>
anything else, or only null     JSON: large_string of JSON text, marked by the field's metadata (`JSON_METADATA`)
==============================  =====================================================================================

A column that the spec names as images is always list<large_string>, whatever form each of its cells has: text, an
object with ``bytes`` (base64) or ``path``, or a list of these. One image is a list of one. (Only numbers or booleans
in all of the first rows make a column of their own type: it is the wrong column.)

Null, or a key that is missing, is null in any column. A later row whose value does not fit its column is at fault; a
key that none of the first rows had is left out. JSON is read strictly: no NaN, no comments, one object a line.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Any

import msgspec
import pyarrow as pa

from proctor.rows import UserError

JSON_METADATA = {b"proctor.encoding": b"json"}
"""Metadata of a text field whose values are JSON."""

Columns = tuple[tuple[str, str], ...]
"""Name and kind (a key of `_ARROW_TYPES`) of each column."""

_ARROW_TYPES: dict[str, pa.DataType] = {
    "text": pa.large_string(),
    "bool": pa.bool_(),
    "int": pa.int64(),
    "float": pa.float64(),
    "texts": pa.list_(pa.field("item", pa.large_string())),
    "json": pa.large_string(),
    "images": pa.list_(pa.field("item", pa.large_string())),
}
_NEVER_IMAGES = frozenset({"bool", "int", "float"})
_EXACT = 1 << 53
_SMALLEST, _LARGEST = -(1 << 63), (1 << 63) - 1


class _Image(msgspec.Struct, gc=False):
    """An image as an object; of other keys nothing is kept."""

    bytes: str | None = None
    path: str | None = None


_PYTHON_TYPES: dict[str, Any] = {
    "text": str | None,
    "bool": bool | None,
    "int": Annotated[int, msgspec.Meta(ge=_SMALLEST, le=_LARGEST)] | None,
    "float": int | float | None,
    "texts": list[str] | None,
    "json": msgspec.Raw,
    "images": str | _Image | list[str | _Image | None] | None,
}
_MERGED = {
    frozenset({"int", "float"}): "float",
    frozenset({"int", "long int"}): "long int",
    frozenset({"texts", "empty list"}): "texts",
}
_BOM = b"\xef\xbb\xbf"


class RowError(ValueError):
    """A line that is no row of the source; says why."""


def discover(lines: Iterable[bytes], where: str, images: Collection[str] = ()) -> Columns:
    """Columns of the first rows, in the order in which they appear; lines that are no JSON object are passed over.

    Args:
        lines: the first rows.
        where: names the file in messages.
        images: keys whose values are images.

    Raises:
        UserError: no line is an object with keys, or a key cannot be a column.
    """
    found: dict[str, str] = {}
    for line in lines:
        for name, value in _object(line).items():
            found[name] = _merged(found.get(name, "null"), _kind(value))
    if not found:
        raise UserError("none of the first rows is a JSON object with keys", where=where, fix="one object a line")
    odd = next((name for name in found if not name.isprintable() or '"' in name or "\\" in name), None)
    if odd is not None:
        raise UserError(f"key {odd!r} has quotes, backslashes or control characters", where=where, fix="rename it")
    return tuple((name, _column_kind(kind, name in images)) for name, kind in found.items())


def schema_of(columns: Columns) -> pa.Schema:
    """Arrow schema of the columns."""
    return pa.schema(
        [
            pa.field(name, _ARROW_TYPES[kind], metadata=JSON_METADATA if kind == "json" else None)
            for name, kind in columns
        ]
    )


def decode_row(columns: Columns, line: bytes) -> tuple[Any, ...]:
    """Values of a line, one a column.

    Raises:
        RowError: not a JSON object, or a value that does not fit its column.
    """
    try:
        row = _decoder(columns).decode(line.removeprefix(_BOM))
        values = msgspec.structs.astuple(row)
        return tuple(_cell(name, kind, value) for (name, kind), value in zip(columns, values, strict=True))
    except RecursionError:
        raise RowError("nested too deeply") from None
    except msgspec.ValidationError as error:
        what, _, place = (
            str(error).replace("`", "").replace(" | null", "").replace("int | float", "float").partition(" - at $.")
        )
        raise RowError(f"column {place!r}: {what}" if place else what) from None
    except ValueError as error:  # malformed JSON, text that is not UTF-8
        raise RowError(str(error)) from None


def table_of(columns: Columns, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    """A table of decoded rows."""
    schema = schema_of(columns)
    values = zip(*rows, strict=True) if rows else [()] * len(columns)
    return pa.table([pa.array(cells, type_) for cells, type_ in zip(values, schema.types, strict=True)], schema=schema)


def _object(line: bytes) -> dict[str, Any]:
    try:
        row = msgspec.json.decode(line.removeprefix(_BOM))
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "bool"
        case int():
            if not _SMALLEST <= value <= _LARGEST:
                return "json"
            return "int" if int(float(value)) == value else "long int"
        case float():
            return "float"
        case str():
            return "text"
        case []:
            return "empty list"
        case [*items] if all(isinstance(item, str) for item in items):
            return "texts"
    return "json"


def _merged(one: str, other: str) -> str:
    if one == other or other == "null":
        return one
    return other if one == "null" else _MERGED.get(frozenset({one, other}), "json")


def _column_kind(found: str, is_image: bool) -> str:
    if found == "long int":  # one of them is a whole number that a double cannot hold
        return "int"
    if is_image and found not in _NEVER_IMAGES:
        return "images"
    return found if found in _ARROW_TYPES else "json"


@functools.lru_cache(maxsize=16)
def _decoder(columns: Columns) -> msgspec.json.Decoder[Any]:
    # A struct made for these columns lets one pass over the line parse it and check every type. Its fields have names
    # of their own, since a key of the data need not be a Python name.
    aliases = {f"c{number}": name for number, (name, _) in enumerate(columns)}
    fields = [
        (alias, _PYTHON_TYPES[kind], msgspec.Raw() if kind == "json" else None)
        for alias, (_, kind) in zip(aliases, columns, strict=True)
    ]
    return msgspec.json.Decoder(msgspec.defstruct("Row", fields, rename=aliases, gc=False))


def _cell(name: str, kind: str, value: Any) -> Any:
    if kind == "json":
        return _json_text(value)
    if kind == "float" and isinstance(value, int):
        return _float(name, value)
    if kind == "images" and value is not None:
        images = value if isinstance(value, list) else [value]
        return [_image_text(name, number, image) for number, image in enumerate(images, 1)]
    return value


def _float(name: str, value: int) -> float:
    """A whole number in a column of doubles."""
    if abs(value) > _EXACT and (abs(value) > _LARGEST or int(float(value)) != value):
        raise RowError(f"column {name!r}: a double cannot hold {str(value)[:40]}")
    return float(value)


def _image_text(name: str, number: int, image: str | _Image | None) -> str | None:
    """An image as text that `cells.image_bytes` reads."""
    if not isinstance(image, _Image):
        return image
    if image.bytes is not None:
        return image.bytes if image.bytes.startswith("data:") else f"data:;base64,{image.bytes}"
    if image.path is None:
        raise RowError(f"column {name!r}, image {number}: an object with neither bytes nor path")
    return image.path


def _json_text(raw: msgspec.Raw) -> str | None:
    text = bytes(raw).decode()
    return None if text in ("", "null") else text
