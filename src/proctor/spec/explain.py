"""Turns pydantic's findings into one line a person can act on: which key, what is wrong, what would be right."""

from __future__ import annotations

import difflib
import typing
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from proctor.rows import UserError
from proctor.spec.yamltext import Key, Lines

_BOOLEAN_WORDS = {"true", "false", "yes", "no", "on", "off", "0", "1"}


def explain(error: ValidationError, model: type[BaseModel], data: Any, lines: Lines | None) -> UserError:
    """The first finding of `error` as a `UserError`, with the number of further ones."""
    found = sorted(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    key = _data_key(found[0]["loc"], data)
    first = _of_union([e for e in found if _data_key(e["loc"], data) == key])
    more = len({_data_key(e["loc"], data) for e in found}) - 1
    if first["type"].startswith("union_tag_"):
        key = (*key, "kind")
    what, fix = _describe(first, key, model, data)
    if more:
        what += f" [and {more} more]"
    where = ".".join(str(part) for part in key) or "spec"
    return UserError(what, where=f"{lines.where(key)}: {where}" if lines else where, fix=fix)


def _of_union(alternatives: list[ErrorDetails]) -> ErrorDetails:
    """One finding for a key that may be of several types: of the type that the value has, or what all say together."""
    first = alternatives[0]
    of_its_type = [e for e in alternatives if not e["type"].endswith(("_type", "literal_error"))]
    if of_its_type or len(alternatives) == 1:
        return of_its_type[0] if of_its_type else first
    wanted = " or ".join(e["msg"].removeprefix("Input should be ") for e in alternatives)
    return {**first, "type": "union", "msg": f"Input should be {wanted}"}


def _describe(error: ErrorDetails, key: Key, model: type[BaseModel], data: Any) -> tuple[str, str | None]:
    kind, value = error["type"], error.get("input")
    if kind == "extra_forbidden":
        return f"unknown key {key[-1]!r}", _nearest(key, model, data)
    if kind == "missing":
        return "required, but not there", None
    if kind in ("bool_type", "bool_parsing") and isinstance(value, str):
        fix = "write true or false without quotes" if value.lower() in _BOOLEAN_WORDS else "true or false"
        return f"{value!r} is text, not a boolean", fix
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        expected = error.get("ctx", {}).get("expected_tags", "")
        return f"must be one of {expected}", _nearest_word(value, expected)
    if isinstance(value, str) and kind in ("int_type", "float_type"):
        return f"{value!r} is text, not a number", "write it without quotes (and 1e-3 as 1.0e-3)"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        names = [name for found in _models_at(key, model, data) for name in found.model_fields]
        known = f"known keys: {', '.join(dict.fromkeys(names))}" if names else None
        return f"must be a block of keys, {'and is empty' if value is None else f'not {value!r}'}", known
    if kind == "list_type" and isinstance(value, str):
        return f"must be a list, not {value!r}", f"write [{value}]"
    message = error["msg"].removeprefix("Value error, ").removesuffix(" after validation")
    if kind == "string_pattern_mismatch" and isinstance(value, str) and "\0" in value:
        return "holds a NUL character", None
    if kind == "string_pattern_mismatch":
        return f"{value!r} does not have the form that is asked for", _meaning(key, model, data)
    return (message[0].lower() + message[1:] + _shown(value)), None


def _shown(value: Any) -> str:
    if isinstance(value, str) and "://" in value and ("@" in value or "?" in value):
        return ""  # there may be a secret in it
    return f", not {value!r}" if isinstance(value, str | int | float | bool) else ""


def _nearest_word(value: Any, expected: str) -> str | None:
    word = value.get("kind") if isinstance(value, dict) else value
    choices = [tag.strip(" '") for tag in expected.split(",")]
    close = difflib.get_close_matches(str(word), choices, n=1)
    return f"did you mean {close[0]!r}?" if close else None


def _data_key(loc: tuple[int | str, ...], data: Any) -> Key:
    """The location without the names of union members that pydantic puts in: only steps that the data really has."""
    key: list[str | int] = []
    tagged: Any = None  # the mapping whose tag was left out: below it, the same word is a key
    for place, step in enumerate(loc):
        if isinstance(step, str) and place < len(loc) - 1 and _is_no_key(step, data):
            continue
        if isinstance(data, dict) and step == data.get("kind") and data is not tagged:
            tagged = data
            continue
        if not isinstance(data, dict | list):
            break
        key.append(step)
        data = _below(data, step)
    return tuple(key)


def _is_no_key(step: str, data: Any) -> bool:
    """Whether a step that others follow can only be the name of a union's member."""
    return isinstance(data, list) or (isinstance(data, dict) and step not in data)


def _nearest(key: Key, model: type[BaseModel], data: Any) -> str | None:
    names = sorted({name for found in _models_at(key[:-1], model, data) for name in found.model_fields})
    close = difflib.get_close_matches(str(key[-1]), names, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known keys: {', '.join(names)}" if names else None


def _meaning(key: Key, model: type[BaseModel], data: Any) -> str | None:
    """What the docstring of the field at `key` says first."""
    for candidate in _models_at(key[:-1], model, data):
        field = candidate.model_fields.get(str(key[-1]))
        if field is not None and field.description:
            return " ".join(field.description.split()).split(". ")[0].replace("``", "").rstrip(".")
    return None


def _models_at(path: Key, model: type[BaseModel], data: Any) -> list[type[BaseModel]]:
    """The models that may stand at `path`, following the data's `kind` through unions."""
    candidates, named = [model], False
    for step in path:
        data = _below(data, step)
        if not isinstance(step, int):
            kinds = [c.model_fields[step].annotation for c in candidates if step in c.model_fields]
            if kinds or not named:
                candidates = [m for annotation in kinds for m in _models_in(annotation)]
            named = any(_is_mapping(annotation) for annotation in kinds)
        if isinstance(data, dict) and "kind" in data:
            candidates = [c for c in candidates if _accepts_kind(c, data["kind"])] or candidates
    return candidates


def _is_mapping(annotation: Any) -> bool:
    """Whether the keys below are names that a person gives."""
    return typing.get_origin(annotation) is dict


def _below(data: Any, step: str | int) -> Any:
    if isinstance(data, dict):
        return data.get(step)
    if isinstance(data, list) and isinstance(step, int) and step < len(data):
        return data[step]
    return None


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in typing.get_args(annotation) for model in _models_in(part)]


def _accepts_kind(model: type[BaseModel], kind: Any) -> bool:
    field = model.model_fields.get("kind")
    return field is None or kind in typing.get_args(field.annotation)
