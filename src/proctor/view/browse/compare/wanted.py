"""Which rows of several sides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from proctor.tasks.summaries import quoted
from proctor.view.browse.compare.beside import Beside
from proctor.view.browse.compare.board import RANKS
from proctor.view.browse.compare.columns import LETTERS, sides_named
from proctor.view.browse.filters import Condition, compile_filter, parse

Show = Literal["changed", "all", "absent", "regression", "improvement", "different", "missing", "same"]
SHOWS: tuple[Show, ...] = ("changed", "regression", "improvement", "different", "missing", "same", "absent", "all")
"""Which rows: a rank, all but those that are the same, those that a side has no record of, or all."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows: in the filter language over the columns of all sides (see `columns`), and of which kind."""

    show: Show = "changed"
    filter: str = ""

    def condition(self, beside: Beside) -> Condition:
        """What its rows meet, in SQL.

        Raises:
            FilterError: the filter is none.
        """
        found = compile_filter(parse(self.filter), beside.columns)
        if self.show in RANKS:
            return Condition(f"({found.sql}) and rank = {RANKS.index(self.show)}", found.parameters)
        shown = {"changed": f"rank < {RANKS.index('same')}", "absent": "absent", "all": "true"}[self.show]
        return Condition(f"({found.sql}) and {shown}", found.parameters)


def rows_of(beside: Beside, condition: Condition) -> str:
    """The board, with the records of the sides that a condition names, as SQL that stands behind ``from``."""
    kinds = " ".join(f"when {rank} then '{name}'" for rank, name in enumerate(RANKS))
    joined = f"(select *, row as row_id, case rank {kinds} end as kind from board) board"
    for at in sides_named(condition.sql):
        if at < len(beside.sides):
            letter = LETTERS[at]
            names = ", ".join(f"{quoted(name)} as {quoted(f'{letter}.{name}')}" for name in beside.types[at])
            joined += f' left join (select {names} from rec{at}) {letter} on board.r{at} = "{letter}.row_id"'
    return joined
