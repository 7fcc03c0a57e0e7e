"""From text to words."""

from __future__ import annotations

import math
import re
from typing import Literal, NamedTuple

from proctor.view.browse.filters.errors import FilterError, Wanted

KEYWORDS = frozenset(
    {"and", "or", "not", "in", "is", "null", "true", "false", "contains", "starts", "ends", "with"},
)
"""Words of the language. A column of that name stands in backticks."""
BARE_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
"""Names that need no backticks, unless they are words of the language."""

_SPACE = re.compile(r"\s+")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?(?![\w.])")
_SYMBOL = re.compile(r"<=|>=|!=|<>|==|[=<>(),]")
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'', re.DOTALL)
_QUOTED = re.compile(r"`(?:[^`]|``)+`")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"\\": "\\", '"': '"', "'": "'", "n": "\n", "r": "\r", "t": "\t"}
_SAME = {"==": "=", "<>": "!="}
_MEANT = {"&": "and", "|": "or", "!": "not", "~": "contains", "\u201c": '"', "\u201d": '"', "\u201e": '"'}
_MOST_DIGITS = 38
"""Digits of the largest whole number: those of DuckDB's HUGEINT."""


class Token(NamedTuple):
    """A word with its place in the text. The kind of a word of the language is ``word``; `value` is then small."""

    kind: Literal["name", "word", "text", "number", "symbol", "end"]
    value: str | int | float
    start: int
    end: int

    def is_(self, *values: str) -> bool:
        """Whether it is one of these words or symbols of the language."""
        return self.kind in ("word", "symbol") and self.value in values


def tokens_of(text: str) -> list[Token]:
    """The words of a filter, an ``end`` after them.

    Raises:
        FilterError: something in it is no word.
    """
    _check_characters(text)
    found, at = [], 0
    while at < len(text):
        if space := _SPACE.match(text, at):
            at = space.end()
            continue
        token = _token(text, at)
        found.append(token)
        at = token.end
    return [*found, Token("end", "", len(text), len(text))]


def _check_characters(text: str) -> None:
    odd = next((place for place, character in enumerate(text) if "\ud800" <= character <= "\udfff"), None)
    if odd is not None:
        raise FilterError("half a character, which no text can hold", odd, odd + 1)


def _token(text: str, at: int) -> Token:
    first = text[at]
    if first in "\"'":
        return _text(text, at)
    if first == "`":
        return _quoted(text, at)
    if match := BARE_NAME.match(text, at):
        small = match[0].lower()
        kind: Literal["word", "name"] = "word" if small in KEYWORDS else "name"
        return Token(kind, small if kind == "word" else match[0], at, match.end())
    if first in "+-." or first in "0123456789":
        return _number(text, at)
    if match := _SYMBOL.match(text, at):
        return Token("symbol", _SAME.get(match[0], match[0]), at, match.end())
    raise FilterError(f"{first!r} does not belong here", at, at + 1, suggestion=_MEANT.get(first))


def _text(text: str, at: int) -> Token:
    match = _TEXT.match(text, at)
    if match is None:
        wanted = Wanted("value", words=(text[at],))
        raise FilterError(f"this text has no end: {text[at]} is missing", at, len(text), wanted=wanted)
    for escape in _ESCAPE.finditer(match[0]):
        if escape[1] not in _ESCAPED:
            start = at + escape.start()
            raise FilterError(f"no such escape: {escape[0]!r}", start, start + 2, fix="a backslash is written \\\\")
    return Token("text", _ESCAPE.sub(lambda escape: _ESCAPED[escape[1]], match[0][1:-1]), at, match.end())


def _quoted(text: str, at: int) -> Token:
    match = _QUOTED.match(text, at)
    if match is None:
        raise FilterError("this name has no end, or nothing in it: ` is missing", at, len(text))
    return Token("name", match[0][1:-1].replace("``", "`"), at, match.end())


def _number(text: str, at: int) -> Token:
    match = _NUMBER.match(text, at)
    if match is None:
        end = re.compile(r"[-+\w.]+").match(text, at)
        raise FilterError("not a number", at, end.end() if end else at + 1, fix="texts stand in quotation marks")
    digits = match[0]
    whole = digits.lstrip("+-").isdigit()
    too_large = len(digits.lstrip("+-")) > _MOST_DIGITS if whole else not math.isfinite(float(digits))
    if too_large:
        raise FilterError("this number is too large", at, match.end())
    return Token("number", int(digits) if whole else float(digits), at, match.end())
