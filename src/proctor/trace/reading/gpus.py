"""Which GPU a process means by a device number, and what the trace says of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from proctor.trace.model import Gpu, pid_of
from proctor.trace.views import quoted

_LIMITS = (
    *("threadsPerWarp", "maxWarpsPerSm", "maxBlocksPerSm", "maxThreadsPerBlock", "maxRegistersPerBlock"),
    *("maxRegistersPerSm", "maxShmemPerBlock", "maxShmemPerBlockOptin", "maxShmemPerSm", "totalMemory", "l2CacheSize"),
)
_NAMED = "TARGET_INFO_GPU"
_NUMBERED = "TARGET_INFO_CUDA_DEVICE"
_MOST_GPUS = 10_000

Row = Mapping[str, Any]


def gpus_of(
    connection: sqlite3.Connection,
    tables: Mapping[str, Collection[str]],
    processes: Iterable[int],
    used: Collection[tuple[int | None, int]],
    *,
    source: str = _NAMED,
) -> list[Gpu]:
    """The GPUs of an export: those of the machine, and for each process those that it numbers differently.

    A device number means what the process says it means, since ``CUDA_VISIBLE_DEVICES`` renumbers; exports say it from
    schema 3.17.2 on, in TARGET_INFO_CUDA_DEVICE. Before that the numbers are taken as those of the whole machine.

    Args:
        connection: to the export.
        tables: its tables with their columns.
        processes: every process of the trace, as ``globalPid``.
        used: (process, device) of everything that ran on a GPU; what the export does not describe is listed as such.
        source: where the descriptions come from, in words.
    """
    physical = {number: row for row in _rows(connection, tables, _NAMED) if (number := _integer(row, "id")) is not None}
    found: dict[tuple[int | None, int], Gpu] = {}
    for number, row in physical.items():
        ordinal = _integer(row, "cuDevice")
        device = number if ordinal is None else ordinal
        found.setdefault(
            (None, device), _described(device, row, source)
        )  # a second machine in one export: the first counts
    for row in _rows(connection, tables, _NUMBERED):
        gpu, pid = _numbered(row, physical, source), _integer(row, "pid")
        if gpu is None or gpu == found.get((None, gpu.device)):
            continue
        keys: list[int | None] = [process for process in processes if pid_of(process) == pid]
        for key in keys or [None]:
            found.setdefault((key, gpu.device), msgspec.structs.replace(gpu, process=key))
    for process, device in used:
        if (process, device) not in found and (None, device) not in found:
            found[None, device] = Gpu(device=device)
    return sorted(found.values(), key=lambda gpu: (gpu.process is not None, gpu.process or 0, gpu.device))


def _numbered(row: Row, physical: Mapping[int, Row], source: str) -> Gpu | None:
    device, number = _integer(row, "cudaId"), _integer(row, "gpuId")
    if device is None:
        return None
    sms = _positive(row, "numMultiprocessors")  # of what the process may use: fewer than the GPU's under MIG
    uuid = _text(row.get("uuid"))
    if number is None or number not in physical:
        return Gpu(device=device, sm_count=sms, uuid=uuid, origin=_NUMBERED)
    gpu = _described(device, physical[number], source)
    origin = source if sms in (None, gpu.sm_count) else f"{source}, SMs from {_NUMBERED}"
    return msgspec.structs.replace(gpu, sm_count=sms or gpu.sm_count, uuid=uuid or gpu.uuid, origin=origin)


def _described(device: int, row: Row, source: str) -> Gpu:
    major, minor = _positive(row, "computeMajor"), _integer(row, "computeMinor")
    return Gpu(
        device=device,
        name=_text(row.get("name")),
        sm_count=_positive(row, "smCount"),
        compute=None if major is None or minor is None else (major, minor),
        uuid=_text(row.get("uuid")),
        memory_bytes_per_second=_positive(row, "memoryBandwidth"),
        limits={name: value for name in _LIMITS if (value := _positive(row, name)) is not None},
        origin=source,
    )


def _rows(connection: sqlite3.Connection, tables: Mapping[str, Collection[str]], table: str) -> Iterable[Row]:
    if table not in tables:
        return
    columns = list(tables[table])
    names = ", ".join(quoted(column) for column in columns)
    for values in connection.execute(f"SELECT {names} FROM main.{table} ORDER BY rowid LIMIT {_MOST_GPUS}"):
        yield dict(zip(columns, values, strict=True))


def _integer(row: Row, name: str) -> int | None:
    value = row.get(name)
    return value if isinstance(value, int) else None


def _positive(row: Row, name: str) -> int | None:
    value = _integer(row, name)
    return value if value is not None and value > 0 else None


def _text(value: Any) -> str:
    return value[:200] if isinstance(value, str) else ""
