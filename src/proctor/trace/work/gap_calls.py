"""Calls and ranges of the CPU that overlap some spans of time, found in one pass over each view."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence, Set
from typing import TYPE_CHECKING, NamedTuple, Protocol

from proctor.trace.model import pid_of
from proctor.trace.nvtx.paths import plain
from proctor.trace.views import PUSH_POP, START_END
from proctor.trace.work.api_names import Api, kind_of_call
from proctor.trace.work.intervals import merged

if TYPE_CHECKING:
    from proctor.trace.trace import Trace

_FOREVER = (1 << 62) - 1
_NAMES = {"calls": ("v.name", "NULL"), "os_calls": ("v.name", "NULL"), "annotations": ("v.text_id", "v.text")}


class _Span(Protocol):
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def processes(self) -> Set[int]: ...


class Call(NamedTuple):
    """An API call."""

    start: int
    end: int
    thread: int
    name: str


class Overlap(NamedTuple):
    """Calls (or ranges, without what PyTorch appends to their names) of one name and thread that overlap a span; ns."""

    name: str
    kind: Api
    thread: int
    pid: int
    start: int
    """Of the first, wherever it began."""
    end: int
    """Of the first."""
    times: int
    length: int
    """How much of the span they cover: a union."""


def launching_calls(trace: Trace, wanted: Set[tuple[int, int]]) -> dict[tuple[int, int], Call]:
    """The API call of each (process, correlation); those the trace does not have are left out."""
    if not wanted:
        return {}
    trace.run("DROP TABLE IF EXISTS temp.wanted_calls")
    trace.run(
        "CREATE TEMP TABLE wanted_calls (process INTEGER, correlation INTEGER, PRIMARY KEY (process, correlation))"
        " WITHOUT ROWID"
    )
    trace.connection.executemany("INSERT INTO wanted_calls VALUES (?, ?)", sorted(wanted))
    sql = """SELECT v.process, v.correlation, v.start, v."end", v.thread, v.name FROM calls v CROSS JOIN wanted_calls w
        ON w.process = v.process AND w.correlation = v.correlation ORDER BY v.start DESC"""
    rows = list(trace.rows(sql))
    trace.run("DROP TABLE temp.wanted_calls")
    texts = trace.text(row[5] for row in rows)
    return {
        (process, correlation): Call(start, end, thread, texts[name])
        for process, correlation, start, end, thread, name in rows
    }


def overlapping(trace: Trace, view: str, spans: Sequence[_Span]) -> list[list[Overlap]]:
    """For each span, what of `view` overlaps it in its processes, by name and thread, in order of their starts.

    Args:
        trace: an open trace.
        view: `calls`, `os_calls` or `annotations` (of which ranges count; one without an end is open to the end).
        spans: times; they may overlap.
    """
    if not spans or not trace.has(view):
        return [[] for _ in spans]
    found: list[dict[tuple[int | str | None, int], _Seen]] = [{} for _ in spans]
    order = sorted(range(len(spans)), key=lambda number: spans[number].start)
    starts = [spans[number].start for number in order]
    reach: list[int] = []
    farthest = 0
    for number in order:
        farthest = max(farthest, spans[number].end)
        reach.append(farthest)
    for start, end, thread, process, name, text in _rows(trace, view, spans):
        at = bisect.bisect_left(starts, end) - 1
        while at >= 0 and reach[at] > start:
            span, seen = spans[order[at]], found[order[at]]
            if span.end > start and process in span.processes:
                key = (name if text is None else text, thread)
                if key not in seen:
                    seen[key] = _Seen(start, end)
                seen[key].add(max(start, span.start), min(end, span.end))
            at -= 1
    texts = trace.text({key for each in found for key, _ in each if isinstance(key, int)})
    return [_overlaps(each, texts, calls=view == "calls") for each in found]


class _Seen:
    def __init__(self, start: int, end: int) -> None:
        self.first = (start, end)
        self.count = 0
        self.parts: list[tuple[int, int]] = []

    def add(self, start: int, end: int) -> None:
        self.count += 1
        self.parts.append((start, end))
        if len(self.parts) > 1000:  # a busy loop of calls within one gap must not take memory for each
            self.parts = list(merged(sorted(self.parts)))


def _overlaps(seen: dict[tuple[int | str | None, int], _Seen], texts: dict[int, str], *, calls: bool) -> list[Overlap]:
    made = []
    for (key, thread), each in seen.items():
        name = plain(texts[key] if isinstance(key, int) else str(key))
        covered = sum(end - start for start, end in merged(sorted(each.parts)))
        kind = kind_of_call(name) if calls else Api.OTHER
        made.append(Overlap(name, kind, thread, pid_of(thread), *each.first, each.count, covered))
    return sorted(made, key=lambda each: (each.start, each.name))


def _rows(
    trace: Trace, view: str, spans: Iterable[_Span]
) -> Iterable[tuple[int, int, int, int, int | None, str | None]]:
    """Rows that overlap at least one span: looked up in the union of the spans, of which there are few."""
    name, text = _NAMES[view]
    trace.run("DROP TABLE IF EXISTS temp.gap_spans")
    trace.run("CREATE TEMP TABLE gap_spans (ends INTEGER PRIMARY KEY, starts INTEGER)")
    union = [(end, start) for start, end in merged(sorted((span.start, span.end) for span in spans))]
    trace.connection.executemany("INSERT INTO gap_spans VALUES (?, ?)", union)
    where = f"v.kind IN ({PUSH_POP}, {START_END})" if view == "annotations" else "1"
    sql = f"""SELECT v.start, ifnull(v."end", {_FOREVER}), v.thread, v.process, {name}, {text} FROM {view} v
        WHERE {where} AND (SELECT g.starts FROM gap_spans g WHERE g.ends > v.start ORDER BY g.ends LIMIT 1)
            < ifnull(v."end", {_FOREVER})"""
    yield from trace.rows(sql)
    trace.run("DROP TABLE temp.gap_spans")
