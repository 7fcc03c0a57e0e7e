"""Events of each kind as a trace's views give them, ordered by time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from proctor.trace.model import COPY_KINDS, MEMORY_KINDS, SYNC_KINDS
from proctor.trace.nvtx.paths import Texts
from proctor.trace.timeline.order import Query, in_order
from proctor.trace.views import MARK, PUSH_POP, START_END

if TYPE_CHECKING:
    from proctor.trace.trace import Trace


_IDS_AT_ONCE = 500
"""Parameters of one statement; older builds of SQLite take 999."""


class Kind(StrEnum):
    """What an event is."""

    KERNEL = "kernel"
    COPY = "copy"
    MEMSET = "memset"
    SYNC = "sync"
    GRAPH = "graph"
    RANGE = "range"
    MARK = "mark"
    CALL = "call"
    OS_CALL = "os_call"


KINDS = tuple(Kind)
ON_GPU = frozenset({Kind.KERNEL, Kind.COPY, Kind.MEMSET, Kind.SYNC, Kind.GRAPH})
"""Kinds that have a device and a stream; the others have a thread."""


class Event(NamedTuple):
    """One event of the timeline.

    Attributes:
        start: ns on the trace's own clock.
        end: ns; None for a range that the trace does not see end.
        kind: what it is.
        name: the kernel's demangled name, the copy's direction, the range's text, the API call.
        process: ``globalPid`` of its process.
        thread: ``globalTid`` of what happened on a CPU.
        device: number of the GPU, as the process counts.
        context: CUDA context on it.
        stream: CUDA stream in the context.
        correlation: ties what ran on a GPU to the API call of the same process that asked for it.
        bytes: copied or set.
        detail: what else there is to say, in words: grid, block and registers; kinds of memory; domain of a range.
    """

    start: int
    end: int | None
    kind: Kind
    name: str
    process: int | None = None
    thread: int | None = None
    device: int | None = None
    context: int | None = None
    stream: int | None = None
    correlation: int | None = None
    bytes: int | None = None
    detail: str = ""


class Selection(NamedTuple):
    """Which events to read; see `proctor.trace.timeline.timeline.timeline`."""

    since: int | None = None
    until: int | None = None
    device: int | None = None
    pid: int | None = None

    def where(self, kind: Kind) -> tuple[str, dict[str, object]]:
        """SQL conditions on a view with alias ``v``, and their parameters."""
        conditions, parameters = ["1"], dict[str, object]()
        if self.since is not None:
            end = "v.start" if kind is Kind.MARK else 'COALESCE(v."end", 9223372036854775807)'
            conditions.append(f"({end} > :since OR v.start >= :since)")
            parameters["since"] = self.since
        if self.until is not None:
            conditions.append("v.start < :until")
            parameters["until"] = self.until
        if self.device is not None:
            conditions.append("v.device = :device" if kind in ON_GPU else "0")
            parameters |= {"device": self.device} if kind in ON_GPU else {}
        if self.pid is not None:
            conditions.append("(v.process >> 24) & 16777215 = :pid")
            parameters["pid"] = self.pid
        return " AND ".join(conditions), parameters


class _Source(NamedTuple):
    view: str
    columns: tuple[str, ...]
    event: Callable[[Reader, tuple[Any, ...]], Event]
    where: str = "1"


class Reader:
    """Reads events and looks up their texts, each once."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._names: dict[int, str] = {}
        self.texts = Texts(trace, exact=True)

    def events(self, kind: Kind, selection: Selection) -> Iterator[Event]:
        """Events of one kind by start, the longest first among those that start together."""
        source = _SOURCES[kind]
        where, parameters = selection.where(kind)
        query = Query(source.view, source.columns, where=f"{source.where} AND {where}", parameters=parameters)
        for row in in_order(self._trace, query):
            yield source.event(self, row)

    def some(self, kind: Kind, ids: Sequence[int]) -> dict[int, Event]:
        """Events of one kind by the ids of their rows; an id that the view does not have is left out.

        Raises:
            UserError: the file is damaged where it was read.
        """
        source = _SOURCES[kind]
        found: dict[int, Event] = {}
        for at in range(0, len(ids), _IDS_AT_ONCE):
            chunk = ids[at : at + _IDS_AT_ONCE]
            marks = ", ".join("?" * len(chunk))
            columns = ", ".join(("v.id", *source.columns))
            sql = f"SELECT {columns} FROM {source.view} AS v WHERE ({source.where}) AND v.id IN ({marks})"
            for number, *row in self._trace.rows(sql, chunk):
                found[number] = source.event(self, tuple(row))
        return found

    def name(self, number: int | None) -> str:
        """The string with this id."""
        if number is None:
            return "(unnamed)"
        if number not in self._names:
            self._names.update(self._trace.text([number]))
        return self._names[number]


def _kernel(reader: Reader, row: tuple[Any, ...]) -> Event:
    start, end, process, device, context, stream, correlation, name, *launch = row
    gx, gy, gz, bx, by, bz, registers = launch
    detail = "" if gx is None else f"grid {gx}x{gy}x{gz}, block {bx}x{by}x{bz}, {registers} registers"
    return Event(
        start, end, Kind.KERNEL, reader.name(name), process, None, device, context, stream, correlation, None, detail
    )


def _copy(_: Reader, row: tuple[Any, ...]) -> Event:
    start, end, process, device, context, stream, correlation, size, kind, source, target = row
    detail = "" if source is None else f"{_memory(source)} to {_memory(target)} memory"
    name = f"copy {COPY_KINDS.get(kind, f'of kind {kind}')}"
    return Event(start, end, Kind.COPY, name, process, None, device, context, stream, correlation, size, detail)


def _memset(_: Reader, row: tuple[Any, ...]) -> Event:
    start, end, process, device, context, stream, correlation, size, value, memory = row
    detail = f"value {value}" + ("" if memory is None else f", {_memory(memory)} memory")
    return Event(start, end, Kind.MEMSET, "memset", process, None, device, context, stream, correlation, size, detail)


def _sync(_: Reader, row: tuple[Any, ...]) -> Event:
    start, end, process, device, context, stream, correlation, kind = row
    name = f"sync {SYNC_KINDS.get(kind, f'of kind {kind}')}"
    return Event(start, end, Kind.SYNC, name, process, None, device, context, stream, correlation)


def _graph(_: Reader, row: tuple[Any, ...]) -> Event:
    start, end, process, device, context, stream, correlation, number, execution = row
    detail = "" if execution is None else f"executable {execution}"
    name = "graph" if number is None else f"graph {number}"
    return Event(start, end, Kind.GRAPH, name, process, None, device, context, stream, correlation, None, detail)


def _range(reader: Reader, row: tuple[Any, ...]) -> Event:
    start, end, process, thread, text, text_id, domain_id = row
    name, domain = reader.texts.of(text, text_id), reader.texts.domain(process, domain_id)
    return Event(start, end, Kind.RANGE, name, process, thread, detail=domain)


def _mark(reader: Reader, row: tuple[Any, ...]) -> Event:
    start, _, *rest = row
    return _range(reader, (start, start, *rest))._replace(kind=Kind.MARK)


def _call(reader: Reader, row: tuple[Any, ...]) -> Event:
    start, end, process, thread, name, correlation, result = row
    detail = f"returned {result}" if result else ""
    return Event(
        start, end, Kind.CALL, reader.name(name), process, thread, correlation=correlation or None, detail=detail
    )


def _os_call(reader: Reader, row: tuple[Any, ...]) -> Event:
    start, end, process, thread, name = row
    return Event(start, end, Kind.OS_CALL, reader.name(name), process, thread)


def _memory(kind: int | None) -> str:
    return "unknown" if kind is None else MEMORY_KINDS.get(kind, f"kind {kind}")


_TIMES = ("v.start", 'v."end"', "v.process")
_PLACE = (*_TIMES, "v.device", "v.context", "v.stream", "v.correlation")
_LAUNCH = ("v.grid_x", "v.grid_y", "v.grid_z", "v.block_x", "v.block_y", "v.block_z", "v.registers")
_ANNOTATION = (*_TIMES, "v.thread", "v.text", "v.text_id", "v.domain")
_SOURCES = {
    Kind.KERNEL: _Source("kernels", (*_PLACE, "v.name", *_LAUNCH), _kernel),
    Kind.COPY: _Source("copies", (*_PLACE, "v.bytes", "v.kind", "v.source_kind", "v.target_kind"), _copy),
    Kind.MEMSET: _Source("memsets", (*_PLACE, "v.bytes", "v.value", "v.memory_kind"), _memset),
    Kind.SYNC: _Source("syncs", (*_PLACE, "v.kind"), _sync),
    Kind.GRAPH: _Source("graphs", (*_PLACE, "v.graph", "v.graph_execution"), _graph, where='v."end" IS NOT NULL'),
    Kind.RANGE: _Source("annotations", _ANNOTATION, _range, where=f"v.kind IN ({PUSH_POP}, {START_END})"),
    Kind.MARK: _Source("annotations", _ANNOTATION, _mark, where=f"v.kind = {MARK}"),
    Kind.CALL: _Source("calls", (*_TIMES, "v.thread", "v.name", "v.correlation", "v.result"), _call),
    Kind.OS_CALL: _Source("os_calls", (*_TIMES, "v.thread", "v.name"), _os_call),
}
