"""Two to four sides beside each other, kept open: what was found, and their rows to page through."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from proctor.paired.comparing import Wish, check_alike, compared
from proctor.paired.model import Comparison
from proctor.paired.sides import Side, distinct
from proctor.paired.workbench import Workbench, workbench
from proctor.results.parts import parts_of
from proctor.rows import UserError
from proctor.rows.text import line_of
from proctor.view.browse.compare.board import lay_board, lay_one
from proctor.view.browse.compare.columns import SideColumns

MOST_SIDES = 4
_MEMORY, _THREADS = "300MB", 2


@dataclass(frozen=True, slots=True)
class Beside:
    """Sides beside each other. It may be used by several threads: one query at a time.

    Attributes:
        sides: the first is the one that the others are compared with.
        found: what was found of each other side.
        columns: what a filter may name.
        types: for each side DuckDB's type of each column of its records.
        by_sample: whether rows are paired by sample id.
    """

    bench: Workbench
    sides: list[Side]
    found: list[Comparison]
    columns: SideColumns
    types: list[dict[str, str]]
    by_sample: bool
    lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of a query.

        Raises:
            UserError: the database cannot answer: a file changed under it, or memory does not suffice.
        """
        with self.lock, _told():
            return self.bench.ask(sql, *parameters)

    def numbers(self, sql: str, parameters: Sequence[Any] = ()) -> NDArray[np.int64]:
        """The only column of a query, whole numbers.

        Raises:
            UserError: as `ask`.
        """
        with self.lock, _told():
            (column,) = self.bench.connection.execute(sql, list(parameters)).fetchnumpy().values()
        return np.asarray(column, dtype=np.int64)


@contextmanager
def put_beside(sides: Sequence[Side], wish: Wish) -> Iterator[Beside]:
    """Compares the first side with each other, and keeps their rows while the block runs.

    Raises:
        UserError: there are not two to four different sides, they do not belong to the same source or task, or their
            records cannot be read.
        OSError: storage failed.
    """
    if not 2 <= len(sides) <= MOST_SIDES:
        raise UserError(f"two to {MOST_SIDES} sides are compared, not {len(sides)}")
    named = distinct(list(sides))
    for other in named[1:]:
        check_alike(named[0], other, wish)
    with workbench(_MEMORY, _THREADS) as bench:
        with _told():
            made = _made(bench, named, wish)
        yield made


def _made(bench: Workbench, sides: list[Side], wish: Wish) -> Beside:
    _shut(bench, sides)
    by_sample = wish.by == "sample-id"
    types = [bench.lay(side, f"rec{place}") for place, side in enumerate(sides)]
    found = []
    for place, other in enumerate(sides[1:], 1):
        found.append(compared(bench, sides[0], other, wish))
        lay_one(bench, place, by_sample=by_sample)
    lay_board(bench, len(sides) - 1)
    return Beside(bench, sides, found, SideColumns(types), types, by_sample)


@contextmanager
def _told() -> Iterator[None]:
    """What the database cannot do, be it for want of memory or for what somebody has written into the records, is told
    in one line."""
    try:
        yield
    except duckdb.Error as error:
        first = (str(error).splitlines() or [""])[0]
        raise UserError(f"the records cannot be read: {line_of(first)}") from error


def _shut(bench: Workbench, sides: Sequence[Side]) -> None:
    """From here on the database reads nothing but the parts of these sides."""
    paths = [path for s in sides for path in s.run.results.local_copies(parts_of(s.run.results, s.checkpoint))]
    folders = [str(folder).replace("'", "''") for folder in sorted({path.parent for path in paths})]
    listed = ", ".join(f"'{folder}'" for folder in folders)
    bench.connection.execute(f"set allowed_directories = [{listed}]")
    bench.connection.execute("set enable_external_access = false")
