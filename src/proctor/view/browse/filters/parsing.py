"""From words to a tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from proctor.view.browse.filters.errors import FilterError, Wanted
from proctor.view.browse.filters.lexing import Token, tokens_of
from proctor.view.browse.filters.nodes import (
    ORDER_OPERATORS,
    Absent,
    Among,
    And,
    Compare,
    Filter,
    Name,
    Not,
    Operator,
    Or,
    Truth,
    Value,
)

MOST_CHARACTERS = 8_000
"""Longest filter."""
MOST_DEPTH = 50
"""Most parentheses and ``not`` inside one another."""


def parse(text: str) -> Filter | None:
    """The tree of a filter, None for one that is empty.

    Raises:
        FilterError: it is not in the language.
    """
    if len(text) > MOST_CHARACTERS:
        what = f"longer than {MOST_CHARACTERS:,} characters"
        raise FilterError(what, MOST_CHARACTERS, len(text))
    if not text.strip():
        return None
    return _Parser(tokens_of(text)).whole()


class _Parser:
    """One pass from left to right; each method takes what it is named after."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens, self._at, self._depth, self._open = tokens, 0, 0, 0

    def whole(self) -> Filter:
        found = self._any()
        if self._now.kind != "end":
            what = "a ) without its (" if self._now.is_(")") else f"{self._shown()} cannot stand here"
            raise self._wrong(what, None, fix="questions are joined by and, or")
        return found

    def _any(self) -> Filter:
        items = self._joined("or", self._all)
        return items[0] if len(items) == 1 else Or(items)

    def _all(self) -> Filter:
        items = self._joined("and", self._one)
        return items[0] if len(items) == 1 else And(items)

    def _joined(self, word: str, item: Callable[[], Filter]) -> tuple[Filter, ...]:
        items = [item()]
        while self._take(word):
            items.append(item())
        return tuple(items)

    def _one(self) -> Filter:
        if self._now.is_("not", "("):
            self._depth += 1
            if self._depth > MOST_DEPTH:
                raise self._wrong(f"more than {MOST_DEPTH} levels inside one another", None)
            found = Not(self._one()) if self._take("not") else self._grouped()
            self._depth -= 1
            return found
        return self._question()

    def _grouped(self) -> Filter:
        self._take("(")
        self._open += 1
        found = self._any()
        if not self._take(")"):
            raise self._wrong("a ) is missing", Wanted("after", open=self._open))
        self._open -= 1
        return found

    def _question(self) -> Filter:
        column = self._column(Wanted("column", open=self._open))
        operator = Wanted("operator", column.text)
        if self._now.kind == "symbol" and self._now.value in ORDER_OPERATORS:
            return Compare(column, cast("Operator", self._next().value), self._right(column))
        if self._take("contains"):
            return Compare(column, "contains", self._value(column))
        for verb in ("starts", "ends"):
            if self._take(verb):
                self._need("with", operator)
                return Compare(column, cast("Operator", f"{verb} with"), self._value(column))
        if self._take("is"):
            negated = self._take("not")
            self._need("null", operator, *(() if negated else ("not",)))
            return Absent(column, negated)
        if self._now.is_("in", "not"):
            return self._among(column, operator)
        if self._now.kind == "end" or self._now.is_("and", "or", ")"):
            return Truth(column)
        what = f"after {column.text} an operator is expected, not {self._shown()}"
        raise self._wrong(what, None, fix="one of =, !=, <, <=, >, >=, contains, starts with, ends with, in, is null")

    def _among(self, column: Name, operator: Wanted) -> Filter:
        negated = self._take("not")
        if negated and not self._now.is_("in"):
            raise self._wrong("in is expected after not", _only(operator, "in"), fix=f"or write: not {column.text} ...")
        self._need("in", operator)
        self._need("(", operator)
        values = [self._value(column)]
        while self._take(","):
            values.append(self._value(column))
        if not self._take(")"):
            raise self._wrong("a ) is missing after the values", _only(operator, ",", ")"))
        return Among(column, tuple(values), negated)

    def _right(self, column: Name) -> Value | Name:
        if self._now.kind == "name":
            return self._column(Wanted("column"))
        return self._value(column)

    def _column(self, wanted: Wanted) -> Name:
        if self._now.kind != "name":
            fix = None if self._now.kind != "word" else f"a column of that name is written `{self._now.value}`"
            raise self._wrong("a column is missing" + self._instead(), wanted, fix=fix)
        token = self._next()
        return Name(str(token.value), token.start, token.end)

    def _value(self, column: Name) -> Value:
        token = self._now
        if token.kind in ("text", "number"):
            self._at += 1
            return Value(token.value, token.start, token.end)
        if token.is_("true", "false"):
            self._at += 1
            return Value(token.value == "true", token.start, token.end)
        fix = "write: is null" if token.is_("null") else "texts stand in quotation marks"
        raise self._wrong("a value is missing" + self._instead(), Wanted("value", column.text), fix=fix)

    @property
    def _now(self) -> Token:
        return self._tokens[self._at]

    def _next(self) -> Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, word: str) -> bool:
        if self._now.is_(word):
            self._at += 1
            return True
        return False

    def _need(self, word: str, wanted: Wanted, *others: str) -> None:
        if not self._take(word):
            raise self._wrong(f"{word} is missing" + self._instead(), _only(wanted, word, *others))

    def _instead(self) -> str:
        return "" if self._now.kind == "end" else f", here is {self._shown()}"

    def _shown(self) -> str:
        shown = str(self._now.value)
        return repr(shown if len(shown) <= 40 else f"{shown[:39]}\u2026")

    def _wrong(self, what: str, wanted: Wanted | None, *, fix: str | None = None) -> FilterError:
        ends = self._now.kind == "end"
        return FilterError(what, self._now.start, self._now.end, fix=fix, wanted=wanted if ends else None)


def _only(wanted: Wanted, *words: str) -> Wanted:
    return Wanted(wanted.kind, wanted.column, wanted.open, words)
