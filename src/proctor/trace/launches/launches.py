"""Every launch of some kernels, in order of time, with the API call that made it: 52 bytes a launch in memory.

What many launches share (grid, registers, stream ...) is kept once, as a `Kind`; what differs is in arrays. Launches
and calls are joined on correlation id *and* process: correlation ids are counted in each process from 1.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from proctor.trace.launches.kernel_choice import NAME
from proctor.trace.trace import Trace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NONE = -1
"""In `Launches`: there is none, or the trace does not say."""
_NOT_THERE = -2
_AT_ONCE = 20_000
_CORRELATIONS = 1 << 40  # more than any correlation id, which CUPTI gives as 32 bits


class Kind(NamedTuple):
    """What launches have in common. None where the trace does not say."""

    process: int | None
    device: int | None
    context: int | None
    stream: int | None
    name: int
    grid_x: int | None
    grid_y: int | None
    grid_z: int | None
    block_x: int | None
    block_y: int | None
    block_z: int | None
    registers: int | None
    static_shared: int | None
    dynamic_shared: int | None
    shared_executed: int | None
    local_per_thread: int | None
    cluster_x: int | None
    cluster_y: int | None
    cluster_z: int | None
    max_active_clusters: int | None
    launch_type: int | None
    in_graph: int
    in_green_context: int
    reported_occupancy: float | None


def columns_of_kind(left_out: Collection[str] = ()) -> str:
    """The columns of ``kernels`` for the fields of a `Kind`, in SQL; those `left_out` are NULL."""
    expressions = {
        "name": NAME,
        "in_graph": "COALESCE(graph_node, 0) <> 0",
        "in_green_context": "COALESCE(green_context, 0) <> 0",
    }
    return ", ".join("NULL" if field in left_out else expressions.get(field, field) for field in Kind._fields)


def kind_of(row: Sequence[Any]) -> Kind:
    """A row of `columns_of_kind`. What cannot be, in a damaged file (text, a negative size), is not said."""
    values: list[Any] = [value if isinstance(value, int | float) and value >= 0 else None for value in row]
    return Kind(*values)


class Launches:
    """Launches by the start of their kernel; the arrays have one entry a launch.

    Attributes:
        kinds: what launches share.
        kind: index into `kinds`.
        start: ns on the trace's clock.
        duration: ns.
        correlation: id of the launch within its process; NONE without one.
        called: start of the API call, ns; NONE if the trace does not have it.
        returned: end of the API call, ns; NONE if the trace does not have it.
        call: index into `calls`; NONE if the trace does not have it.
        calls: (id of the API function's name, thread).
        path: id of the path of NVTX ranges around the call; NONE until `find_ranges` has found one.
    """

    def __init__(self, trace: Trace, names: Sequence[int]) -> None:
        """Reads the launches of kernels with these ids of names, and their calls."""
        import numpy as np

        self.kinds: list[Kind] = []
        self.calls: list[tuple[int | None, int | None]] = []
        self._read(trace, names)
        self._find_calls(trace)
        self.path = np.full(len(self), NONE, np.int32)

    def __len__(self) -> int:
        return len(self.start)

    def _read(self, trace: Trace, names: Sequence[int]) -> None:
        import numpy as np

        start, duration, correlation, kind = array("q"), array("q"), array("q"), array("i")
        known: dict[tuple[Any, ...], int] = {}
        chosen = ", ".join(str(int(name)) for name in names)
        number = f"CASE WHEN correlation BETWEEN 1 AND {_CORRELATIONS - 1} THEN correlation END"
        sql = f'SELECT start, "end" - start, {number}, {columns_of_kind()} FROM kernels WHERE {NAME} IN ({chosen})'
        for row in trace.rows(sql):
            start.append(row[0])
            duration.append(row[1])
            correlation.append(row[2] or NONE)
            kind.append(known.setdefault(row[3:], len(known)))
        self.kinds = [kind_of(key) for key in known]
        self.start = np.frombuffer(start, dtype=np.int64) if start else np.empty(0, np.int64)
        self.duration = np.frombuffer(duration, dtype=np.int64) if start else np.empty(0, np.int64)
        self.correlation = np.frombuffer(correlation, dtype=np.int64) if start else np.empty(0, np.int64)
        self.kind = np.frombuffer(kind, dtype=np.int32) if start else np.empty(0, np.int32)
        self._in_order_of_time()

    def _in_order_of_time(self) -> None:
        import numpy as np

        if bool(np.all(self.start[1:] >= self.start[:-1])):
            return
        order = np.argsort(self.start, kind="stable")
        self.start, self.duration = self.start[order], self.duration[order]
        self.correlation, self.kind = self.correlation[order], self.kind[order]

    def _find_calls(self, trace: Trace) -> None:
        import numpy as np

        self.called = np.full(len(self), NONE, np.int64)
        self.returned = np.full(len(self), NONE, np.int64)
        self.call = np.full(len(self), NONE, np.int32)
        index = Index(self)
        known: dict[tuple[int | None, int | None], int] = {}
        rows = trace.rows(
            'SELECT process, correlation, start, COALESCE("end", start), name, thread FROM calls '
            f"WHERE correlation BETWEEN 1 AND {_CORRELATIONS - 1}"
        )
        while some := list(itertools.islice(rows, _AT_ONCE)):
            # Of several calls with one id in one process the first is the outer one. Where an index comes twice in an
            # assignment the last value stays: so the latest call is written first.
            some.sort(key=lambda row: row[2], reverse=True)
            row, at = index.of([each[0] for each in some], [each[1] for each in some])
            start = np.array([each[2] for each in some], np.int64)[row]
            better = (self.call[at] == NONE) | (start < self.called[at])
            row, at = row[better], at[better]
            self.called[at] = start[better]
            self.returned[at] = np.array([each[3] for each in some], np.int64)[row]
            self.call[at] = [known.setdefault(some[each][4:6], len(known)) for each in row.tolist()]
        self.calls = list(known)


class Index:
    """Finds launches by process and correlation id. Several can have one call: the kernels of a CUDA graph."""

    def __init__(self, launches: Launches) -> None:
        """Sorts the launches by process and correlation id, in 16 bytes a launch."""
        import numpy as np

        processes = {kind.process for kind in launches.kinds if kind.process is not None}
        self._processes: dict[int | None, int] = {
            process: number * _CORRELATIONS for number, process in enumerate(sorted(processes), start=1)
        }
        of_kind = np.array([self._processes.get(kind.process, NONE) for kind in launches.kinds], np.int64)
        keys = np.where(
            (launches.correlation > 0) & (of_kind[launches.kind] != NONE),
            launches.correlation + of_kind[launches.kind],
            NONE,
        )
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def of(
        self, processes: Sequence[int | None], correlations: Sequence[int]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The launches of each pair: (position in `processes`, index of a launch), in the order of the positions."""
        import numpy as np

        base = np.array([self._processes.get(process, NONE) for process in processes], np.int64)
        wanted = np.where(base == NONE, _NOT_THERE, base + np.array(correlations, np.int64))
        low = np.searchsorted(self._keys, wanted, side="left")
        count = np.searchsorted(self._keys, wanted, side="right") - low
        position = np.repeat(np.arange(len(wanted)), count)
        within = np.arange(len(position)) - np.repeat(np.cumsum(count) - count, count)
        return position, self._order[low[position] + within]
