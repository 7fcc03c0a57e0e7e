"""One pass over all kernels: counts by name, stream and bucket of duration, from which every census is made.

SQLite's GROUP BY sorts the rows, since the file has no index and gets none. An upsert into a table whose row id is
``name | stream | bucket`` does not: each row changes one small record in place. That is what makes a census of millions
of launches cheap (`benchmarks/traces.py`). With few rows the plain GROUP BY is used, and every duration is a bucket of
its own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from proctor.trace.nvtx.innermost import RANGE_OF_LAUNCH, innermost
from proctor.trace.work.busy import STREAM, Key, known
from proctor.trace.work.quantiles import BUCKET_BITS, bucket_sql
from proctor.trace.work.scope import WHOLE, Scope

if TYPE_CHECKING:
    from proctor.trace.trace import Trace

EXACT_ROWS = 200_000
"""Up to so many rows every distinct duration is counted by itself, and all quantiles are exact."""
NO_CALL = -1
"""Stands for the NVTX path of a launch whose API call the trace does not have."""
_FIGURES = "calls, total, least, most, first, last, row"


class Tallied(NamedTuple):
    """Launches of one kernel on one stream with durations of one bucket. Times are nanoseconds."""

    name: int
    """Id of the demangled name."""
    place: Key
    """(process, device, context, stream)."""
    bucket: int
    calls: int
    total: int
    least: int
    most: int
    first: int
    """Earliest start."""
    last: int
    """Latest end."""
    row: int
    """``kernels.id`` of one of them."""
    path: int | None
    """NVTX path of the launches, if asked for: 0 outside of all ranges, `NO_CALL` where the trace has no such call."""


class Total(msgspec.Struct, frozen=True):
    """All launches of one kernel: how many, how long in sum, the shortest and the longest, ns."""

    calls: int
    total: int
    least: int
    most: int

    @property
    def mean(self) -> float:
        """The mean duration, ns."""
        return self.total / self.calls


def totals(trace: Trace, scope: Scope = WHOLE) -> dict[int, Total]:
    """Calls and time of each kernel by the id of its demangled name: the cheapest census, one pass and four figures.

    Raises:
        UserError: the file is damaged.
    """
    trace.run("DROP TABLE IF EXISTS temp.totals")
    trace.run("CREATE TEMP TABLE totals (name INTEGER PRIMARY KEY, calls, total, least, most)")
    trace.run(
        f"""INSERT INTO totals SELECT v.name, 1, v."end" - v.start, v."end" - v.start, v."end" - v.start
        FROM kernels v WHERE v."end" >= v.start AND v.name IS NOT NULL AND {scope.sql}
        ON CONFLICT (name) DO UPDATE SET calls = calls + 1, total = total + excluded.total, {_EXTREMES}""",
        scope.parameters,
    )
    found = {name: Total(*figures) for name, *figures in trace.rows("SELECT * FROM totals")}
    trace.run("DROP TABLE temp.totals")
    return found


_EXTREMES = """least = CASE WHEN excluded.total < least THEN excluded.total ELSE least END,
    most = CASE WHEN excluded.total > most THEN excluded.total ELSE most END"""


def counted_rows(
    trace: Trace, places: Sequence[Key], scope: Scope = WHOLE, *, ranges: bool = False
) -> Iterator[Tallied]:
    """Counts the kernels within `scope`.

    Args:
        trace: an open trace.
        places: every stream that has kernels, as from `proctor.trace.work.busy.busy_by`.
        scope: which launches are counted.
        ranges: tell launches in different NVTX ranges apart.

    Raises:
        UserError: the file is damaged.
    """
    few = trace.one(f"SELECT count(*) FROM kernels v WHERE {scope.sql}", scope.parameters) <= EXACT_ROWS
    if ranges:
        innermost(trace)
    if few or ranges:
        return _grouped(trace, scope, "duration" if few else bucket_sql("duration"), ranges=ranges)
    return _upserted(trace, places, scope)


def _source(scope: Scope, *, ranges: bool) -> str:
    place = ", ".join(f"{sql} AS {name}" for sql, name in zip(known(STREAM), STREAM, strict=True))
    join = f"LEFT JOIN {RANGE_OF_LAUNCH} r ON r.process = v.process AND r.correlation = v.correlation" if ranges else ""
    return f"""(SELECT ifnull(v.name, -1) AS name, v."end" - v.start AS duration, v.start AS start, v."end" AS ends,
        v.id AS row, {place}{", r.path AS path" if ranges else ""} FROM kernels v {join}
        WHERE v."end" >= v.start AND {scope.sql})"""


def _grouped(trace: Trace, scope: Scope, bucket: str, *, ranges: bool) -> Iterator[Tallied]:
    columns = ", ".join(STREAM)
    way = f"ifnull(path, {NO_CALL})" if ranges else "NULL"
    sql = f"""SELECT name, {columns}, {bucket} AS bucket, {way} AS way, count(*), sum(duration), min(duration),
        max(duration), min(start), max(ends), min(row) FROM {_source(scope, ranges=ranges)}
        GROUP BY name, {columns}, bucket, way"""
    for name, process, device, context, stream, number, way, *figures in trace.rows(sql, scope.parameters):
        yield Tallied._make((name, (process, device, context, stream), number, *figures, way))


def _upserted(trace: Trace, places: Sequence[Key], scope: Scope) -> Iterator[Tallied]:
    number, by_number, bits = _numbered(places)
    shift = BUCKET_BITS + bits
    trace.run("DROP TABLE IF EXISTS temp.counts")
    trace.run(f"CREATE TEMP TABLE counts (key INTEGER PRIMARY KEY, {_FIGURES})")
    trace.run(
        f"""INSERT INTO counts SELECT (name << {shift}) | (({number}) << {BUCKET_BITS}) | {bucket_sql("duration")},
            1, duration, duration, duration, start, ends, row
        FROM {_source(scope, ranges=False)} WHERE true
        ON CONFLICT (key) DO UPDATE SET calls = calls + 1, total = total + excluded.total, {_EXTREMES},
            first = CASE WHEN excluded.first < first THEN excluded.first ELSE first END,
            last = CASE WHEN excluded.last > last THEN excluded.last ELSE last END""",
        scope.parameters,
    )
    for key, *figures in trace.rows(f"SELECT key, {_FIGURES} FROM counts"):
        place = by_number[(key >> BUCKET_BITS) & ((1 << bits) - 1)]
        yield Tallied._make((key >> shift, place, key & ((1 << BUCKET_BITS) - 1), *figures, None))
    trace.run("DROP TABLE temp.counts")


def _numbered(places: Sequence[Key]) -> tuple[str, dict[int, Key], int]:
    """A perfect hash of the streams: an SQL expression that numbers them, the streams by number, bits of a number.

    Since the streams are known, factors are tried until no two fall together; the expression costs a few steps a row.
    """
    varying = [position for position in range(len(STREAM)) if len({place[position] for place in places}) > 1]
    if not varying:
        return "0", {0: places[0]} if places else {}, 0
    chance = random.Random(0)  # noqa: S311 (any factors do, and the same ones are wanted every time)
    bits = len(places).bit_length()
    while True:
        for _ in range(200):
            factors = [chance.randrange(1, 1 << 20, 2) for _ in varying]
            mask = (1 << bits) - 1
            numbers = {
                sum(_folded(place[p]) * f for p, f in zip(varying, factors, strict=True)) >> 8 & mask: place
                for place in places
            }
            if len(numbers) == len(places):
                terms = (
                    f"(({STREAM[p]} + ({STREAM[p]} >> 24)) & {_FOLD}) * {f}"
                    for p, f in zip(varying, factors, strict=True)
                )
                return f"(({' + '.join(terms)}) >> 8) & {mask}", numbers, bits
        bits += 1


_FOLD = (1 << 32) - 1


def _folded(value: int) -> int:
    return (value + (value >> 24)) & _FOLD
