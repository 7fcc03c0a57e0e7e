"""Reads one side of a diff through the views, one pass over each."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from proctor.trace.diff.sides import NO_SHAPE, Config, Kind, Shape, Side, Work
from proctor.trace.diff.split import Amount
from proctor.trace.model import COPY_KINDS, MEMORY_KINDS, SYNC_KINDS
from proctor.trace.names import LineUp, normalise
from proctor.trace.nvtx.innermost import RANGE_OF_LAUNCH, innermost
from proctor.trace.trace import Trace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_VERSION = re.compile(r"(?:_v\d+)+$")
_NUMBER = re.compile(r"#\d+$")
_NO_KERNEL = {Kind.COPY: "memory copies", Kind.MEMSET: "memsets", Kind.GRAPH: "CUDA graphs"}
"""Categories of what the line-up does not place."""
_UNNAMED = "[a kernel without a name]"

_KERNELS = """
    SELECT start, "end" - start, COALESCE(name, short), grid_x, grid_y, grid_z, block_x, block_y, block_z,
        registers, static_shared, dynamic_shared, cluster_x, cluster_y, cluster_z FROM kernels
"""
_COPIES = 'SELECT kind, source_kind, target_kind, start, "end" - start, bytes FROM copies'
_MEMSETS = 'SELECT NULL, NULL, NULL, start, "end" - start, bytes FROM memsets'
_GRAPHS = 'SELECT NULL, NULL, NULL, start, "end" - start, NULL FROM graphs WHERE start > 0 AND "end" > start'
_SPAN = """
    SELECT MIN(start), MAX("end") FROM (
        SELECT start, "end" FROM kernels UNION ALL SELECT start, "end" FROM copies
        UNION ALL SELECT start, "end" FROM memsets
        UNION ALL SELECT start, "end" FROM graphs WHERE start > 0 AND "end" > start
    )
"""
_SYNCS = 'SELECT kind, COUNT(*), SUM("end" - start) FROM syncs GROUP BY kind'
_CALLS = 'SELECT name, COUNT(*), SUM("end" - start) FROM calls GROUP BY name'
_PATHS = f"""
    SELECT r.path, COUNT(*), SUM(k."end" - k.start) FROM kernels k
    LEFT JOIN {RANGE_OF_LAUNCH} r ON r.process = k.process AND r.correlation = k.correlation GROUP BY r.path
"""


def read_side(trace: Trace, places: LineUp) -> Side:
    """Reads everything that is compared. Memory grows with the launches, by 16 bytes each."""
    works = [*_kernels(trace, places), *_copies(trace), *_others(trace)]
    first, last = next(trace.rows(_SPAN))
    devices = list(trace.rows("SELECT DISTINCT process, device FROM kernels ORDER BY process, device"))
    calls = _calls(trace)
    paths = _paths(trace)
    return Side(
        trace=trace,
        works={(work.kind, work.name): work for work in works},
        syncs={SYNC_KINDS.get(kind, f"kind {kind}"): Amount(*rest) for kind, *rest in trace.rows(_SYNCS)},
        calls=calls,
        ranges=_ranges(trace),
        paths=paths,
        span=(first or 0, last or 0),
        gpus=tuple(trace.gpu(device, process) for process, device in devices),
        ranks=len({process for process, _ in devices}),
        cut=paths[None].calls if calls and None in paths else 0,
    )


class _Times:
    """Durations with their starts, to be put in the order they ran."""

    __slots__ = ("durations", "starts")

    def __init__(self) -> None:
        self.starts, self.durations = array("q"), array("q")

    def add(self, start: int, duration: int) -> None:
        self.starts.append(start)
        self.durations.append(duration)

    def extend(self, other: _Times) -> None:
        self.starts.extend(other.starts)
        self.durations.extend(other.durations)

    def in_order(self) -> NDArray[np.int64]:
        import numpy as np

        starts, durations = np.frombuffer(self.starts, np.int64), np.frombuffer(self.durations, np.int64)
        return durations[np.argsort(starts, kind="stable")]


class _Launched:
    """Launches of one kernel, by shape and by everything they were launched with."""

    def __init__(self) -> None:
        self.ids: dict[int | None, None] = {}
        self.times: dict[Shape, _Times] = {}
        self.configs: Counter[Config] = Counter()

    def add(self, config: Config, times: _Times) -> None:
        self.times.setdefault(Shape(config.grid, config.block), _Times()).extend(times)
        self.configs[config] += len(times.starts)


def _kernels(trace: Trace, places: LineUp) -> Iterator[Work]:
    """Kernels by identity: different names in the trace can be one kernel, spelled in two ways."""
    launched: dict[tuple[int | None, ...], _Times] = {}
    for row in trace.rows(_KERNELS):
        how = row[2:]
        times = launched.get(how)
        if times is None:
            times = launched[how] = _Times()
        times.add(row[0], row[1])
    texts = trace.text({name for name, *_ in launched if name is not None})
    merged: dict[str, tuple[str, _Launched]] = {}
    for (name, *rest), times in launched.items():
        full = _UNNAMED if name is None else texts[name]
        _, together = merged.setdefault(normalise(full), (full, _Launched()))
        together.ids[name] = None
        together.add(_config(rest), times)
    for identity, (full, one) in merged.items():
        launches = {shape: times.in_order() for shape, times in one.times.items()}
        place = places.place(full)
        yield Work(Kind.KERNEL, identity, full, place.category, place.rule, launches, one.configs, ids=tuple(one.ids))


def _copies(trace: Trace) -> Iterator[Work]:
    """Copies by direction and kinds of memory: a copy of pageable memory is other work than one of pinned memory."""
    times: dict[tuple[int, int | None, int | None], _Times] = {}
    moved: Counter[tuple[int, int | None, int | None]] = Counter()
    for kind, source, target, start, duration, size in trace.rows(_COPIES):
        key = (kind, source, target)
        times.setdefault(key, _Times()).add(start, duration)
        moved[key] += size or 0
    for key, found in times.items():
        name = copy_name(*key)
        yield Work(Kind.COPY, name, name, _NO_KERNEL[Kind.COPY], "", {NO_SHAPE: found.in_order()}, bytes=moved[key])


def _others(trace: Trace) -> Iterator[Work]:
    for kind, name, sql in ((Kind.MEMSET, "memset", _MEMSETS), (Kind.GRAPH, "CUDA graph, as a whole", _GRAPHS)):
        found, size = _Times(), 0
        for _, _, _, start, duration, bytes_ in trace.rows(sql):
            found.add(start, duration)
            size += bytes_ or 0
        if found.starts:
            yield Work(kind, name, name, _NO_KERNEL[kind], "", {NO_SHAPE: found.in_order()}, bytes=size)


def copy_name(kind: int, source: int | None, target: int | None) -> str:
    """What a copy is called in a diff: its direction, and the kinds of memory where the trace has them."""
    name = COPY_KINDS.get(kind, f"kind {kind}")
    if source is None or target is None:
        return name
    return f"{name} ({MEMORY_KINDS.get(source, source)} to {MEMORY_KINDS.get(target, target)})"


def _calls(trace: Trace) -> dict[str, Amount]:
    rows = list(trace.rows(_CALLS))
    texts = trace.text(name for name, _, _ in rows if name is not None)
    found: dict[str, Amount] = {}
    for name, calls, total in rows:
        text = _VERSION.sub("", texts.get(name, "[a call without a name]"))
        before = found.get(text, Amount(0, 0))
        found[text] = Amount(before.calls + calls, before.total + (total or 0))
    return found


def _ranges(trace: Trace) -> Counter[str]:
    """How often each range was opened; a running number at its end (``ProfilerStep#7``) is left out of the text."""
    enclosed = innermost(trace)
    found: Counter[str] = Counter()
    for (_, path), tally in enclosed.tallies.items():
        found[_NUMBER.sub("", enclosed.paths[path].name)] += tally.count
    return found


def _paths(trace: Trace) -> dict[str | None, Amount]:
    paths = innermost(trace).paths
    found: dict[str | None, Amount] = {}
    for path, calls, total in trace.rows(_PATHS):
        text = None if path is None else " > ".join(_NUMBER.sub("", name) for name in paths.names(path))
        before = found.get(text, Amount(0, 0))
        found[text] = Amount(before.calls + calls, before.total + total)
    return found


def _config(values: Sequence[int | None]) -> Config:
    registers, static, dynamic = values[6:9]
    return Config(_three(values[0:3]), _three(values[3:6]), registers, static, dynamic, _cluster(values[9:12]))


def _three(values: Sequence[int | None]) -> tuple[int, int, int]:
    x, y, z = values
    return (x or 0, y or 0, z or 0)


def _cluster(values: Sequence[int | None]) -> tuple[int, int, int] | None:
    """The cluster's shape; an export says 0 in every axis where a kernel was launched without one."""
    return _three(values) if any(values) else None
