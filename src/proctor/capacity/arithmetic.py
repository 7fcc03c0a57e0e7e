"""How much of a node a run takes, as pure functions. Memory in bytes throughout.

node_free   = 0.9 x ram - store - engines x engine - workers x worker - used by others and by Ray itself
by memory   = floor(node_free / task peak)                       0: infeasible
by CPU      = floor((cpus - engines x engine CPUs - other CPUs) / CPUs of a task)
task peak   = f_heap x bytes in flight + 2 x block x f_arrow     (and what a worker takes by itself)
store       = engines x blocks in flight x block + reads x 2 x block
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from proctor.capacity.cluster import Node
from proctor.capacity.figures import Check

RAM_SHARE = 0.9
"""Share of a node's memory that a plan uses: Ray kills workers above 0.95 (``memory_usage_threshold``)."""
STORE_SHARE = 0.5
"""Share of the object store that Ray Data fills before it waits (``RAY_DATA_OBJECT_STORE_MEMORY_LIMIT_FRACTION``)."""
BUFFERED_BLOCKS = 2
"""Blocks that a task has made and nobody has taken yet: the buffer of Ray's streaming generator."""
_ROUNDING = 1e-9


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
    return max(0, math.floor(free / peak + _ROUNDING))


def reads_by_cpu(cpus: float, engines: int, engine_cpus: float, other_cpus: float, task_cpus: float = 1.0) -> int:
    """How many tasks that read fit beside the engines, and beside whatever else takes CPUs."""
    return max(0, math.floor((cpus - engines * engine_cpus - other_cpus) / task_cpus + _ROUNDING))


def run_hours(rows: float, rows_per_second: float) -> float:
    """Hours that so many rows take."""
    return rows / rows_per_second / 3600


def cpu_check(engines: int, engine_cpus: float, stream_cpus: float, cpus: float, where: str = "cluster") -> Check:
    """Whether the engines, and what reads and prepares beside them, have CPUs. Ray waits for ever otherwise."""
    need = engines * engine_cpus + stream_cpus
    fits = need <= cpus + _ROUNDING
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


@dataclass(frozen=True, slots=True)
class Demand:
    """What a run asks of its nodes. Memory in bytes.

    Attributes:
        engines: engines in all.
        engine_cpus, engine_gpus, engine_memory: what one takes.
        task_cpus, task_memory: what a task takes that reads and prepares, at its peak.
        worker_memory: what a task takes that writes; one on each node with engines.
        block_bytes: a prepared block, in the object store.
        blocks_in_flight: blocks that an engine is handed at a time.
        engines_per_node: most engines on a node, if that is given.
        reads: most tasks that read at once, if that is given.
    """

    engines: int
    engine_cpus: float
    engine_gpus: float
    engine_memory: float
    task_cpus: float
    task_memory: float
    worker_memory: float
    block_bytes: float
    blocks_in_flight: int
    engines_per_node: int | None = None
    reads: int | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """What `count` nodes that are alike get.

    Attributes:
        node: the node.
        count: how many have this share.
        engines: engines on each.
        free: memory left for tasks that read.
        by_memory, by_cpu, by_store: how many of them memory, CPUs and the object store allow.
        reads: how many run at once on each.
        store_need: bytes of blocks that exist there at the same time.
        head_room: memory that is left then, below `RAM_SHARE` of the node.
    """

    node: Node
    count: int
    engines: int
    free: float
    by_memory: int
    by_cpu: int
    by_store: int
    reads: int
    store_need: float
    head_room: float


def engine_room(node: Node, demand: Demand, *, beside_a_task: bool) -> float:
    """Memory of a node for its engines."""
    room = node_free(node.ram, node.object_store, engines=0, engine=0, used=node.used + node.services)
    return room - demand.worker_memory - (demand.task_memory if beside_a_task else 0.0)


def engine_limits(node: Node, demand: Demand, *, beside_a_task: bool) -> dict[str, int | None]:
    """How many engines a node holds, by what limits them (None: not limited); `beside_a_task` leaves room for one."""
    cpus = node.cpus - (demand.task_cpus if beside_a_task else 0.0)
    room = engine_room(node, demand, beside_a_task=beside_a_task)
    return {
        "GPUs": _by_gpus(node.gpus, demand.engine_gpus),
        "CPUs": _floor(cpus, demand.engine_cpus),
        "memory": _floor(room, demand.engine_memory),
        "capacity.engines_per_node": demand.engines_per_node,
    }


def most_engines(node: Node, demand: Demand, *, beside_a_task: bool) -> int:
    """The smallest of `engine_limits`."""
    limits = engine_limits(node, demand, beside_a_task=beside_a_task).values()
    return min((limit for limit in limits if limit is not None), default=demand.engines)


def place(nodes: Sequence[Node], demand: Demand) -> list[Share]:
    """Deals the engines out evenly, and gives the rest of each node to reading.

    When not all engines fit, those that fit are placed. Readers get a node of their own only where there is one.
    """
    shares = _shares(demand, _deal(nodes, demand, beside_a_task=False))
    if not any(share.reads for share in shares):
        shares = _shares(demand, _deal(nodes, demand, beside_a_task=True))
    return shares


def _deal(nodes: Sequence[Node], demand: Demand, *, beside_a_task: bool) -> list[tuple[Node, int, int]]:
    """(node, how many of them, engines on each); each round gives one engine to every node that has room."""
    room = [most_engines(node, demand, beside_a_task=beside_a_task) for node in nodes]
    left, full, extra = demand.engines, [0] * len(nodes), [0] * len(nodes)
    while left and any(f < r for f, r in zip(full, room, strict=True)):
        for at, node in enumerate(nodes):
            if full[at] >= room[at] or not left:
                continue
            if left >= node.count:
                full[at] += 1
                left -= node.count
            else:
                extra[at], left = left, 0
    dealt = []
    for node, engines, more in zip(nodes, full, extra, strict=True):
        dealt += [(node, more, engines + 1)] if more else []
        dealt.append((node, node.count - more, engines))
    return dealt


def _shares(demand: Demand, dealt: Sequence[tuple[Node, int, int]]) -> list[Share]:
    """The shares, with no more tasks that read than the number that was given."""
    possible = [(_share(node, count, engines, demand), count) for node, count, engines in dealt]
    left = sum(share.reads * count for share, count in possible) if demand.reads is None else demand.reads
    shares = []
    for share, count in possible:
        each, more = min(divmod(left, count), (share.reads, 0)) if count else (0, 0)
        for part, reads in ((more, each + 1), (count - more, each)):
            if part:
                unused = (share.reads - reads) * demand.task_memory
                need = share.store_need - (share.reads - reads) * BUFFERED_BLOCKS * demand.block_bytes
                room = share.head_room + unused
                shares.append(replace(share, count=part, reads=reads, store_need=need, head_room=room))
        left -= each * count + more
    return shares


def _share(node: Node, count: int, engines: int, demand: Demand) -> Share:
    workers = 1 if engines else 0
    free = node_free(
        node.ram,
        node.object_store,
        engines=engines,
        engine=demand.engine_memory,
        workers=workers,
        worker=demand.worker_memory,
        used=node.used + node.services,
    )
    by_memory = reads_by_memory(free, demand.task_memory)
    by_cpu = reads_by_cpu(node.cpus, engines, demand.engine_cpus, 0.0, demand.task_cpus)
    queued = engines * demand.blocks_in_flight * demand.block_bytes
    buffered = BUFFERED_BLOCKS * demand.block_bytes
    by_store = max(1, math.floor((STORE_SHARE * node.object_store - queued) / max(1.0, buffered)))
    reads = max(0, min(by_memory, by_cpu, by_store))
    return Share(
        node=node,
        count=count,
        engines=engines,
        free=free,
        by_memory=by_memory,
        by_cpu=by_cpu,
        by_store=by_store,
        reads=reads,
        store_need=queued + reads * buffered,
        head_room=free - reads * demand.task_memory,
    )


def _by_gpus(gpus: float, each: float) -> int | None:
    """An engine with a fraction of a GPU shares one GPU; it is not spread over two."""
    if not each:
        return None
    if each >= 1:
        return math.floor(gpus / each + _ROUNDING)
    return math.floor(gpus + _ROUNDING) * math.floor(1 / each + _ROUNDING)


def _floor(have: float, each: float) -> int | None:
    return max(0, math.floor(have / each + _ROUNDING)) if each else None
