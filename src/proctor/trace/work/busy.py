"""Busy time by stream and by device: unions of intervals, worked out while SQLite reads the rows once.

Rows that come in order of their starts need no sorting: for each stream (or device) SQLite keeps how far its work
reaches, and a row adds what lies beyond. It also notices rows that come too early; then, and only then, they are read
again in order of time. Exports before Nsight Systems 2025.6 are in order; later ones need not be (its release notes).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from proctor.trace.timeline.order import Query, in_order
from proctor.trace.work.scope import WHOLE, Scope

if TYPE_CHECKING:
    from proctor.trace.trace import Trace

STREAM = ("process", "device", "context", "stream")
"""What tells streams apart: stream 7 exists on every device, and in every process."""
DEVICE = ("process", "device")
"""What tells devices apart: every process numbers its own."""
UNKNOWN = -1
"""Stands in a key for a column that the trace does not have."""

Key = tuple[int, ...]
_FACTORS = ((1, 1_000_003, 10_007, 1), (1, 7_368_787, 15_485_863, 32_452_843), (3, 49_979_687, 86_028_121, 999_983))
_BITS, _PROCESS_BITS = (1 << 32) - 1, (1 << 48) - 1
_EARLY, _CLASH = 1, 2
"""What can go amiss in one pass: a row that starts before the one ahead of it; two keys with one number."""


class Union:
    """Busy time of intervals given one by one in order of their starts."""

    __slots__ = ("busy", "reach")

    def __init__(self) -> None:
        self.busy = 0
        self.reach: int | None = None

    def add(self, start: int, end: int) -> None:
        """Adds an interval; what others cover already counts once."""
        begin = start if self.reach is None else max(start, self.reach)
        if end > begin:
            self.busy += end - begin
            self.reach = end


def busy_by(trace: Trace, view: str, columns: Sequence[str] = STREAM, scope: Scope = WHOLE) -> dict[Key, int]:
    """Nanoseconds in which at least one row of `view` ran, for each distinct value of `columns`.

    Args:
        trace: an open trace.
        view: `kernels`, `copies`, `memsets` or `graphs`.
        columns: `STREAM` or `DEVICE`. A column the trace does not have is `UNKNOWN` in the key.
        scope: which rows count.

    Raises:
        UserError: the file is damaged.
    """
    for factors in _FACTORS:
        rows = _upserted(trace, view, columns, scope, factors)
        amiss = {flags for _, flags, *_ in rows}
        if amiss <= {0}:
            return {tuple(key): busy for busy, _, *key in rows}
        if amiss & {_EARLY, _EARLY | _CLASH}:
            break
    return busy_in_any_order(trace, view, columns, scope)


def known(columns: Sequence[str]) -> list[str]:
    """`columns` of a view with the alias ``v`` as SQL, with `UNKNOWN` for NULL."""
    return [f"ifnull(v.{column}, {UNKNOWN})" for column in columns]


def _upserted(
    trace: Trace, view: str, columns: Sequence[str], scope: Scope, factors: Sequence[int]
) -> list[tuple[int, ...]]:
    """One pass in the order of the file: (busy, `_EARLY` or `_CLASH` where it went amiss, *key)."""
    number = " + ".join(
        f"({name} & {_PROCESS_BITS if name == 'process' else _BITS}) * {factor}"
        for name, factor in zip(columns, factors, strict=False)
    )
    clash = " OR ".join(f"excluded.{name} <> {name}" for name in columns)
    selected = ", ".join(f"{sql} AS {name}" for sql, name in zip(known(columns), columns, strict=True))
    names = ", ".join(columns)
    trace.run("DROP TABLE IF EXISTS temp.busy_time")
    trace.run(f"CREATE TEMP TABLE busy_time (number INTEGER PRIMARY KEY, reach, busy, last, amiss, {names})")
    trace.run(
        f"""INSERT INTO busy_time SELECT {number}, ends, ends - start, start, 0, {names}
        FROM (SELECT v.start AS start, v."end" AS ends, {selected} FROM {view} v
              WHERE v."end" >= v.start AND {scope.sql})
        WHERE true
        ON CONFLICT (number) DO UPDATE SET
            busy = busy + CASE WHEN excluded.last >= reach THEN excluded.busy
                WHEN excluded.reach > reach THEN excluded.reach - reach ELSE 0 END,
            reach = CASE WHEN excluded.reach > reach THEN excluded.reach ELSE reach END,
            amiss = amiss | (excluded.last < last) | 2 * ({clash}),
            last = excluded.last""",
        scope.parameters,
    )
    rows = list(trace.rows(f"SELECT busy, amiss, {names} FROM busy_time"))
    trace.run("DROP TABLE temp.busy_time")
    return rows


def busy_in_any_order(trace: Trace, view: str, columns: Sequence[str] = STREAM, scope: Scope = WHOLE) -> dict[Key, int]:
    """`busy_by` for rows that are known not to be in order of time."""
    unions: dict[Key, Union] = {}
    for start, end, *key in rows_in_order(trace, view, known(columns), scope):
        place = tuple(key)
        if place not in unions:
            unions[place] = Union()
        unions[place].add(start, end)
    return {key: union.busy for key, union in unions.items()}


def rows_in_order(trace: Trace, view: str, columns: Sequence[str], scope: Scope = WHOLE) -> Iterator[tuple[int, ...]]:
    """(start, end, *columns) of what ran in `scope`, by start, in bounded memory; rows without times are left out."""
    parameters: Mapping[str, object] = dict(scope.parameters)
    where = f'v."end" >= v.start AND {scope.sql}'
    return in_order(trace, Query(view, ("v.start", 'v."end"', *columns), where=where, parameters=parameters))
