"""The columns that a filter over several sides may name: those of each side behind its letter, as in ``b.exact``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proctor.view.browse.filters import Column, Columns

LETTERS = "abcd"
_OWN = {"kind": "VARCHAR", "row_id": "BIGINT", "sample_id": "VARCHAR"}


class SideColumns(Columns):
    """All columns of all sides.

    Args:
        types: for each side DuckDB's type of each column of its records, by name.
    """

    def __init__(self, types: Sequence[Mapping[str, str]]) -> None:
        super().__init__(_OWN)
        for letter, of_side in zip(LETTERS, types, strict=False):
            side = Columns(of_side)
            known = [(name, column) for name in side.names if (column := side.get(name)) is not None]
            named = {f"{letter}.{name}": Column(f"{letter}.{c.name}", c.type, c.scale) for name, c in known}
            self.own |= {name: column for name, column in named.items() if name == column.name}
            self._all |= named


def sides_named(sql: str) -> list[int]:
    """The places of the sides whose columns a condition may name; rather one too many."""
    return [at for at, letter in enumerate(LETTERS) if f'"{letter}.' in sql]
