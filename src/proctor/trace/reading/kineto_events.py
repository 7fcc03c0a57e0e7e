"""Events of a PyTorch-profiler trace, as typed as Kineto writes them, and its words turned into codes.

Sources: pytorch/kineto, ``libkineto/src`` (``output_json.cpp``, ``CuptiActivity.cpp``, ``RocprofActivity_inl.h``,
``ActivityType.cpp``, ``DeviceProperties.cpp``).
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import msgspec

from proctor.trace.model import LATEST

Loose = int | float | str | None
"""A number as it may come: Kineto writes ``"N/A"`` and quoted numbers, too."""

_SQLITE_INTEGERS = range(-(1 << 63), 1 << 63)


class Head(msgspec.Struct):
    """What says which kind of event this is; the rest is decoded only if it is wanted."""

    ph: str = ""
    cat: str | None = None
    name: Any = None


class GpuArgs(msgspec.Struct):
    """Arguments of what ran on a GPU; which are there depends on the kind, the vendor and the version."""

    device: Loose = None
    inner_device: Loose = msgspec.field(default=None, name="inDevice")
    source_device: Loose = msgspec.field(default=None, name="fromDevice")
    target_device: Loose = msgspec.field(default=None, name="toDevice")
    context: Loose = None
    inner_context: Loose = msgspec.field(default=None, name="inContext")
    stream: Loose = None
    correlation: Loose = None
    bytes: Loose = None
    registers: Loose = msgspec.field(default=None, name="registers per thread")
    shared: Loose = msgspec.field(default=None, name="shared memory")
    grid: list[Loose] | None = None
    block: list[Loose] | None = None
    occupancy: Loose = msgspec.field(default=None, name="est. achieved occupancy %")
    graph: Loose = msgspec.field(default=None, name="graph id")
    graph_node: Loose = msgspec.field(default=None, name="graph node id")
    sync_kind: str | None = msgspec.field(default=None, name="cuda_sync_kind")
    event: Loose = msgspec.field(default=None, name="wait_on_cuda_event_id")


class GpuEvent(msgspec.Struct):
    """A kernel, copy, memset or synchronisation."""

    name: str
    ts: Decimal
    dur: Decimal = Decimal(0)
    pid: Loose = None
    args: GpuArgs = msgspec.field(default_factory=GpuArgs)


class CallArgs(msgspec.Struct):
    """Arguments of a call of the CUDA or HIP API."""

    correlation: Loose = None


class CpuEvent(msgspec.Struct):
    """An API call, an operator or an annotation."""

    name: str
    ts: Decimal
    pid: Loose
    tid: Loose
    dur: Decimal = Decimal(0)
    args: CallArgs = msgspec.field(default_factory=CallArgs)


class LabelArgs(msgspec.Struct):
    """The text of a label."""

    name: str = ""
    labels: str = ""


class Label(msgspec.Struct):
    """A name for a process or a thread."""

    name: str
    pid: Loose
    tid: Loose = None
    args: LabelArgs = msgspec.field(default_factory=LabelArgs)


class Device(msgspec.Struct):
    """An entry of ``deviceProperties``."""

    id: int
    name: str = ""
    total_memory: int | None = msgspec.field(default=None, name="totalGlobalMem")
    major: int | None = msgspec.field(default=None, name="computeMajor")
    minor: int | None = msgspec.field(default=None, name="computeMinor")
    threads_per_block: int | None = msgspec.field(default=None, name="maxThreadsPerBlock")
    threads_per_sm: int | None = msgspec.field(default=None, name="maxThreadsPerMultiprocessor")
    registers_per_block: int | None = msgspec.field(default=None, name="regsPerBlock")
    registers_per_sm: int | None = msgspec.field(default=None, name="regsPerMultiprocessor")
    warp: int | None = msgspec.field(default=None, name="warpSize")
    shared_per_block: int | None = msgspec.field(default=None, name="sharedMemPerBlock")
    shared_opt_in: int | None = msgspec.field(default=None, name="sharedMemPerBlockOptin")
    shared_per_sm: int | None = msgspec.field(default=None, name="sharedMemPerMultiprocessor")
    shared_per_cu: int | None = msgspec.field(default=None, name="maxSharedMemoryPerMultiProcessor")
    sms: int | None = msgspec.field(default=None, name="numSms")


class Document(msgspec.Struct):
    """The file. ``metadata``, where some tools put the environment, has no field here: it is never decoded."""

    events: list[msgspec.Raw] = msgspec.field(name="traceEvents")
    devices: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"null"), name="deviceProperties")
    distributed: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"null"), name="distributedInfo")
    base: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"null"), name="baseTimeNanoseconds")
    cupti: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"null"), name="cupti_version")


class Distributed(msgspec.Struct):
    """What ``torch.distributed`` says of this process."""

    rank: int | None = None
    world_size: int | None = None


def nanoseconds(microseconds: Decimal) -> int:
    """Microseconds as written, as whole nanoseconds; no binary fraction comes between.

    Raises:
        ValueError: not a time.
    """
    if microseconds.is_finite() and microseconds.adjusted() < 17:
        found = int((microseconds * 1000).to_integral_value())
        if abs(found) < LATEST:
            return found
    raise ValueError(f"not a time: {microseconds}")


def integer(value: Loose) -> int | None:
    """A number that SQLite can hold, or None."""
    if isinstance(value, str):
        if not re.fullmatch(r"-?[0-9]{1,19}", value):
            return None
        value = int(value)
    if isinstance(value, float):
        if not value.is_integer():
            return None
        value = int(value)
    return value if value is not None and value in _SQLITE_INTEGERS else None


_COPY_KINDS = {
    "HtoD": 1, "DtoH": 2, "HtoA": 3, "AtoH": 4, "AtoA": 5, "AtoD": 6, "DtoA": 7, "DtoD": 8, "HtoH": 9, "PtoP": 10,
}  # fmt: skip
_MEMORY_KINDS = {
    "Pageable": 0, "Pinned": 1, "Device": 2, "Array": 3, "Managed": 4, "Device Static": 5, "Managed Static": 6,
}  # fmt: skip


def copy_kinds(name: str) -> tuple[int, int, int]:
    """Codes of ``Memcpy DtoH (Device -> Pinned)``: the copy's kind, source and target; 0 and 7 where unknown."""
    match = re.match(r"Memcpy (\w+)(?: \((.*?) -> (.*?)\))?", name)
    if match is None:
        return 0, 7, 7
    return _COPY_KINDS.get(match[1], 0), _MEMORY_KINDS.get(match[2] or "", 7), _MEMORY_KINDS.get(match[3] or "", 7)


def memory_kind(name: str) -> int:
    """The code in ``Memset (Device)``."""
    match = re.match(r"Memset \((.*?)\)", name)
    return _MEMORY_KINDS.get(match[1], 7) if match else 7


def sync_kind(text: str) -> int:
    """The code of ``Stream Sync``, ``Stream Synchronize``, ``Event Sync``, ``Stream Wait Event``, ``Context Sync``."""
    for word, kind in (("stream wait", 2), ("event", 1), ("stream", 3), ("context", 4), ("device", 4)):
        if text.lower().startswith(word):
            return kind
    return 0
