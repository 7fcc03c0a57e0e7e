"""What belongs to one event of a timeline, and where to find a piece of work that only has a name."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from proctor.trace.diff.reading import copy_name
from proctor.trace.names import normalise
from proctor.trace.timeline.events import ON_GPU, Event, Kind
from proctor.trace.views import PUSH_POP, START_END

if TYPE_CHECKING:
    from proctor.trace.trace import Trace

_MOST = 20
_VIEWS = {Kind.KERNEL: "kernels", Kind.COPY: "copies", Kind.MEMSET: "memsets", Kind.GRAPH: "graphs"}
_ASKED_FOR = {**_VIEWS, Kind.SYNC: "syncs"}
"""What a call of the CUDA API asks a GPU for."""


class Key(NamedTuple):
    """Names an event within a trace: its kind, and the id of its row."""

    kind: Kind
    id: int


def counterparts(trace: Trace, event: Event) -> list[Key]:
    """For work on a GPU the calls that asked for it, for a call the work; at most 20.

    They share the correlation id *and* the process.
    """
    if event.correlation is None or event.process is None:
        return []
    views = {Kind.CALL: "calls"} if event.kind in ON_GPU else _ASKED_FOR if event.kind is Kind.CALL else {}
    found: list[Key] = []
    for kind, view in views.items():
        sql = f"SELECT id FROM {view} WHERE correlation = ? AND process = ? LIMIT {_MOST}"
        found += [Key(kind, number) for (number,) in trace.rows(sql, (event.correlation, event.process))]
    return found[:_MOST]


def ranges_around(trace: Trace, thread: int, moment: int) -> list[int]:
    """Ids of the ranges of a thread that were open at a time of the trace's clock, the outermost first; at most 20."""
    sql = (
        f"SELECT id FROM annotations WHERE thread = :thread AND kind IN ({PUSH_POP}, {START_END}) "
        f'AND start <= :at AND ("end" IS NULL OR "end" > :at) ORDER BY start, "end" DESC LIMIT {_MOST}'
    )
    return [number for (number,) in trace.rows(sql, {"thread": thread, "at": moment})]


def longest_of(trace: Trace, kind: Kind, name: str) -> Key | None:
    """The longest launch of what a diff or a census calls `name`; None where the trace has none.

    Args:
        trace: the trace.
        kind: kernel, copy, memset or graph.
        name: a kernel's demangled name or its normal form; a copy's direction and memory; of other kinds, anything.
    """
    view = _VIEWS.get(kind)
    if view is None:
        return None
    which = _which(trace, kind, name)
    if which is None:
        return None
    where, values = which
    sql = f'SELECT id FROM {view} WHERE {where} AND "end" IS NOT NULL ORDER BY "end" - start DESC, start LIMIT 1'
    number = trace.one(sql, values)
    return None if number is None else Key(kind, number)


def _which(trace: Trace, kind: Kind, name: str) -> tuple[str, list[object]] | None:
    """A condition on the view, and its parameters."""
    if kind is Kind.KERNEL:
        ids = [number for (number,) in trace.rows("SELECT DISTINCT COALESCE(name, short) FROM kernels") if number]
        wanted = normalise(name)
        fits = sorted(number for number, text in trace.text(ids).items() if wanted in (text, normalise(text)))
        return (f"COALESCE(name, short) IN ({', '.join(map(str, map(int, fits)))})", []) if fits else None
    if kind is Kind.COPY:
        for given in trace.rows("SELECT DISTINCT kind, source_kind, target_kind FROM copies"):
            if copy_name(*given) == name:
                return "kind IS ? AND source_kind IS ? AND target_kind IS ?", list(given)
        return None
    return "1", []
