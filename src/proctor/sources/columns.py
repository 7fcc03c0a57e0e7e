"""Checks, before a run, that the columns which a spec names are there and can hold what they are meant to."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as pt

from proctor.rows import UserError
from proctor.sources.cells import image_type, is_binary, is_text
from proctor.spec import ColumnsSpec
from proctor.spec.source import is_expression

_JSON_MARKS = (b"proctor.encoding", b"mds.encoding")


def check_columns(schema: pa.Schema, columns: ColumnsSpec) -> None:
    """Checks `columns` against the columns of a source (`Source.columns`).

    Raises:
        UserError: a column that is not there (with those that are, the nearest first), an expression that does not fit
            them, or a type that cannot be.
    """
    for number, name in enumerate(columns.images):
        where = f"source.columns.images[{number}]"
        type_ = _field_of(schema, name, where).type
        if image_type(type_) is None:
            fix = (
                "images are bytes, text (base64, data URI, relative path), structs of bytes and path, or lists of these"
            )
            raise UserError(f"column {name!r} is {type_}, which cannot be an image", where=where, fix=fix)
    named = {"sample_id": columns.sample_id, "target": columns.target, "prompt": columns.prompt}
    for key, column in named.items():
        if column is not None:
            _check_field(schema, key, column, columns.images)


def is_json(field: pa.Field) -> bool:
    """Whether the text of a column is JSON, as its source marked it."""
    metadata = field.metadata or {}
    return any(metadata.get(key) == b"json" for key in _JSON_MARKS)


def _check_field(schema: pa.Schema, key: str, name: str, images: Sequence[str]) -> None:
    where = f"source.columns.{key}"
    field = _field_of(schema, name, where)
    type_ = field.type
    if name in images:
        raise UserError(f"column {name!r} is one of source.columns.images already", where=where)
    if key == "sample_id" and (pt.is_nested(type_) or is_binary(type_)):
        raise UserError(f"column {name!r} is {type_}, not text or a number", where=where)
    if key == "prompt" and (not is_text(type_) or is_json(field)):
        raise UserError(f"column {name!r} is {'JSON' if is_text(type_) else type_}, not text", where=where)


def _field_of(schema: pa.Schema, name: str, where: str) -> pa.Field:
    if is_expression(name):
        from proctor.sources.expressions import bind

        return bind(schema, name, where)
    if name in schema.names:
        return schema.field(name)
    near = difflib.get_close_matches(name, schema.names, n=1)
    there = ", ".join([*near, *(other for other in schema.names if other not in near)])
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise UserError(f"the source has no column {name!r}", where=where, fix=f"{hint}it has: {there}")
