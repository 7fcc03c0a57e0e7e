"""What may come next in a filter that is being typed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from proctor.view.browse.filters.columns import Columns, Kind
from proctor.view.browse.filters.errors import FilterError, Wanted
from proctor.view.browse.filters.lexing import tokens_of
from proctor.view.browse.filters.parsing import MOST_CHARACTERS, parse
from proctor.view.browse.filters.printing import name_text, value_text

MOST_CANDIDATES = 50
_TAIL = re.compile(r"(?:[\w.]+|[=<>!]+)\Z")
_COMPARED = ("=", "!=", "<", "<=", ">", ">=")
_OPERATORS: Mapping[Kind, tuple[str, ...]] = {
    "text": ("=", "!=", "contains", "starts with", "ends with", "in", "not in", "is null", "is not null"),
    "number": (*_COMPARED, "in", "not in", "is null", "is not null"),
    "time": (*_COMPARED, "is null", "is not null"),
    "yes or no": ("and", "or", "=", "is null", "is not null"),
    "other": ("is null", "is not null"),
}


class Candidate(NamedTuple):
    """A word that may stand from `start` to `end` (of the text before the cursor) in place of what is there."""

    text: str
    kind: Literal["column", "operator", "value", "word"]
    start: int
    end: int


def complete(text: str, columns: Columns, values: Mapping[str, Sequence[str]] | None = None) -> list[Candidate]:
    """What may stand at the end of `text` (what is before the cursor); empty where nothing is known.

    Args:
        text: a filter that breaks off, perhaps within a word.
        columns: those that there are.
        values: known values of text columns, by the column's own name.
    """
    if len(text) > MOST_CHARACTERS:
        return []
    starts = [len(text)] if (tail := _tail(text)) is None else [tail, len(text)]
    for start in starts:
        offered = _offered(text[:start], columns, values or {})
        typed = text[start:].lstrip("`\"'").casefold()
        fitting = [c for c in offered if c[0].lstrip("`\"'").casefold().startswith(typed) and c[0] != text[start:]]
        if fitting:
            return [Candidate(word, kind, start, len(text)) for word, kind in fitting[:MOST_CANDIDATES]]
    return []


_Offer = tuple[str, Literal["column", "operator", "value", "word"]]


def _tail(text: str) -> int | None:
    """Where the word that is being typed begins, None between words."""
    try:
        tokens_of(text)
    except FilterError as error:
        if text[error.start : error.start + 1] in ('"', "'", "`") and error.end == len(text):
            return error.start  # a text or a name that is still open
    found = _TAIL.search(text)
    return None if found is None else found.start()


def _offered(before: str, columns: Columns, values: Mapping[str, Sequence[str]]) -> list[_Offer]:
    wanted = _wanted(before)
    if wanted is None:
        return []
    if wanted.words:
        return [(word, "word") for word in wanted.words]
    if wanted.kind == "column":
        names: list[_Offer] = [(name_text(name), "column") for name in columns.names]
        return [*names, ("not", "word"), ("(", "word")]
    if wanted.kind == "after":
        words = ("and", "or", ")") if wanted.open else ("and", "or")
        return [(word, "word") for word in words]
    column = columns.get(wanted.column) if wanted.column is not None else None
    if column is None:
        return []
    if wanted.kind == "operator":
        return [(word, "operator") for word in _OPERATORS[column.kind]]
    known: tuple[str, ...] = ("true", "false") if column.kind == "yes or no" else ()
    if column.kind == "text":
        known = tuple(value_text(value) for value in values.get(column.name, ()))
    return [(value, "value") for value in known]


def _wanted(before: str) -> Wanted | None:
    """What has to follow `before`; None if nothing can, because something in it is wrong."""
    if not before.strip():
        return Wanted("column")
    wanted: Wanted | None = Wanted("after")
    try:
        parse(before)
    except FilterError as error:
        wanted = error.wanted
    if wanted is None or wanted.kind != "after":
        return wanted
    tokens = tokens_of(before)
    last, begins = tokens[-2], len(tokens) == 2 or tokens[-3].is_("and", "or", "not", "(")
    return Wanted("operator", str(last.value)) if last.kind == "name" and begins else wanted
