"""Looks into what was decoded."""

from __future__ import annotations

from proctor.trace.names import Decoded


def fields(found: Decoded) -> dict[str, str]:
    return {field.name: field.value for field in found.fields}


def meaning(found: Decoded, name: str) -> str:
    return next(field.meaning for field in found.fields if field.name == name)


def unknown(found: Decoded) -> dict[str, str]:
    return {field.name: field.value for field in found.fields if not field.known}
