"""Launches counted by kernel and stream: the rows from which every census is made.

Few launches are grouped by SQLite. Many are counted in one pass that leaves the grouping to Python
(`proctor.trace.work.census_pass`); only where the file does not fit that pass, or launches are counted by NVTX range,
does SQLite group many rows, with durations in buckets.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from proctor.trace.nvtx.innermost import RANGE_OF_LAUNCH, innermost
from proctor.trace.work.busy import DEVICE, STREAM, Key, busy_by, busy_in_any_order, known
from proctor.trace.work.census_pass import Counts, Numbered, Times, chunks, layout_of
from proctor.trace.work.quantiles import Histogram, bucket_sql
from proctor.trace.work.scope import WHOLE, Scope

if TYPE_CHECKING:
    from proctor.trace.trace import Trace

EXACT_ROWS = 200_000
"""Up to so many rows SQLite groups them, by every distinct duration."""
NO_CALL = -1
"""Stands for the NVTX path of a launch whose API call the trace does not have."""


class Tallied(NamedTuple):
    """Launches of one kernel, on one stream if streams are told apart. Times are nanoseconds."""

    name: int
    """Id of the demangled name; -1 where the trace has none."""
    durations: Histogram
    place: Key | None = None
    """(process, device, context, stream); None: on any."""
    first: int | None = None
    """Earliest start; None: not asked for."""
    last: int | None = None
    """Latest end; None: not asked for."""
    path: int | None = None
    """NVTX path of the launches, if asked for: 0 outside of all ranges, `NO_CALL` where the trace has no such call."""


class Counted(NamedTuple):
    """What was counted, with busy time in ns of streams and devices; None: not asked for."""

    rows: Sequence[Tallied]
    launches: int
    """Rows looked at, with those that end before they start and are in no other figure."""
    streams: dict[Key, int] | None = None
    devices: dict[Key, int] | None = None


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


def counted_by_name(trace: Trace, scope: Scope = WHOLE) -> Counted:
    """Counts the kernels within `scope` by their names alone: the cheap pass, with every duration.

    Raises:
        UserError: the file is damaged.
    """
    layout = layout_of(trace)
    counts, launches = Counts(layout), 0
    try:
        for chunk in chunks(trace, layout, scope, starts=False):
            counts.add(chunk.keys)
            launches += chunk.launches
        groups = counts.groups()
    except ValueError:  # the id of a name is beyond what a number can hold with a duration
        return _by_sqlite(trace, scope)
    return Counted([Tallied(name, durations) for name, durations in groups.items()], launches)


def counted(trace: Trace, scope: Scope = WHOLE, *, ranges: bool = False) -> Counted:
    """Counts the kernels within `scope` by name and stream, and measures busy time; with `ranges` by NVTX range too.

    Raises:
        UserError: the file is damaged.
    """
    if not ranges and more_than(trace, EXACT_ROWS, scope):
        sql = f"SELECT DISTINCT {', '.join(known(STREAM))} FROM kernels v WHERE {scope.sql}"
        places = [tuple(place) for place in trace.rows(sql, scope.parameters)]
        if all(isinstance(number, int) for place in places for number in place):  # a made-up file may hold anything
            with contextlib.suppress(ValueError):  # as above
                return _in_one_pass(trace, _numbered(places), scope)
    return _by_sqlite(trace, scope, ranges=ranges)


def more_than(trace: Trace, rows: int, scope: Scope = WHOLE) -> bool:
    """Whether there are more launches than `rows` within `scope`; no more of them are read than that takes."""
    sql = f"SELECT count(*) FROM (SELECT 1 FROM kernels v WHERE {scope.sql} LIMIT {rows + 1})"
    return bool(trace.one(sql, scope.parameters) > rows)


def _by_sqlite(trace: Trace, scope: Scope, *, ranges: bool = False) -> Counted:
    if ranges:
        innermost(trace)
    rows = list(_grouped(trace, scope, exact=not more_than(trace, EXACT_ROWS, scope), ranges=ranges))
    launches = trace.one(f"SELECT count(*) FROM kernels v WHERE {scope.sql}", scope.parameters)
    streams = busy_by(trace, "kernels", STREAM, scope)
    devices = {place[: len(DEVICE)]: busy for place, busy in streams.items()}
    if len(devices) < len(streams):  # a device with a single stream is as busy as that stream
        devices = busy_by(trace, "kernels", DEVICE, scope)
    return Counted(rows, launches, streams, devices)


def _in_one_pass(trace: Trace, numbered: Numbered, scope: Scope) -> Counted:
    layout = layout_of(trace, numbered)
    counts, times, launches = Counts(layout), Times(layout, len(DEVICE)), 0
    for chunk in chunks(trace, layout, scope, starts=True):
        counts.add(chunk.keys)
        times.add(chunk)
        launches += chunk.launches
    rows: list[Tallied] = []
    ran: Counter[Key] = Counter()
    for group, durations in counts.groups().items():
        (name, number), seen = layout.kernel(group), times.seen[group]
        place = numbered.places[number]
        rows.append(Tallied(name, durations, place, seen.first, seen.last))
        ran[place] += durations.total
        ran[place[: len(DEVICE)]] += durations.total
    if not times.ordered:
        streams, devices = (busy_in_any_order(trace, "kernels", columns, scope) for columns in (STREAM, DEVICE))
        return Counted(rows, launches, streams, devices)
    streams, devices = (
        {key: ran[key] - lane.overlap for key, lane in lanes.items()} for lanes in (times.streams, times.devices)
    )
    return Counted(rows, launches, streams, devices)


def _source(scope: Scope, *, ranges: bool) -> str:
    place = ", ".join(f"{sql} AS {name}" for sql, name in zip(known(STREAM), STREAM, strict=True))
    join = f"LEFT JOIN {RANGE_OF_LAUNCH} r ON r.process = v.process AND r.correlation = v.correlation" if ranges else ""
    return f"""(SELECT ifnull(v.name, -1) AS name, v."end" - v.start AS duration, v.start AS start, v."end" AS ends,
        {place}{", r.path AS path" if ranges else ""} FROM kernels v {join}
        WHERE v."end" >= v.start AND {scope.sql})"""


def _grouped(trace: Trace, scope: Scope, *, exact: bool, ranges: bool) -> Iterator[Tallied]:
    columns = ", ".join(STREAM)
    way = f"ifnull(path, {NO_CALL})" if ranges else "NULL"
    bucket = "duration" if exact else bucket_sql("duration")
    sql = f"""SELECT name, {columns}, {way} AS way, {bucket} AS bucket, count(*), sum(duration), min(duration),
        max(duration), min(start), max(ends) FROM {_source(scope, ranges=ranges)}
        GROUP BY name, {columns}, way, bucket ORDER BY name, {columns}, way"""
    width = len(STREAM) + 2
    for (name, *place, path), rows in groupby(trace.rows(sql, scope.parameters), lambda row: row[:width]):
        durations = Histogram()
        starts, ends = [], []
        for number, count, total, least, most, start, end in (row[width:] for row in rows):
            if exact:
                durations.add(number, count)
            else:
                durations.add_bucket(number, count, total, least, most)
            starts.append(start)
            ends.append(end)
        yield Tallied(name, durations, tuple(place), min(starts), max(ends), path)


def _numbered(places: Sequence[Key]) -> Numbered:
    """A perfect hash of the streams.

    Since the streams are known, factors are tried until no two fall together; the expression costs a few steps a row.
    """
    varying = [position for position in range(len(STREAM)) if len({place[position] for place in places}) > 1]
    if not varying:
        return Numbered("0", {0: places[0]} if places else {}, 0)
    columns = known(STREAM)
    chance = random.Random(0)  # noqa: S311 (any factors do, and the same ones are wanted every time)
    bits = len(places).bit_length()
    while True:
        mask = (1 << bits) - 1
        for _ in range(200):
            factors = {position: chance.randrange(1, 1 << 20, 2) for position in varying}
            numbers = {
                sum(_folded(p, place[p]) * factor for p, factor in factors.items()) >> 8 & mask: place
                for place in places
            }
            if len(numbers) == len(places):
                terms = (f"({_folded_sql(p, columns[p])}) * {factor}" for p, factor in factors.items())
                return Numbered(f"((({' + '.join(terms)}) >> 8) & {mask})", numbers, bits)
        bits += 1


_FOLD = (1 << 32) - 1


def _folded(position: int, value: int) -> int:
    """`value` in 32 bits; of a ``globalPid``, which is the first column of a place, the process's number counts."""
    return (value >> 24 if position == 0 else value) & _FOLD


def _folded_sql(position: int, column: str) -> str:
    return f"({column} >> 24) & {_FOLD}" if position == 0 else f"{column} & {_FOLD}"
