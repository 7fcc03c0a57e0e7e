"""Writes small exports in the layout of Nsight Systems, for what no capture at hand shows."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, Self

HARDWARE = 1 << 48
"""The upper bits of a global id: the first virtual machine."""


def process_id(pid: int) -> int:
    """``globalPid`` of a process."""
    return HARDWARE | (pid << 24)


def thread_id(pid: int, tid: int | None = None) -> int:
    """``globalTid`` of a thread; the main thread has the process's number."""
    return process_id(pid) | (pid if tid is None else tid)


PLACE = "start end! deviceId! contextId! greenContextId streamId! correlationId globalPid"
TABLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": f"{PLACE} demangledName! shortName! mangledName launchType cacheConfig "
    "registersPerThread! gridX! gridY! gridZ! blockX! blockY! blockZ! staticSharedMemory! dynamicSharedMemory! "
    "localMemoryPerThread! localMemoryTotal! gridId! sharedMemoryExecuted graphNodeId sharedMemoryLimitConfig "
    "qmdBulkReleaseDone qmdPreexitDone qmdLastCtaDone graphId clusterX clusterY clusterZ clusterSchedulingPolicy "
    "maxPotentialClusterSize maxActiveClusters sharedMemoryRequestedPercentage tensorSizeMinusOneElements!",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{PLACE} bytes! copyKind! deprecatedSrcId srcKind dstKind srcDeviceId srcContextId "
    "dstDeviceId dstContextId migrationCause graphNodeId virtualAddress copyCount",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{PLACE} value! bytes! graphNodeId memKind",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": f"{PLACE} deprecatedSyncType syncType! eventId! eventSyncId",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start end deviceId contextId greenContextId streamId correlationId globalPid "
    "graphId graphExecId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start! end! eventClass! globalTid correlationId nameId! returnValue! callchainId",
    "OSRT_API": "start! end! eventClass! globalTid nameId! returnValue! nestingLevel callchainId! argumentsId!",
    "NVTX_EVENTS": "start! end eventType! rangeId category color text:TEXT globalTid endGlobalTid textId domainId "
    "uint64Value int64Value doubleValue:REAL uint32Value int32Value floatValue:REAL jsonTextId jsonText:TEXT "
    "binaryData:TEXT",
    "StringIds": "id:INTEGER_PRIMARY_KEY value:TEXT!",
    "TARGET_INFO_GPU": "vmId! id! name:TEXT busLocation:TEXT isDiscrete l2CacheSize totalMemory memoryBandwidth "
    "clockRate smCount pwGpuId uuid:TEXT luid chipName:TEXT cuDevice ctxswDevPath ctrlDevPath revision nodeMask "
    "constantMemory maxIPC maxRegistersPerBlock maxShmemPerBlock maxShmemPerBlockOptin maxShmemPerSm maxRegistersPerSm "
    "threadsPerWarp asyncEngines maxWarpsPerSm maxBlocksPerSm maxThreadsPerBlock maxBlockDimX maxBlockDimY "
    "maxBlockDimZ maxGridDimX maxGridDimY maxGridDimZ computeMajor computeMinor smMajor smMinor",
    "TARGET_INFO_CUDA_DEVICE": "gpuId cudaId! pid! uuid:TEXT numMultiprocessors",
    "TARGET_INFO_CUDA_CONTEXT_INFO": "nullStreamId! hwId! vmId! processId! deviceId! contextId! parentContextId "
    "isGreenContext numMultiprocessors",
    "TARGET_INFO_CUDA_NULL_STREAM": "streamId! hwId! vmId! processId! deviceId! contextId!",
    "TARGET_INFO_SYSTEM_ENV": "globalVid devStateName:TEXT! name:TEXT! nameEnum! value:TEXT!",
    "META_DATA_EXPORT": "name:TEXT! value:TEXT",
    "META_DATA_CAPTURE": "name:TEXT! value:TEXT",
    "EXPORT_META_DATA": "name:TEXT! value:TEXT",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs utcTime:TEXT localTime:TEXT systemClockNs",
    "ANALYSIS_DETAILS": "globalVid! duration! startTime! stopTime!",
    "DIAGNOSTIC_EVENT": "timestamp! timestampType! source! severity! text:TEXT! globalPid",
    "PROCESSES": "globalPid pid name:TEXT",
    "ThreadNames": "nameId! priority globalTid",
}
"""Columns as of schema 3.25.0 (``!`` = NOT NULL; integers unless they say otherwise), and tables of older ones."""


SINCE: dict[str, tuple[int, int, int]] = {
    "greenContextId": (3, 7, 2),
    **dict.fromkeys(
        (
            *("qmdBulkReleaseDone", "qmdPreexitDone", "qmdLastCtaDone", "clusterX", "clusterY", "clusterZ"),
            *("clusterSchedulingPolicy", "maxPotentialClusterSize", "maxActiveClusters", "copyCount"),
            *("deprecatedSyncType", "eventSyncId", "argumentsId", "CUPTI_ACTIVITY_KIND_KERNEL.graphId"),
        ),
        (3, 24, 0),
    ),
    **dict.fromkeys(
        (
            *("sharedMemoryRequestedPercentage", "systemClockNs", "TARGET_INFO_CUDA_DEVICE.uuid"),
            "numMultiprocessors",
        ),
        (3, 24, 14),
    ),
    **dict.fromkeys(("tensorSizeMinusOneElements", "binaryData"), (3, 25, 0)),
    # tables
    **dict.fromkeys(("META_DATA_EXPORT", "META_DATA_CAPTURE"), (3, 4, 0)),
    "TARGET_INFO_CUDA_CONTEXT_INFO": (3, 7, 2),
    "DIAGNOSTIC_EVENT": (3, 13, 2),
    "TARGET_INFO_CUDA_DEVICE": (3, 17, 2),
}
"""The schema that brought a table or a column (``table.column`` where another table had one of that name before)."""
UNTIL: dict[str, tuple[int, int, int]] = {"EXPORT_META_DATA": (3, 4, 0), "TARGET_INFO_CUDA_NULL_STREAM": (3, 0, 0)}
"""The schema that no longer had a table."""
GENERATIONS = [
    *("2.9.1", "3.1.7", "3.4.0", "3.7.2", "3.13.2", "3.16.1", "3.17.2", "3.24.0", "3.24.14", "3.25.0"),
]
PRODUCTS = {"2.9.1": "2022.1.3.3", "3.1.7": "2023.2.3.1001", "3.4.0": "2023.3.1.92", "3.24.14": "2026.1.1.204"}


def exists(name: str, schema: tuple[int, ...], table: str = "") -> bool:
    """Whether a schema has the table or column `name`."""
    since = SINCE.get(f"{table}.{name}", SINCE.get(name, (0, 0, 0)))
    return since <= schema < UNTIL.get(name, (999, 0, 0))


class Export:
    """An export in the making. Tables appear when they get their first row, as with ``nsys export --lazy=true``.

    >>> export = Export(path).kernel("saxpy", 0, 100).kernel("saxpy", 200, 300)
    >>> export.close()
    """

    def __init__(
        self, path: Path, *, schema: str | None = "3.25.0", mode: str | None = "Graph", lazy: bool = True
    ) -> None:
        self.path = path
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode = OFF")
        self.connection.execute("PRAGMA synchronous = OFF")
        self.connection.execute("BEGIN")
        self._made: dict[str, dict[str, bool]] = {}
        self._strings: dict[str, int] = {}
        self._correlation = 0
        self.schema = tuple(int(part) for part in (schema or "3.25.0").split("."))
        old = not exists("META_DATA_EXPORT", self.schema)
        if schema is not None:
            table = "EXPORT_META_DATA" if old else "META_DATA_EXPORT"
            self.row(table, name="EXPORT_PRODUCT_NAME", value="NVIDIA Nsight Systems")
            self.row(table, name="EXPORT_PRODUCT_VERSION", value=PRODUCTS.get(schema, "2026.2.1.210"))
            self.row(table, name="EXPORT_SCHEMA_VERSION", value=schema)
        if mode is not None:
            table = "EXPORT_META_DATA" if old else "META_DATA_CAPTURE"
            self.row(table, name="CUDA_GRAPH_TRACE_OPTIONS:MODE", value=mode)
        for table in () if lazy else [name for name in TABLES if exists(name, self.schema)]:
            self.table(table)

    def table(self, name: str) -> dict[str, bool]:
        """Makes a table, empty if nothing follows; returns its columns and whether each must have a value."""
        if name not in self._made:
            columns = {}
            words = []
            for column in TABLES[name].split():
                plain, _, type_ = column.rstrip("!").partition(":")
                if exists(plain, self.schema, name):
                    columns[plain] = column.endswith("!")
                    words.append(f'"{plain}" {type_.replace("_", " ") or "INTEGER"}{" NOT NULL" * columns[plain]}')
            self.connection.execute(f"CREATE TABLE {name} ({', '.join(words)})")
            self._made[name] = columns
        return self._made[name]

    def row(self, table: str, **values: Any) -> Self:
        """Adds a row; what must have a value and gets none is 0."""
        columns = self.table(table)
        full = {column: 0 for column, needed in columns.items() if needed} | values
        names = ", ".join(f'"{name}"' for name in full)
        marks = ", ".join("?" * len(full))
        self.connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(full.values()))
        return self

    def string(self, text: str) -> int:
        """The id of a string."""
        if text not in self._strings:
            self._strings[text] = len(self._strings) + 1
            self.row("StringIds", id=self._strings[text], value=text)
        return self._strings[text]

    def place(
        self, start: int, end: int, device: int, stream: int, pid: int, correlation: int | None
    ) -> dict[str, Any]:
        """The columns that say when and where something ran on a GPU."""
        if correlation is None:
            self._correlation += 1
            correlation = self._correlation
        return {
            "start": start, "end": end, "deviceId": device, "contextId": 1, "streamId": stream,
            "correlationId": correlation, "globalPid": process_id(pid),
        }  # fmt: skip

    def kernel(
        self, name: str, start: int, end: int, *, short: str | None = None, device: int = 0, stream: int = 7,
        pid: int = 100, correlation: int | None = None, grid: tuple[int, int, int] = (1, 1, 1),
        block: tuple[int, int, int] = (128, 1, 1), registers: int = 32, **more: Any,
    ) -> Self:  # fmt: skip
        """A kernel's run on a GPU; `more` are columns by their names in the export."""
        values = self.place(start, end, device, stream, pid, correlation)
        values |= dict(zip(("gridX", "gridY", "gridZ"), grid, strict=True))
        values |= dict(zip(("blockX", "blockY", "blockZ"), block, strict=True))
        values |= {"demangledName": self.string(name), "shortName": self.string(short or name)}
        return self.row("CUPTI_ACTIVITY_KIND_KERNEL", **values, registersPerThread=registers, **more)

    def copy(
        self, start: int, end: int, *, kind: int = 1, bytes: int = 1, device: int = 0, stream: int = 7, pid: int = 100,  # noqa: A002
        correlation: int | None = None, **more: Any,
    ) -> Self:  # fmt: skip
        values = self.place(start, end, device, stream, pid, correlation)
        return self.row("CUPTI_ACTIVITY_KIND_MEMCPY", **values, copyKind=kind, bytes=bytes, **more)

    def memset(
        self, start: int, end: int, *, bytes: int = 1, device: int = 0, stream: int = 7, pid: int = 100,  # noqa: A002
        correlation: int | None = None,
    ) -> Self:  # fmt: skip
        return self.row(
            "CUPTI_ACTIVITY_KIND_MEMSET", **self.place(start, end, device, stream, pid, correlation), bytes=bytes
        )

    def sync(
        self, start: int, end: int, *, kind: int = 3, device: int = 0, stream: int = 7, pid: int = 100,
        correlation: int | None = None,
    ) -> Self:  # fmt: skip
        values = self.place(start, end, device, stream, pid, correlation)
        return self.row("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", **values, syncType=kind)

    def call(
        self,
        name: str,
        start: int,
        end: int,
        *,
        pid: int = 100,
        tid: int | None = None,
        correlation: int = 0,
        result: int = 0,
    ) -> Self:
        """A call of the CUDA API on the CPU."""
        return self.row(
            "CUPTI_ACTIVITY_KIND_RUNTIME", start=start, end=end, globalTid=thread_id(pid, tid),
            correlationId=correlation, nameId=self.string(name), returnValue=result,
        )  # fmt: skip

    def launch(
        self, name: str, called: int, start: int, end: int, *, api: str = "cudaLaunchKernel_v7000", pid: int = 100,
        tid: int | None = None, **more: Any,
    ) -> Self:  # fmt: skip
        """A kernel and the API call that launched it, 5 ns long."""
        self.kernel(name, start, end, pid=pid, **more)
        return self.call(
            api, called, called + 5, pid=pid, tid=tid, correlation=more.get("correlation", self._correlation)
        )

    def annotation(
        self,
        text: str | None,
        start: int,
        end: int | None,
        *,
        kind: int = 59,
        pid: int = 100,
        tid: int | None = None,
        **more: Any,
    ) -> Self:
        """An NVTX row: 59 is a nested range, 60 a range between two points, 34 a mark."""
        thread = thread_id(pid, tid)
        return self.row("NVTX_EVENTS", start=start, end=end, eventType=kind, text=text, globalTid=thread, **more)

    def gpu(self, device: int = 0, name: str = "NVIDIA H100 80GB HBM3", sms: int = 132, **more: Any) -> Self:
        limits = {
            "threadsPerWarp": 32, "maxWarpsPerSm": 64, "maxBlocksPerSm": 32, "maxRegistersPerSm": 65536,
            "maxShmemPerSm": 233472, "maxShmemPerBlockOptin": 232448, "computeMajor": 9, "computeMinor": 0,
        }  # fmt: skip
        return self.row("TARGET_INFO_GPU", id=device, name=name, smCount=sms, cuDevice=device, **{**limits, **more})

    def close(self) -> Path:
        """Writes the file; returns its path."""
        self.connection.execute("COMMIT")
        self.connection.close()
        return self.path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
