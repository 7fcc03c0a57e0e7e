"""Ranges projected onto the GPU: what ran there because of what was called within each range.

A range's GPU work is whatever its launches started, wherever and whenever that ran: kernels, copies, memsets and graphs
whose API call began on the range's thread while it was open.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from proctor.trace.model import pid_of
from proctor.trace.nvtx.innermost import RANGE_OF_LAUNCH, Enclosed, innermost
from proctor.trace.nvtx.paths import OUTSIDE
from proctor.trace.nvtx.projection_work import Work
from proctor.trace.nvtx.walk import Tally
from proctor.trace.timeline.order import Query, in_order

if TYPE_CHECKING:
    from proctor.trace.trace import Trace

By = Literal["name", "path"]


class RangeFigures(msgspec.Struct, frozen=True, kw_only=True):
    """All ranges of one name (or of one path of names) in one process. Times are nanoseconds.

    What is said of launches and of the GPU counts what lies in ranges inside as well; of a range within another of the
    same name it counts once.

    Attributes:
        name: the range's name, or its path in words.
        names: the path from the outermost; the name alone where ranges are told by name.
        domain: the NVTX domain, or the category of a PyTorch annotation; empty for the default domain.
        process: ``globalPid``.
        pid: the operating system's process id.
        count: how often it was opened.
        unended: how many of those the trace does not see end.
        cpu_ns: how long it was open on the CPU, in sum.
        launches: API calls within that launch kernels or CUDA graphs.
        captured: of those, launches that were recorded into a CUDA graph: they run where it is launched, not here.
        operations: kernels, copies, memsets and graphs that ran on a GPU because of calls within.
        kernels: of those, kernels.
        gpu_first: start of the first of them on the trace's own clock; None if there is none.
        gpu_last: end of the last of them.
        gpu_busy_ns: time in which at least one of them ran, per device and added over devices.
        gpu_sum_ns: their durations added up, more than busy time where they overlap.
        remark: what to know before reading the figures; empty if nothing.
    """

    name: str
    names: tuple[str, ...]
    domain: str
    process: int
    pid: int
    count: int
    unended: int
    cpu_ns: int
    launches: int
    captured: int
    operations: int
    kernels: int
    gpu_first: int | None
    gpu_last: int | None
    gpu_busy_ns: int
    gpu_sum_ns: int
    remark: str = ""


class Share(msgspec.Struct, frozen=True):
    """Some of the GPU's operations: how many, how long busy (a union), how long in sum; ns."""

    operations: int
    busy_ns: int
    sum_ns: int


class Projection(msgspec.Struct, frozen=True, kw_only=True):
    """Ranges and their GPU work, the busiest first, and what no range covers.

    Attributes:
        by: whether ranges are told by ``name`` or by ``path``.
        ranges: figures of each range, per process.
        total: everything that ran on a GPU.
        outside: what was launched outside of all ranges.
        unlaunched: what the trace has no launching call for (launched before the capture began, or not traced).
    """

    by: By
    ranges: tuple[RangeFigures, ...]
    total: Share
    outside: Share
    unlaunched: Share


class _Key(NamedTuple):
    process: int
    domain: str
    names: tuple[str, ...]


def project(trace: Trace, *, by: By = "name") -> Projection:
    """Projects the ranges of a trace onto what ran on its GPUs.

    Raises:
        UserError: the trace has no ranges, or is damaged.
    """
    enclosed = innermost(trace)
    if len(enclosed.paths) == 1:
        raise trace.missing("annotations", "a projection of ranges")
    keys = _Keys(enclosed, by)
    work: dict[_Key, Work] = {}
    total, outside, unlaunched = Work(), Work(), Work()
    for start, end, device, process, path, kernel in _operations(trace):
        place = (process, device)
        total.add(place, start, end, kernel=kernel)
        if not path:
            (unlaunched if path is None else outside).add(place, start, end, kernel=kernel)
            continue
        for key in keys.around(process, path):
            if key not in work:
                work[key] = Work()
            work[key].add(place, start, end, kernel=kernel)
    figures = [_figures(key, tally, work.get(key, Work()), by) for key, tally in keys.tallies().items()]
    figures.sort(key=lambda each: (-each.gpu_busy_ns, -each.cpu_ns, each.process, each.name))
    return Projection(
        by=by, ranges=tuple(figures), total=_share(total), outside=_share(outside), unlaunched=_share(unlaunched)
    )


class _Keys:
    """Which rows of the result a path counts for."""

    def __init__(self, enclosed: Enclosed, by: By) -> None:
        self._paths = enclosed.paths
        self._tallies = enclosed.tallies
        self._by = by
        self._known: dict[tuple[int, int], tuple[_Key, ...]] = {}

    def around(self, process: int, path: int) -> tuple[_Key, ...]:
        """The rows of a path and of all it lies in, each once."""
        found = self._known.get((process, path))
        if found is None:
            chain = self._paths.chain(path)
            found = self._known[process, path] = tuple(dict.fromkeys(self._key(process, each) for each in chain))
        return found

    def tallies(self) -> dict[_Key, Tally]:
        """What happened on the CPU, by row."""
        found: dict[_Key, Tally] = {}
        for (process, path), tally in self._tallies.items():
            if path == OUTSIDE:
                continue
            own = self._key(process, path)
            mine = found.setdefault(own, Tally())
            mine.count += tally.count
            mine.open += tally.open
            if own not in self.around(process, self._paths[path].parent):
                mine.cpu_ns += tally.cpu_ns
            for key in self.around(process, path):
                row = found.setdefault(key, Tally())
                row.launches += tally.launches
                row.captured += tally.captured
                row.graph_launches += tally.graph_launches
        return found

    def _key(self, process: int, path: int) -> _Key:
        names = self._paths.names(path) if self._by == "path" else (self._paths[path].name,)
        return _Key(process, self._paths[path].domain, names)


def _figures(key: _Key, tally: Tally, work: Work, by: By) -> RangeFigures:
    return RangeFigures(
        name=" > ".join(key.names) if by == "path" else key.names[0],
        names=key.names,
        domain=key.domain,
        process=key.process,
        pid=pid_of(key.process or 0),
        count=tally.count,
        unended=tally.open,
        cpu_ns=tally.cpu_ns,
        launches=tally.launches + tally.graph_launches,
        captured=tally.captured,
        operations=work.operations,
        kernels=work.kernels,
        gpu_first=work.first,
        gpu_last=work.last,
        gpu_busy_ns=work.busy,
        gpu_sum_ns=work.sum,
        remark=_remark(tally, work),
    )


def _remark(tally: Tally, work: Work) -> str:
    launches = tally.launches + tally.graph_launches
    if tally.captured and not work.operations:
        return "open while a CUDA graph was recorded; its GPU work runs where the graph is launched, not in this range"
    if tally.captured:
        return (
            f"{tally.captured:,} of {launches:,} launches were recorded into a CUDA graph and run where it is launched"
        )
    if launches and not work.operations:
        return f"none of its {launches:,} launches has GPU work in this trace"
    return ""


def _share(work: Work) -> Share:
    return Share(work.operations, work.busy, work.sum)


def _operations(trace: Trace) -> Iterator[tuple[Any, ...]]:
    """Everything that ran on a GPU by start: (start, end, device, process, path or None, is it a kernel)."""
    columns = ("v.start", 'v."end"', "v.device", "v.process", "r.path")
    join = f"LEFT JOIN {RANGE_OF_LAUNCH} r ON r.process = v.process AND r.correlation = v.correlation"
    streams = [
        in_order(trace, Query(view, (*columns, str(int(view == "kernels"))), where='v."end" IS NOT NULL', join=join))
        for view in ("kernels", "copies", "memsets", "graphs")
    ]
    return heapq.merge(*streams, key=lambda row: row[0])
