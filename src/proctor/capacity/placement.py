"""Which node gets how many engines and tasks that read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from proctor.capacity.arithmetic import (
    BUFFERED_BLOCKS,
    ROUNDING,
    STORE_SHARE,
    node_free,
    reads_by_cpu,
    reads_by_memory,
)
from proctor.capacity.cluster import Node


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


def most_engines(node: Node, demand: Demand, *, beside_a_task: bool, stored: bool = False) -> int:
    """The smallest of `engine_limits`; with `stored` also no more than the object store and its disk hold blocks of."""
    limits = list(engine_limits(node, demand, beside_a_task=beside_a_task).values())
    if stored:
        task = BUFFERED_BLOCKS * demand.block_bytes if beside_a_task else 0.0
        limits.append(_floor(_block_room(node) - task, demand.blocks_in_flight * demand.block_bytes))
    return min((limit for limit in limits if limit is not None), default=demand.engines)


def place(nodes: Sequence[Node], demand: Demand) -> list[Share]:
    """Deals the engines out evenly, and gives the rest of each node to reading.

    The first of these that gives every engine a place, and reading at least one task, is taken; the last of them does
    if any way does, so that a node with more of anything never turns a run away: engines wherever they fit; each
    beside a task that reads; only one node keeps room for such a task. When none does, those that fit are placed, and
    the object store is left out of it: it has a check of its own.
    """
    for deal in _deals(nodes, demand, stored=True):
        shares = _shares(demand, deal, stored=True)
        if _complete(shares, demand):
            return shares
    best: list[Share] = []
    for deal in _deals(nodes, demand, stored=False):
        shares = _shares(demand, deal, stored=False)
        if any(share.reads for share in shares) and any(share.engines for share in shares):
            return shares
        best = shares
    return best


def _complete(shares: Sequence[Share], demand: Demand) -> bool:
    engines = sum(share.engines * share.count for share in shares)
    return engines >= demand.engines and any(share.reads for share in shares)


_Room = tuple[Node, int, int]
"""A node, how many of them, and engines on each: those there is room for, or those that it gets."""


def _deals(nodes: Sequence[Node], demand: Demand, *, stored: bool) -> Iterator[list[_Room]]:
    def most(node: Node, beside_a_task: bool) -> int:
        return most_engines(node, demand, beside_a_task=beside_a_task, stored=stored)

    alone = [(node, node.count, most(node, False)) for node in nodes]
    beside = [(node, node.count, most(node, True)) for node in nodes]
    yield _deal(alone, demand.engines)
    yield _deal(beside, demand.engines)
    able = [at for at, node in enumerate(nodes) if _share(node, 1, 0, demand, stored=stored).reads]
    if able:  # the node that loses fewest engines by it
        at = min(able, key=lambda at: alone[at][2] - beside[at][2])
        reader, others = (nodes[at], 1, beside[at][2]), (nodes[at], nodes[at].count - 1, alone[at][2])
        yield _deal([*alone[:at], reader, others, *alone[at + 1 :]], demand.engines)
    yield _deal(beside, demand.engines)


def _deal(room: Sequence[_Room], engines: int) -> list[_Room]:
    """One engine after another to every node in turn that has room: in whole rounds, and then a part of one."""

    def placed(rounds: int) -> int:
        return sum(min(most, rounds) * count for _, count, most in room)

    rounds = last_that(lambda rounds: placed(rounds) <= engines, 0, max((most for _, _, most in room), default=0))
    left, dealt = engines - placed(rounds), []
    for node, count, most in room:
        more = min(left, count) if most > rounds else 0
        left -= more
        dealt += [(node, more, rounds + 1)] if more else []
        dealt.append((node, count - more, min(most, rounds)))
    return [part for part in dealt if part[1]]


def last_that(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The largest whole number up to `high` for which `holds`, which is true up to some number; else `low`."""
    if holds(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _block_room(node: Node) -> float:
    """Bytes of blocks that a node can hold: in its object store, and on the disk that it spills to."""
    return node.object_store + (node.disk or 0)


def _shares(demand: Demand, dealt: Sequence[_Room], *, stored: bool) -> list[Share]:
    """The shares, with no more tasks that read than the number that was given."""
    possible = [(_share(node, count, engines, demand, stored=stored), count) for node, count, engines in dealt]
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


def _share(node: Node, count: int, engines: int, demand: Demand, *, stored: bool) -> Share:
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
    beside = reads_by_cpu(node.cpus, engines, demand.engine_cpus, 0.0, demand.task_cpus)
    by_cpu = max(min(beside, 1), beside - 1)  # one of them marks and writes; a single one does both in turn
    queued = engines * demand.blocks_in_flight * demand.block_bytes
    buffered = BUFFERED_BLOCKS * demand.block_bytes
    by_store = max(1, math.floor((STORE_SHARE * node.object_store - queued) / max(1.0, buffered)))
    if stored and queued + buffered > _block_room(node) + 1:
        by_store = 0
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
        return math.floor(gpus / each + ROUNDING)
    return math.floor(gpus + ROUNDING) * math.floor(1 / each + ROUNDING)


def _floor(have: float, each: float) -> int | None:
    return max(0, math.floor(have / each + ROUNDING)) if each else None
