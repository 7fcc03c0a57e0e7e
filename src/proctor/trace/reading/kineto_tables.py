"""Tables of Nsight Systems' layout, filled from the events of a PyTorch-profiler trace."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import msgspec

from proctor.trace.reading import kineto_events as events
from proctor.trace.reading.kineto_events import integer, nanoseconds
from proctor.trace.views import PUSH_POP

_HARDWARE = 1 << 48
_ROWS_AT_ONCE = 20_000
_NUMBERS = 1 << 24
_PLACE = "start end deviceId contextId streamId correlationId globalPid track"
_TABLES = {
    "StringIds": "id value",
    "CUPTI_ACTIVITY_KIND_KERNEL": f"{_PLACE} demangledName shortName registersPerThread gridX gridY gridZ blockX "
    "blockY blockZ staticSharedMemory dynamicSharedMemory graphId graphNodeId reportedOccupancy",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{_PLACE} bytes copyKind srcKind dstKind srcDeviceId dstDeviceId",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{_PLACE} bytes memKind",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": f"{_PLACE} syncType eventId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end globalTid correlationId nameId",
    "NVTX_EVENTS": "start end eventType globalTid textId text domainId",
    "PROCESSES": "globalPid pid name",
    "ThreadNames": "nameId globalTid",
    "TARGET_INFO_GPU": "id name smCount totalMemory computeMajor computeMinor threadsPerWarp maxWarpsPerSm "
    "maxThreadsPerBlock maxRegistersPerBlock maxRegistersPerSm maxShmemPerBlock maxShmemPerBlockOptin maxShmemPerSm",
}
_ON_GPU = [name for name, columns in _TABLES.items() if columns.startswith(_PLACE)]
USER, OPERATORS = 0, 1
"""``domainId`` of the user's annotations and of PyTorch's operators."""
_DOMAIN_CREATED = 75
_AMD_WAVE = 64


class Tables:
    """Collects rows and writes them in batches.

    Attributes:
        connection: to a database in memory.
        wanted: events that were read, by category.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.wanted: dict[str, int] = {}
        self._rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in _TABLES}
        self._strings: dict[str, int] = {}
        self._threads: dict[tuple[int, Any], int] = {}
        self._names: dict[int, str] = {}
        self._thread_names: dict[tuple[int, Any], str] = {}
        for name, columns in _TABLES.items():
            words = (f'"{column}"' + " INTEGER PRIMARY KEY" * (column == "id") for column in columns.split())
            connection.execute(f"CREATE TABLE {name} ({', '.join(words)})")
        self._add("NVTX_EVENTS", None, None, _DOMAIN_CREATED, None, None, "PyTorch operators", OPERATORS)

    def reader(self, category: str) -> Callable[[msgspec.Raw], None] | None:
        """What reads events of a category; None for a category that is not read."""
        return _READERS.get(category.lower(), lambda _: None)(self)

    def label(self, label: events.Label) -> None:
        """Takes the name of a process or a thread; those of a GPU's tracks come to nothing."""
        pid = integer(label.pid)
        if pid is not None and label.name == "process_name":
            self._names[pid] = label.args.name
        elif pid is not None and label.name == "thread_name":
            self._thread_names[pid, label.tid] = label.args.name

    def devices(self, devices: list[events.Device]) -> None:
        """Takes the GPUs."""
        for device in devices:
            amd = device.warp == _AMD_WAVE  # its compute capability is not NVIDIA's
            warps = device.threads_per_sm // device.warp if device.threads_per_sm and device.warp else None
            numbers = (
                device.sms, device.total_memory, None if amd else device.major, None if amd else device.minor,
                device.warp, warps, device.threads_per_block, device.registers_per_block, device.registers_per_sm,
                device.shared_per_block, device.shared_opt_in, device.shared_per_sm or device.shared_per_cu,
            )  # fmt: skip
            self._add("TARGET_INFO_GPU", integer(device.id), device.name, *map(integer, numbers))

    def close(self) -> None:
        """Writes what is left, and gives everything on a GPU the process that launched it."""
        for key, thread in self._threads.items():
            if name := self._thread_names.get(key):
                self._add("ThreadNames", self._string(name), thread)
        for text, number in self._strings.items():
            self._add("StringIds", number, text)
        for pid in {pid for pid, _ in self._threads}:
            self._add("PROCESSES", _process(pid), pid, self._names.get(pid, ""))
        for table in _TABLES:
            self._flush(table)
        _assign_processes(self.connection)
        self.connection.commit()

    def kernel(self, raw: msgspec.Raw) -> None:
        """A kernel's run. Shared memory is static and dynamic together: Kineto writes only their sum."""
        event = msgspec.json.decode(raw, type=events.GpuEvent)
        name, args = self._string(event.name), event.args
        occupancy = args.occupancy if isinstance(args.occupancy, (int, float)) and args.occupancy >= 0 else None
        self._add(
            "CUPTI_ACTIVITY_KIND_KERNEL", *_place(event), name, name, integer(args.registers), *_three(args.grid),
            *_three(args.block), 0, integer(args.shared), integer(args.graph), integer(args.graph_node), occupancy,
        )  # fmt: skip

    def copy(self, raw: msgspec.Raw) -> None:
        """A copy of memory."""
        event = msgspec.json.decode(raw, type=events.GpuEvent)
        source, target = integer(event.args.source_device), integer(event.args.target_device)
        kinds = events.copy_kinds(event.name)
        self._add("CUPTI_ACTIVITY_KIND_MEMCPY", *_place(event), integer(event.args.bytes), *kinds, source, target)

    def memset(self, raw: msgspec.Raw) -> None:
        """Memory that was set."""
        event = msgspec.json.decode(raw, type=events.GpuEvent)
        kind = events.memory_kind(event.name)
        self._add("CUPTI_ACTIVITY_KIND_MEMSET", *_place(event), integer(event.args.bytes), kind)

    def sync(self, raw: msgspec.Raw) -> None:
        """A wait for an event, a stream or everything."""
        event = msgspec.json.decode(raw, type=events.GpuEvent)
        kind = events.sync_kind(event.args.sync_kind or event.name)
        self._add("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", *_place(event), kind, integer(event.args.event))

    def call(self, raw: msgspec.Raw) -> None:
        """A call of the CUDA or HIP API."""
        event = msgspec.json.decode(raw, type=events.CpuEvent)
        times, thread = _times(event), self._thread(_pid(event), event.tid)
        name, correlation = self._string(event.name), integer(event.args.correlation)
        self._add("CUPTI_ACTIVITY_KIND_RUNTIME", *times, thread, correlation, name)

    def annotation(self, raw: msgspec.Raw, domain: int) -> None:
        """A range of a thread."""
        event = msgspec.json.decode(raw, type=events.CpuEvent)
        times, thread = _times(event), self._thread(_pid(event), event.tid)
        self._add("NVTX_EVENTS", *times, PUSH_POP, thread, self._string(event.name), None, domain)

    def _add(self, table: str, *values: Any) -> None:
        rows = self._rows[table]
        rows.append(values)
        if len(rows) >= _ROWS_AT_ONCE:
            self._flush(table)

    def _flush(self, table: str) -> None:
        marks = ", ".join("?" * len(_TABLES[table].split()))
        self.connection.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", self._rows[table])
        self._rows[table].clear()

    def _string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings) + 1)

    def _thread(self, pid: int, tid: Any) -> int:
        """``globalTid``; threads whose ids do not fit its 24 bits, or are no numbers, get numbers from the top down."""
        key = (pid, tid)
        if key not in self._threads:
            number = integer(tid)
            if number is None or not 0 <= number < _NUMBERS - (1 << 16):
                number = _NUMBERS - 1 - len(self._threads) % (1 << 16)
            self._threads[key] = _process(pid) | number
        return self._threads[key]


_READERS: dict[str, Callable[[Tables], Callable[[msgspec.Raw], None] | None]] = {
    **dict.fromkeys(("kernel",), lambda tables: tables.kernel),
    **dict.fromkeys(("gpu_memcpy", "memcpy"), lambda tables: tables.copy),
    **dict.fromkeys(("gpu_memset", "memset"), lambda tables: tables.memset),
    "cuda_sync": lambda tables: tables.sync,
    **dict.fromkeys(
        ("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "runtime"), lambda tables: tables.call
    ),
    "user_annotation": lambda tables: lambda raw: tables.annotation(raw, USER),
    **dict.fromkeys(("cpu_op", "operator"), lambda tables: lambda raw: tables.annotation(raw, OPERATORS)),
}
"""By category; the second names are those of traces of 2021 and before."""


def _place(event: events.GpuEvent) -> tuple[Any, ...]:
    args = event.args
    device = integer(args.device if args.device is not None else args.inner_device)
    context = integer(args.context if args.context is not None else args.inner_context)
    track = None if event.pid is None else str(event.pid)
    where = device if device is not None else integer(event.pid)
    return *_times(event), where, context or 0, integer(args.stream), integer(args.correlation), None, track


def _times(event: events.GpuEvent | events.CpuEvent) -> tuple[int, int]:
    start = nanoseconds(event.ts)
    return start, start + nanoseconds(event.dur)


def _pid(event: events.CpuEvent) -> int:
    pid = integer(event.pid)
    if pid is None or not 0 <= pid < _NUMBERS:
        raise ValueError(f"not a process: {event.pid!r}")
    return pid


def _process(pid: int) -> int:
    return _HARDWARE | pid << 24


def _three(values: list[events.Loose] | None) -> tuple[int | None, int | None, int | None]:
    if values is None or len(values) != 3:
        return None, None, None
    return integer(values[0]), integer(values[1]), integer(values[2])


def _assign_processes(connection: sqlite3.Connection) -> None:
    """Gives each row of a GPU the process of the call with its correlation id.

    Ranks merged into one file share ids. Then the track tells: one whose unmistakable rows are all of one process is of
    that process. What is left is taken as launched by the latest call before it.
    """
    process = "globalTid & ~16777215"
    connection.executescript(f"""
        CREATE TEMP TABLE owners AS SELECT correlationId AS id, min({process}) AS process,
            min({process}) = max({process}) AS sure FROM CUPTI_ACTIVITY_KIND_RUNTIME
            WHERE correlationId IS NOT NULL GROUP BY correlationId;
        CREATE UNIQUE INDEX temp.owners_id ON owners (id);
        CREATE TEMP TABLE tracks (track, process);
        CREATE INDEX CUPTI_calls ON CUPTI_ACTIVITY_KIND_RUNTIME (correlationId, start);
    """)
    for table in _ON_GPU:
        sure = f"SELECT process FROM owners WHERE id = {table}.correlationId AND sure"
        connection.execute(f"UPDATE {table} SET globalPid = ({sure})")
        connection.execute(
            f"INSERT INTO tracks SELECT DISTINCT track, globalPid FROM {table} WHERE globalPid IS NOT NULL"
        )
    only = "SELECT CASE WHEN min(process) = max(process) THEN min(process) END FROM tracks WHERE track IS t.track"
    latest = (
        f"SELECT {process} FROM CUPTI_ACTIVITY_KIND_RUNTIME r WHERE r.correlationId = t.correlationId "
        "AND r.start <= t.start ORDER BY r.start DESC LIMIT 1"
    )
    lone = "SELECT CASE WHEN count(*) = 1 THEN min(globalPid) END FROM PROCESSES"
    for table in _ON_GPU:
        for choice in (only, latest, lone):
            connection.execute(f"UPDATE {table} AS t SET globalPid = ({choice}) WHERE globalPid IS NULL")
    connection.executescript("DROP TABLE temp.owners; DROP TABLE temp.tracks; DROP INDEX CUPTI_calls;")
