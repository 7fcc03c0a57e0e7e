"""The line-up: which kind of work a kernel does, by an ordered table of rules over demangled names."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from proctor.rows import UserError
from proctor.trace.names.normal import Parts, parts

OTHER = "other"
"""The category of what no rule fits."""

_FUNCTION_CAP, _ARGUMENTS_CAP = 2_048, 8_192
_FIELDS = {"id", "category", "pattern", "inside", "why"}


class Placement(NamedTuple):
    """Where a kernel stands in the line-up."""

    category: str
    """``attention``, ``gemm`` …; `OTHER` if no rule fits."""
    rule: str
    """The rule that fits; empty if none does."""


class Rule(NamedTuple):
    """One rule; see the head of ``lineup.toml`` for what its fields mean."""

    id: str
    category: str
    pattern: re.Pattern[str]
    inside: re.Pattern[str] | None
    why: str
    origin: str
    """``built in``, or the file of the user."""

    def fits(self, name: Parts) -> bool:
        """Whether the rule fits: the pattern the whole function, `inside` anywhere in the template arguments."""
        function = name.function if "::" in self.pattern.pattern else name.function.rpartition("::")[2]
        if self.pattern.fullmatch(function) is None:
            return False
        return self.inside is None or self.inside.search(name.arguments) is not None


class LineUp:
    """Rules in the order in which they are tried.

    Attributes:
        rules: the user's before the built-in ones.
        categories: what each known category is, in words.
    """

    def __init__(self, rules: Sequence[Rule], categories: Mapping[str, str]) -> None:
        self.rules = tuple(rules)
        self.categories = dict(categories)
        self._by_id = {rule.id: rule for rule in self.rules}

    def place(self, demangled: str) -> Placement:
        """The category of a kernel and the rule that says so.

        Patterns see the first 2,048 characters of the function and the first 8,192 of its template arguments.
        """
        name = capped(parts(demangled))
        return next((Placement(rule.category, rule.id) for rule in self.rules if rule.fits(name)), Placement(OTHER, ""))

    def rule(self, id_: str) -> Rule | None:
        """The rule of that id; None if there is none, as for `OTHER`."""
        return self._by_id.get(id_)


def line_up(extra: str | Path | None = None) -> LineUp:
    """The built-in line-up, with the rules of the file `extra` before it.

    Raises:
        UserError: the file cannot be read, or a rule in it is no rule: with file, rule and field.
    """
    built_in = _built_in()
    if extra is None:
        return built_in
    path = Path(extra)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the rules cannot be read: {error}", where=str(path)) from error
    data = _parsed(text, str(path))
    rules = read_rules(data, str(path), taken={rule.id for rule in built_in.rules})
    return LineUp([*rules, *built_in.rules], built_in.categories | _categories(data, str(path)))


def capped(name: Parts) -> Parts:
    """The part of a name that patterns see: no name, however long, may keep a regular expression busy."""
    return Parts(name.function[:_FUNCTION_CAP], name.arguments[:_ARGUMENTS_CAP])


def data_file(name: str) -> dict[str, Any]:
    """One of the TOML files of this package."""
    return tomllib.loads(resources.files("proctor.trace.names").joinpath(name).read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def _built_in() -> LineUp:
    data = data_file("lineup.toml")
    return LineUp(read_rules(data, "built in"), _categories(data, "built in"))


def read_rules(data: Mapping[str, Any], origin: str, taken: set[str] | None = None) -> list[Rule]:
    """The rules of a parsed file; `taken` are ids that they may not have."""
    entries = data.get("rule")
    unknown = sorted(set(data) - {"rule", "categories"})
    if unknown:
        raise UserError(f"unknown table {unknown[0]!r}", where=origin, fix="use [[rule]] and [categories]")
    if not isinstance(entries, list) or not entries:
        raise UserError("no [[rule]] in the file", where=origin)
    seen = set(taken or ())
    rules = []
    for number, entry in enumerate(entries, start=1):
        rule = _rule(entry, number, origin)
        if rule.id in seen:
            raise _wrong(origin, number, rule.id, "id", "another rule has this id")
        seen.add(rule.id)
        rules.append(rule)
    return rules


def _rule(entry: object, number: int, origin: str) -> Rule:
    if not isinstance(entry, dict):
        raise _wrong(origin, number, "", "rule", "must be a [[rule]] table")
    id_ = str(entry.get("id", ""))
    for field in sorted(set(entry) - _FIELDS):
        raise _wrong(origin, number, id_, field, f"unknown field; a rule has {', '.join(sorted(_FIELDS))}")
    for field in ("id", "category", "pattern", "why"):
        if not isinstance(entry.get(field), str) or not entry[field].strip():
            raise _wrong(origin, number, id_, field, "must be a text that is not empty")
    inside = entry.get("inside")
    if inside is not None and not isinstance(inside, str):
        raise _wrong(origin, number, id_, "inside", "must be a text")
    return Rule(
        id_,
        entry["category"],
        compiled(entry["pattern"], origin, number, id_, "pattern"),
        None if inside is None else compiled(inside, origin, number, id_, "inside"),
        entry["why"],
        origin,
    )


def compiled(pattern: str, origin: str, number: int, id_: str, field: str) -> re.Pattern[str]:
    """A regular expression of a rule.

    Raises:
        UserError: it is none.
    """
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise _wrong(origin, number, id_, field, f"no regular expression: {error}") from error


def _wrong(origin: str, number: int, id_: str, field: str, what: str) -> UserError:
    return UserError(f"{field}: {what}", where=f"{origin}, rule {number}{f' ({id_})' if id_ else ''}")


def _categories(data: Mapping[str, Any], origin: str) -> dict[str, str]:
    table = data.get("categories", {})
    if not isinstance(table, dict) or not all(isinstance(text, str) for text in table.values()):
        raise UserError("[categories] must give each category a text", where=origin)
    return dict(table)


def _parsed(text: str, origin: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"no valid TOML: {error}", where=origin) from error
