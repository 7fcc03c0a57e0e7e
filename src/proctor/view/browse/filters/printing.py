"""From a tree back to text: the text that is parsed to the same tree."""

from __future__ import annotations

from proctor.view.browse.filters.lexing import BARE_NAME, KEYWORDS
from proctor.view.browse.filters.nodes import Absent, Among, And, Compare, Filter, Name, Not, Or, Truth, Value

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def to_text(tree: Filter) -> str:
    """The filter as it would be written."""
    match tree:
        case And(items):
            return " and ".join(_inside(item, And, Or) for item in items)
        case Or(items):
            return " or ".join(_inside(item, Or) for item in items)
        case Not(item):
            return f"not {_inside(item, And, Or)}"
        case _:
            return _question(tree)


def name_text(name: str) -> str:
    """A column's name as the language writes it."""
    plain = BARE_NAME.fullmatch(name) and name.lower() not in KEYWORDS
    return name if plain else f"`{name.replace('`', '``')}`"


def value_text(value: str | float | bool) -> str:
    """A constant as the language writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value.translate(_ESCAPES)}"' if isinstance(value, str) else repr(value)


def _inside(item: Filter, *loose: type) -> str:
    return f"({to_text(item)})" if isinstance(item, loose) else to_text(item)


def _question(tree: Truth | Compare | Among | Absent) -> str:
    column = name_text(tree.column.text)
    match tree:
        case Truth():
            return column
        case Compare(operator=operator, right=right):
            return f"{column} {operator} {_right(right)}"
        case Among(values=values, negated=negated):
            listed = ", ".join(value_text(value.value) for value in values)
            return f"{column} {'not in' if negated else 'in'} ({listed})"
        case Absent(negated=negated):
            return f"{column} is not null" if negated else f"{column} is null"


def _right(right: Value | Name) -> str:
    return name_text(right.text) if isinstance(right, Name) else value_text(right.value)
