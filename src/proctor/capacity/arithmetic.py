"""How much of a node a run takes, as pure functions. Memory in bytes throughout.

node_free   = 0.9 x ram - store - engines x engine - workers x worker - used by others and by Ray itself
by memory   = floor(node_free / task peak)                       0: infeasible
by CPU      = floor((cpus - engines x engine CPUs - other CPUs) / CPUs of a task)
task peak   = f_heap x bytes in flight + 2 x block x f_arrow     (and what a worker takes by itself)
store       = engines x blocks in flight x block + reads x 2 x block
"""

from __future__ import annotations

import math
from typing import NamedTuple

from proctor.capacity.figures import Check

RAM_SHARE = 0.9
"""Share of a node's memory that a plan uses: Ray kills workers above 0.95 (``memory_usage_threshold``)."""
STORE_SHARE = 0.5
"""Share of the object store that Ray Data fills before it waits (``RAY_DATA_OBJECT_STORE_MEMORY_LIMIT_FRACTION``)."""
BUFFERED_BLOCKS = 2
"""Blocks that a task has made and nobody has taken yet: the buffer of Ray's streaming generator."""
ROUNDING = 1e-9


class Split(NamedTuple):
    """Shards that are dealt out to tasks: how many a task gets, how many tasks there are, and bytes of a task."""

    per_task: int
    tasks: int
    task_bytes: float


def split_shards(shards: int, shard_bytes: float, most_tasks: int) -> Split:
    """What a reader gets that takes whole shards, in at most `most_tasks` tasks.

    Whole shards do not divide evenly: of 48 tasks that were asked for 966 shards make 46.
    """
    per_task = math.ceil(shards / most_tasks)
    return Split(per_task, math.ceil(shards / per_task), per_task * shard_bytes)


def task_peak(f_heap: float, bytes_in_flight: float, block_bytes: float, f_arrow: float) -> float:
    """The most memory of a task that reads: what it holds of its source, and two blocks that it has made."""
    return f_heap * bytes_in_flight + 2 * block_bytes * f_arrow


def node_free(
    ram: float, store: float, *, engines: int, engine: float, workers: float = 0, worker: float = 0, used: float = 0
) -> float:
    """Memory of a node that is left for tasks that read; negative if the rest alone does not fit."""
    return ram * RAM_SHARE - store - engines * engine - workers * worker - used


def reads_by_memory(free: float, peak: float) -> int:
    """How many tasks that read fit into what is free at the same time."""
    return max(0, math.floor(free / peak + ROUNDING))


def reads_by_cpu(cpus: float, engines: int, engine_cpus: float, other_cpus: float, task_cpus: float = 1.0) -> int:
    """How many tasks that read fit beside the engines, and beside whatever else takes CPUs."""
    return max(0, math.floor((cpus - engines * engine_cpus - other_cpus) / task_cpus + ROUNDING))


def run_hours(rows: float, rows_per_second: float) -> float:
    """Hours that so many rows take."""
    return rows / rows_per_second / 3600


def cpu_check(engines: int, engine_cpus: float, stream_cpus: float, cpus: float, where: str = "cluster") -> Check:
    """Whether the engines, and what reads and prepares beside them, have CPUs. Ray waits for ever otherwise."""
    need = engines * engine_cpus + stream_cpus
    fits = need <= cpus + ROUNDING
    formula = f"{engines} x {engine_cpus:g} + {stream_cpus:g} = {need:g} {'<=' if fits else '>'} {cpus:g}"
    return Check("cpu", where, "ok" if fits else "fails", need, cpus, "CPUs", formula)


def store_check(held: float, store: float, disk: float | None, where: str = "cluster") -> Check:
    """Whether what is held at the same time has room in the object store; what has not is spilled to disk.

    Args:
        held: bytes of all blocks that exist at the same time.
        store: bytes of the object store.
        disk: free bytes of the disk for spilling; None if not known.
    """
    room = STORE_SHARE * store
    if held <= room:
        formula = f"{held / 1e9:.3g} GB <= {STORE_SHARE:g} x {store / 1e9:.3g} GB, Ray Data's share of the store"
        return Check("object store", where, "ok", held, room, "B", formula)
    if held <= store:
        formula = f"{held / 1e9:.3g} GB > {STORE_SHARE:g} x {store / 1e9:.3g} GB: readers will wait"
        return Check("object store", where, "tight", held, room, "B", formula, "a smaller stream.block_mb")
    spilled = held - store
    formula = f"{held / 1e9:.3g} GB > {store / 1e9:.3g} GB: {spilled / 1e9:.3g} GB to disk"
    fits = disk is not None and spilled <= disk
    if disk is not None:
        formula += f", which has {disk / 1e9:.3g} GB"
    return Check("object store", where, "tight" if fits else "fails", held, store, "B", formula, "hold fewer blocks")
