"""The columns that a filter may name, and what kind of values they hold."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from proctor.tasks.summaries import quoted

Kind = Literal["text", "number", "yes or no", "time", "other"]

_FLOATING = frozenset({"FLOAT", "DOUBLE"})
_WHOLE = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"})
_UNSIGNED = frozenset({f"U{name}" for name in _WHOLE})
_ALIASES: Mapping[str, tuple[str, int]] = {
    "error.kind": ("error_kind", 1),
    "error.message": ("error_message", 1),
    "latency_ms": ("latency_s", 1000),
}
"""Other names: of which column, and how many of the alias' units are one of the column's."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the records.

    Attributes:
        name: as the Parquet files have it.
        type: DuckDB's type.
        scale: how many of the units that the filter uses are one of the column's (1000 for milliseconds of seconds).
    """

    name: str
    type: str
    scale: int = 1

    @property
    def kind(self) -> Kind:
        """What its values are to the language."""
        if self.type in ("VARCHAR", "JSON") or self.type.startswith("ENUM"):
            return "text"
        if self.type in _FLOATING | _WHOLE | _UNSIGNED or self.type.startswith("DECIMAL"):
            return "number"
        if self.type == "BOOLEAN":
            return "yes or no"
        return "time" if self.type == "DATE" or self.type.startswith("TIMESTAMP") else "other"

    @property
    def floating(self) -> bool:
        """Whether a number in it may be none (NaN)."""
        return self.type in _FLOATING

    @property
    def sql(self) -> str:
        """It in SQL, in the column's own unit."""
        return quoted(self.name)


class Columns:
    """All columns of a run's records, by the names that a filter may use.

    Args:
        types: DuckDB's type of each column, by name, in order.
    """

    def __init__(self, types: Mapping[str, str]) -> None:
        self.own = {name: Column(name, kind) for name, kind in types.items()}
        self._all = dict(self.own)
        for alias, (name, scale) in _ALIASES.items():
            if name in types and alias not in types and (scale == 1 or self.own[name].kind == "number"):
                self._all[alias] = Column(name, types[name], scale)

    @property
    def names(self) -> list[str]:
        """All names, other names of the same column at the end."""
        return list(self._all)

    def get(self, name: str) -> Column | None:
        """The column of that name."""
        return self._all.get(name)

    def nearest(self, name: str) -> str | None:
        """The known name that `name` may have been meant to be."""
        folded = {known.casefold(): known for known in self._all}
        close = difflib.get_close_matches(name[:200].casefold(), folded, n=1, cutoff=0.5)
        return folded[close[0]] if close else None
