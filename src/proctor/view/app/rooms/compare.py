"""Runs and checkpoints beside each other: what was found, the rows, and one of them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from proctor.paired.sides import Side
from proctor.rows import UserError
from proctor.rows.text import told
from proctor.view.app.compare_links import Compared, SideName
from proctor.view.app.shelf import Kept, state_of
from proctor.view.app.shown import shown
from proctor.view.app.site import Answer, Site
from proctor.view.browse.compare import (
    LETTERS,
    MOST_SIDES,
    SHOWS,
    Beside,
    Cell,
    Page,
    Place,
    Row,
    count,
    counts,
    given_side,
    one,
    page,
    put_beside,
    row_ids,
)
from proctor.view.browse.compare.paging import ANSWER_CHARACTERS, WHOLE_CHARACTERS
from proctor.view.browse.filters import FilterError
from proctor.view.browse.places import survey
from proctor.view.browse.rows import EXPORTS
from proctor.view.browse.runs import DAMAGE
from proctor.view.compare_view import AnswerView, answer_view, comparison_view

MOST_OFFERED = 200
MOST_OPEN = 2
_LINES = 50_000
_SAID = {
    "changed": "all changes",
    "regression": "regressions",
    "improvement": "improvements",
    "different": "other changes",
    "missing": "on one side only",
    "same": "same",
    "absent": "without a record on a side",
    "all": "all rows",
}


class Chosen(NamedTuple):
    """A side that is compared: its letter in filters, its name in addresses, and the checkpoints of its run."""

    letter: str
    name: SideName
    side: Side
    checkpoints: list[str]


class Shown(NamedTuple):
    """A row, and what each side says to it."""

    row: Row
    answers: list[AnswerView]


class _Room:
    """Keeps the last comparisons open: to make one means to read all records of its sides."""

    def __init__(self, site: Site) -> None:
        self._site, self._kept = site, Kept[Beside](MOST_OPEN)
        site.closing.callback(self._kept.close)

    def chosen(self, address: Compared) -> list[Chosen]:
        """The sides of an address, opened."""
        found = []
        for letter, name in zip(LETTERS, address.sides, strict=False):
            label = name.path.rpartition("/")[2] or name.opened
            with _damage_told():
                side, checkpoints = given_side(self._site.run(name.run), name.checkpoint, label)
            found.append(Chosen(letter, name._replace(checkpoint=side.checkpoint), side, checkpoints))
        return found

    @contextmanager
    def beside(self, address: Compared, chosen: list[Chosen]) -> Iterator[Beside]:
        """The sides beside each other, as their records are now, during the block."""
        sides = [one.side for one in chosen]
        key = (tuple(side.where for side in sides), address.by, address.metric, address.strict)
        with ExitStack() as stack:
            with _damage_told():
                beside = stack.enter_context(
                    self._kept.held(key, lambda: tuple(map(_state, sides)), lambda: put_beside(sides, address.wish))
                )
            yield beside

    def compare(self, request: Request) -> Response:
        """The page of a comparison; with fewer than two sides, of what may be compared."""
        given = request.query_params
        address = Compared.of(given)
        chosen = self.chosen(address)
        context: dict[str, Any] = {"address": address, "chosen": chosen, "most": MOST_SIDES, "wrong": None}
        if len(chosen) < 2:
            return self._site.page("compared.html.j2", found=None, offered=self._offered(), **context)
        try:
            with self.beside(address, chosen) as beside:
                found = _found(beside, address, given)
        except UserError as error:
            context["wrong"] = error
            return self._site.page("compared.html.j2", 400, found=None, offered=None, **context)
        offered = self._offered() if "add" in given else None
        code = 400 if found["wrong_filter"] else 200
        return self._site.page("compared.html.j2", code, found=found, offered=offered, **context)

    def row(self, request: Request) -> Response:
        """The page of one row."""
        address, key = Compared.of(request.query_params), request.query_params.get("key", "")
        chosen = self.chosen(address)
        with self.beside(address, chosen) as beside:
            row, previous, following = one(beside, address.wanted, key)
        context: dict[str, Any] = {
            "address": address,
            "chosen": chosen,
            "key": key,
            "previous": previous,
            "following": following,
        }
        if row is None:
            return self._site.page(
                "compared_row.html.j2", 404, shown=None, scores=[], images=0, pictured=None, **context
            )
        pictured = next((at for at, cell in enumerate(row.cells) if cell.row_id is not None), None)
        return self._site.page(
            "compared_row.html.j2",
            shown=_shown(row, WHOLE_CHARACTERS),
            scores=_scores(row.cells),
            images=max(shown(cell.asked or {}).images for cell in row.cells),
            pictured=pictured,
            **context,
        )

    def ids(self, request: Request) -> Response:
        """The ids of the rows, a line each."""
        address = Compared.of(request.query_params)
        with self.beside(address, self.chosen(address)) as beside:
            found = row_ids(beside, address.wanted)
        headers = {"Content-Disposition": 'attachment; filename="rows.txt"'}
        return StreamingResponse(_lines(found), headers=headers, media_type=EXPORTS["ids"].media_type)

    def _offered(self) -> list[tuple[str, list[SideName]]]:
        """The runs that may be added, by opened directory."""
        found = []
        for opened in self._site.opened.values():
            runs = [SideName(opened.name, thing.path) for thing in survey(opened).found if thing.kind == "run"]
            found.append((opened.name, runs[:MOST_OFFERED]))
        return found


def _state(side: Side) -> Hashable:
    """Changes with the records of a side, and with the rows that its run keeps to."""
    return state_of(side.run), side.source, None if side.only is None else len(side.only)


@contextmanager
def _damage_told() -> Iterator[None]:
    """Numbers and texts in the files of a run that nobody would write there but to see what happens, in one line."""
    try:
        yield
    except DAMAGE as error:
        raise UserError(f"a file of a run is damaged: {told(error)}") from error


def answers(site: Site) -> dict[str, Answer]:
    """What this room answers."""
    room = _Room(site)
    return {"/compare": room.compare, "/compare/row": room.row, "/compare/ids": room.ids}


def _lines(ids: NDArray[np.int64]) -> Iterator[bytes]:
    for start in range(0, len(ids), _LINES):
        yield "".join(f"{row}\n" for row in ids[start : start + _LINES].tolist()).encode("ascii")


def _found(beside: Beside, address: Compared, given: QueryParams) -> dict[str, Any]:
    """What was found, and the rows; a filter that is none leaves the table empty and is told."""
    rows, matched, wrong = Page([], None, None), 0, None
    try:
        after, before = (
            Place.from_text(text) if (text := given.get(name, "")) else None for name in ("after", "before")
        )
        matched = count(beside, address.wanted)
        rows = page(beside, address.wanted, address.size, after=after, before=before)
    except UserError as error:
        wrong = error
    text = address.wanted.filter
    marked = None
    if isinstance(wrong, FilterError):
        marked = (text[: wrong.start], text[wrong.start : wrong.end] or "\u2009", text[wrong.end :])
    numbers = counts(beside)
    return {
        "views": [comparison_view(found) for found in beside.found],
        "rows": [_shown(row, ANSWER_CHARACTERS) for row in rows.rows],
        "previous": rows.previous,
        "next": rows.next,
        "matched": matched,
        "kinds": [(show, _SAID[show], numbers[show]) for show in SHOWS],
        "names": beside.columns.names,
        "wrong_filter": wrong,
        "marked": marked,
    }


def _shown(row: Row, most: int) -> Shown:
    base = row.cells[0]
    first = base.text if base.error is None else None
    return Shown(row, [_answer(cell, first, most) for cell in row.cells])


def _answer(cell: Cell, first: str | None, most: int) -> AnswerView:
    alike = cell.kind and cell.error is None and cell.text is not None
    return answer_view(
        cell.text,
        first if alike else None,
        most=most,
        error=cell.error,
        fate=cell.fate,
        kind=cell.kind,
        change=cell.change,
    )


def _scores(cells: list[Cell]) -> list[tuple[str, list[Any]]]:
    """The task's own columns side by side."""
    names = dict.fromkeys(name for cell in cells for name in cell.scores or {})
    return [(name, [(cell.scores or {}).get(name) for cell in cells]) for name in names]
