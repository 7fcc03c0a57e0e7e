"""Everything that ran on the GPUs, in order of time: kernels, copies, memsets and whole CUDA graphs."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from proctor.rows import UserError
from proctor.trace.model import GraphMode, pid_of
from proctor.trace.work.busy import STREAM, known, rows_in_order
from proctor.trace.work.census_copies import kind_of_copy
from proctor.trace.work.scope import WHOLE, Scope

if TYPE_CHECKING:
    from proctor.trace.trace import Trace

VIEWS = {"kernels": "v.name", "copies": "v.kind", "memsets": "0", "graphs": "v.graph"}
"""The views that hold work of a GPU, and the column that says what it was."""

Device = tuple[int | str, ...]
"""A physical GPU: its uuid, or (process, number) where the trace does not say which GPUs are the same."""


class Work(NamedTuple):
    """One thing that ran on a GPU; ns. -1 stands for what the trace does not say."""

    start: int
    end: int
    process: int
    device: int
    context: int
    stream: int
    what: int | None
    """A kernel's name id, a copy's kind, a graph's id."""
    correlation: int | None
    view: str


def device_work(trace: Trace, scope: Scope = WHOLE) -> Iterator[Work]:
    """Work that starts within `scope`, by start; memory does not grow with the number of rows.

    Raises:
        UserError: the file is damaged.
    """

    def of(view: str, what: str) -> Iterator[Work]:
        columns = [*known(STREAM), what, "v.correlation"]
        return (Work._make((*row, view)) for row in rows_in_order(trace, view, columns, scope))

    return heapq.merge(*(of(view, what) for view, what in VIEWS.items()), key=itemgetter(0))


def devices_of(trace: Trace) -> Callable[[int, int], Device]:
    """Which physical GPU a process means by a number: two processes may number the same one differently."""
    found: dict[tuple[int, int], Device] = {}

    def device_of(process: int, device: int) -> Device:
        key = process, device
        if key not in found:
            uuid = trace.gpu(device, process).uuid
            found[key] = (uuid,) if uuid else key
        return found[key]

    return device_of


def told(trace: Trace, works: list[Work]) -> dict[Work, str]:
    """What each was, in words: a kernel's demangled name, ``copy host to device``, ``memset``, ``CUDA graph 3``."""
    texts = trace.text(work.what for work in works if work.view == "kernels" and work.what is not None)
    words = {
        "kernels": lambda what: texts.get(what, "kernel without a name"),
        "copies": lambda what: f"copy {kind_of_copy(what)}",
        "memsets": lambda _: "memset",
        "graphs": lambda what: "CUDA graph" if what is None else f"CUDA graph {what}",
    }
    return {work: words[work.view](work.what) for work in works}


def refuse_unseen_graphs(trace: Trace, question: str) -> None:
    """Where CUDA graphs ran and neither their kernels nor their times were recorded, nothing can be said of idle time.

    Raises:
        UserError: that is so.
    """
    untimed = trace.one('SELECT count(*) FROM graphs WHERE start IS NULL OR "end" IS NULL OR "end" <= start')
    if not untimed:
        if trace.has("graphs") or trace.graph_mode is GraphMode.NODE or not (launches := _graph_launches(trace)):
            return
        if trace.one("SELECT EXISTS (SELECT 1 FROM kernels WHERE graph_node > 0)"):
            return
        what = f"{launches:,} launches of CUDA graphs left neither kernels nor times in the trace"
    else:
        what = f"{untimed:,} launches of CUDA graphs have no times"
    raise UserError(
        f"{question} cannot be told: {what}, so that a GPU may have been at work where the trace shows nothing",
        where=str(trace.path),
        fix="capture with `nsys profile --cuda-graph-trace=node`",
    )


def _graph_launches(trace: Trace) -> int:
    sql = """SELECT count(*) FROM calls WHERE name IN (
        SELECT id FROM strings WHERE text GLOB 'cudaGraphLaunch*' OR text GLOB 'cuGraphLaunch*'
            OR text GLOB 'hipGraphLaunch*')"""
    count: int = trace.one(sql)
    return count


def pid_or_unknown(process: int) -> int:
    """The operating system's id of a process; -1 where the trace does not say which it was."""
    return pid_of(process) if process >= 0 else -1
