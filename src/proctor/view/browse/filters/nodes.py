"""A filter as a tree. Where a part stands in the text does not count when two trees are compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "contains", "starts with", "ends with"]
TEXT_OPERATORS = ("contains", "starts with", "ends with")
ORDER_OPERATORS = ("=", "!=", "<", "<=", ">", ">=")


@dataclass(frozen=True, slots=True)
class Name:
    """A column, as it was written."""

    text: str
    start: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Value:
    """A constant."""

    value: str | int | float | bool
    start: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Truth:
    """A column of yes and no, by itself."""

    column: Name


@dataclass(frozen=True, slots=True)
class Compare:
    """A column beside a constant or another column."""

    column: Name
    operator: Operator
    right: Value | Name


@dataclass(frozen=True, slots=True)
class Among:
    """Whether a column has one of some values."""

    column: Name
    values: tuple[Value, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Absent:
    """Whether a column has no value."""

    column: Name
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Not:
    """The other rows."""

    item: Filter


@dataclass(frozen=True, slots=True)
class And:
    """Rows that match all of at least two filters."""

    items: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Rows that match any of at least two filters."""

    items: tuple[Filter, ...]


Filter = Truth | Compare | Among | Absent | Not | And | Or


def named(tree: Filter | None) -> set[str]:
    """The names of all columns in a filter, as they were written."""
    match tree:
        case None:
            return set()
        case And(items) | Or(items):
            return set().union(*map(named, items))
        case Not(item):
            return named(item)
        case Compare(column, _, Name() as other):
            return {column.text, other.text}
        case Truth(column) | Compare(column) | Among(column) | Absent(column):
            return {column.text}
