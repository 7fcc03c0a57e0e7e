"""The words of the trace room: what a trace holds, whichever tool wrote it."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec


class Schema(NamedTuple):
    """Version of Nsight Systems' export format: major breaks, minor renames or retypes, micro adds.

    Source: Nsight Systems user guide, "SQLite Schema Reference".
    """

    major: int
    minor: int
    micro: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.micro}"


class Origin(StrEnum):
    """What wrote a trace."""

    NSYS = "nsys"
    KINETO = "kineto"


class GraphMode(StrEnum):
    """How CUDA graphs were captured: as one event a launch, or node by node."""

    GRAPH = "graph"
    NODE = "node"
    UNKNOWN = "unknown"


class Severity(StrEnum):
    """How much a note takes from what a trace can say."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Note(msgspec.Struct, frozen=True):
    """Something a reader must know before trusting a figure of this trace.

    Attributes:
        code: stable, for machines, e.g. ``no_kernels``, ``graph_mode``.
        severity: `error` where the question cannot be answered at all.
        what: the fact, in one line.
        meaning: what it does to the figures.
        advice: what to capture or do next time.
    """

    code: str
    severity: Severity
    what: str
    meaning: str
    advice: str = ""


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as one process numbered it.

    Attributes:
        device: the number in the trace (``deviceId``), which is the process's own numbering.
        process: the process it holds for (``globalPid``), or None: for every process.
        name: the product's name, e.g. ``NVIDIA H100 80GB HBM3``; empty where the trace does not say.
        sm_count: streaming multiprocessors; None where unknown.
        compute: compute capability (major, minor); None where unknown.
        uuid: of the physical GPU, where the trace says it.
        memory_bytes_per_second: peak bandwidth of the GPU's memory; None where unknown.
        limits: limits of an SM as the trace gives them, named as in ``TARGET_INFO_GPU``: ``threadsPerWarp``,
            ``maxWarpsPerSm``, ``maxBlocksPerSm``, ``maxRegistersPerSm``, ``maxShmemPerSm`` (bytes) ...; empty if none.
        origin: where this was read, in words: ``TARGET_INFO_GPU``, ``deviceProperties`` or ``not in the trace``.
    """

    device: int
    process: int | None = None
    name: str = ""
    sm_count: int | None = None
    compute: tuple[int, int] | None = None
    uuid: str = ""
    memory_bytes_per_second: int | None = None
    limits: dict[str, int] = {}
    origin: str = "not in the trace"


class Process(NamedTuple):
    """A process of the trace."""

    process: int
    """``globalPid``: the key in every view."""
    pid: int
    name: str


def pid_of(process: int) -> int:
    """The operating system's process id within a ``globalPid`` or ``globalTid``.

    Source: Nsight Systems user guide: ``PID = globalTid / 0x1000000 % 0x1000000``.
    """
    return (process >> 24) & 0xFFFFFF


def tid_of(thread: int) -> int:
    """The operating system's thread id within a ``globalTid``."""
    return thread & 0xFFFFFF


LATEST = 1 << 62
"""Times lie within this many ns of 0 (from 1970 on, that is the year 2116), so that spans fit 64 bits."""

COPY_KINDS = {
    0: "unknown",
    1: "host to device",
    2: "device to host",
    3: "host to array",
    4: "array to host",
    5: "array to array",
    6: "array to device",
    7: "device to array",
    8: "device to device",
    9: "host to host",
    10: "peer to peer",
    11: "unified, host to device",
    12: "unified, device to host",
    13: "unified, device to device",
}
"""``copyKind``; source: the export's own ``ENUM_CUDA_MEMCPY_OPER``."""

MEMORY_KINDS = {
    0: "pageable",
    1: "pinned",
    2: "device",
    3: "array",
    4: "managed",
    5: "device static",
    6: "managed static",
    7: "unknown",
}
"""``srcKind``, ``dstKind``, ``memKind``; source: ``ENUM_CUDA_MEM_KIND``."""

SYNC_KINDS = {0: "unknown", 1: "event", 2: "stream wait", 3: "stream", 4: "context"}
"""``syncType``; source: ``ENUM_CUPTI_SYNC_TYPE``. 4 waits for the whole device context."""
