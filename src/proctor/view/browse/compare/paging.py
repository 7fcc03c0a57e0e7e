"""Rows of several sides, regressions first: a page before or after a place, and one row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proctor.rows.records import BASE_FIELDS
from proctor.view.browse.compare.beside import Beside
from proctor.view.browse.compare.board import RANKS
from proctor.view.browse.compare.place import Place
from proctor.view.browse.compare.wanted import Show, Wanted, rows_of
from proctor.view.browse.filters import Column

ANSWER_CHARACTERS = 1_000
"""Most characters of an answer in a page; one more is given where there is more."""
WHOLE_CHARACTERS = 20_000
"""The same of a row by itself."""
_ORDER = Place._fields
_BASE = frozenset(field.name for field in BASE_FIELDS)
_READ = ("answer", "error_kind", "error_message", "target")
_ASKED = ("n_images", "prompt")
_PLAIN = ("number", "yes or no", "time")


@dataclass(frozen=True, slots=True)
class Cell:
    """A row on one side.

    Attributes:
        row_id: its id there; None without a record.
        fate: what became of it (see `proctor.paired.model.Standing`).
        kind: what became of it since the first side, a word of `RANKS`; empty on the first side.
        change: by how much its score changed since, more is better; None where that cannot be said.
        text: the answer, or the message of its error, cut; None without either.
        error: the kind of its error.
        scores: the task's own columns: what was parsed, and how it was marked.
        asked: of a row by itself: its prompt as sent, and how many images it has (``prompt``, ``n_images``).
    """

    row_id: int | None
    fate: str
    kind: str
    change: float | None
    text: str | None = None
    error: str | None = None
    scores: dict[str, Any] | None = None
    asked: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A row on all sides."""

    place: Place
    kind: str
    sample_id: str | None
    target: str | None
    cells: list[Cell]


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows in order; the place of the first if there are rows before it, of the last if there are any after it."""

    rows: list[Row]
    previous: Place | None
    next: Place | None


def counts(beside: Beside) -> dict[Show, int]:
    """How many rows there are of each kind, whatever the filter."""
    found = dict(beside.ask("select rank, count(*) from board group by rank"))
    by_rank: dict[Any, int] = {name: found.get(rank, 0) for rank, name in enumerate(RANKS)}
    total = sum(by_rank.values())
    absent = int(beside.ask("select count(*) from board where absent")[0][0])
    return {**by_rank, "changed": total - by_rank["same"], "all": total, "absent": absent}


def count(beside: Beside, wanted: Wanted) -> int:
    """How many rows are wanted.

    Raises:
        UserError: the filter is none.
    """
    condition = wanted.condition(beside)
    sql = f"select count(*) from {rows_of(beside, condition)} where {condition.sql}"
    return int(beside.ask(sql, condition.parameters)[0][0])


def row_ids(beside: Beside, wanted: Wanted) -> NDArray[np.int64]:
    """The ids of all rows that are wanted, each once and in order: those of the first side where rows are paired by
    sample id, and then only of rows that it has.

    Raises:
        UserError: the filter is none.
    """
    condition = wanted.condition(beside)
    column = "r0" if beside.by_sample else "row"
    rows = f"{rows_of(beside, condition)} where ({condition.sql}) and {column} is not null"
    return beside.numbers(f"select distinct {column} from {rows} order by {column}", condition.parameters)


def page(beside: Beside, wanted: Wanted, size: int, *, after: Place | None = None, before: Place | None = None) -> Page:
    """The first rows that are wanted, or those next to a place.

    Raises:
        UserError: the filter is none.
    """
    places = _places(beside, wanted, before or after, size + 1, backwards=before is not None)
    more, places = len(places) > size, places[:size]
    if before is not None:
        places.reverse()
    if not places:
        return Page([], None, None)
    has_previous = more if before is not None else after is not None
    has_next = before is not None or more
    rows = _filled(beside, places, ANSWER_CHARACTERS, whole=False)
    return Page(rows, places[0] if has_previous else None, places[-1] if has_next else None)


def one(beside: Beside, wanted: Wanted, key: str) -> tuple[Row | None, str | None, str | None]:
    """A row with its scores, and the keys of the wanted rows before and after it.

    Raises:
        UserError: the filter is none.
    """
    found = beside.ask(f"select {', '.join(_ORDER)} from board where key = ?", [key])
    if not found:
        return None, None, None
    here = Place(*found[0])
    (row,) = _filled(beside, [here], WHOLE_CHARACTERS, whole=True)
    sides = [_places(beside, wanted, here, 1, backwards=backwards) for backwards in (True, False)]
    previous, following = (side[0].key if side else None for side in sides)
    return row, previous, following


def _places(beside: Beside, wanted: Wanted, at: Place | None, most: int, *, backwards: bool) -> list[Place]:
    """The places next to `at`, nearest first."""
    condition = wanted.condition(beside)
    order = ", ".join(f"{name} {'desc' if backwards else 'asc'}" for name in _ORDER)
    beyond, parameters = "true", list(condition.parameters)
    if at is not None:
        beyond = f"({', '.join(_ORDER)}) {'<' if backwards else '>'} (?, ?::double, ?, ?)"
        parameters += list(at)
    sql = (
        f"select {', '.join(_ORDER)} from {rows_of(beside, condition)} where ({condition.sql}) and {beyond} "
        f"order by {order} limit ?"
    )
    return [Place(*row) for row in beside.ask(sql, [*parameters, most])]


def _filled(beside: Beside, places: Sequence[Place], most: int, *, whole: bool) -> list[Row]:
    """The rows at some places, read by their ids, so that no other row's texts are."""
    marks = ", ".join("?" for _ in places)
    board = beside.ask(f"select * from board where key in ({marks})", [place.key for place in places])
    names = [row[0] for row in beside.ask("describe board")]
    lines = {line["key"]: line for line in (dict(zip(names, row, strict=True)) for row in board)}
    records = [
        _records(beside, at, [line[f"r{at}"] for line in lines.values() if line[f"r{at}"] is not None], most, whole)
        for at in range(len(beside.sides))
    ]
    return [_row(place, lines[place.key], records) for place in places]


def _row(place: Place, line: dict[str, Any], records: Sequence[dict[int, dict[str, Any]]]) -> Row:
    cells, targets = [], []
    for at, of_side in enumerate(records):
        record = of_side.get(line[f"r{at}"], {})
        targets.append(record.pop("target", None))
        kind, change = (RANKS[line[f"k{at}"]], line[f"c{at}"]) if at else ("", None)
        text, error = record.pop("answer", None), record.pop("error_kind", None)
        message = record.pop("error_message", None)
        asked = {name: record.pop(name, None) for name in _ASKED}
        cells.append(
            Cell(
                row_id=line[f"r{at}"],
                fate=line[f"f{at}"],
                kind=kind,
                change=change,
                text=message if text is None else text,
                error=error,
                scores=record,
                asked=asked,
            )
        )
    target = next((target for target in targets if target is not None), None)
    return Row(place, RANKS[place.rank], line["sample_id"], target, cells)


def _records(beside: Beside, at: int, ids: Sequence[int], most: int, whole: bool) -> dict[int, dict[str, Any]]:
    """Records of a side by row id: the texts cut, and with `whole` the task's own columns."""
    if not ids:
        return {}
    types = beside.types[at]
    names: list[str] = [name for name in _READ if name in types]
    names += [name for name in types if name not in _BASE or name in _ASKED] if whole else []
    cells = ", ".join(_cell(Column(name, types[name]), most) for name in names)
    marks = ", ".join("?" for _ in ids)
    rows = beside.ask(f"select row_id, {cells} from rec{at} where row_id in ({marks})", list(ids))
    return {row[0]: dict(zip(names, row[1:], strict=True)) for row in rows}


def _cell(column: Column, most: int) -> str:
    return column.sql if column.kind in _PLAIN else f"left({column.sql}::varchar, {most + 1})"
