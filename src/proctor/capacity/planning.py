"""The plan of a run: what it takes of a cluster, whether that fits, and how fast it can be."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from proctor.capacity.arithmetic import ROUNDING
from proctor.capacity.cluster import Cluster
from proctor.capacity.cures import Change, cure
from proctor.capacity.engines import read_models
from proctor.capacity.evaluate import SMALLEST_STORE_MB, Evaluation, Facts, evaluate
from proctor.capacity.figures import Check, Figure
from proctor.capacity.sample import SAMPLE_SECONDS, take_sample
from proctor.capacity.throughput import Throughput, throughput
from proctor.rows import UserError
from proctor.sources.base import Source
from proctor.sources.registry import source_of
from proctor.spec import CapacitySpec, RunSpec
from proctor.spec.model import MOST

Verdict = Literal["fits", "fits with these changes", "refused", "unknown"]
"""``unknown``: nothing speaks against the run, but no row of the sample could be used, so that nothing is measured."""
EXIT_CODES: dict[Verdict, int] = {"fits": 0, "fits with these changes": 2, "refused": 3, "unknown": 3}
_MB = 1_000_000
_MARGIN = 1.25
"""What Ray sets aside for a task over its estimated peak."""


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What one node, or each of `count` that are alike, does. Memory in bytes.

    Attributes:
        node: its name.
        count: how many do the same.
        engines: engines on each.
        reads: tasks on each that read and prepare at once.
        blocks: prepared blocks on each that exist at the same time.
        store_need, object_store: bytes of these blocks, and of the object store.
        run_memory: memory of the run there when all of it works: engines, tasks, blocks, Ray's own, the driver.
        used: memory that others have taken.
        ram: memory of the node.
        head_room: memory left below 0.9 of it, with the whole object store full.
    """

    node: str
    count: int
    engines: int
    reads: int
    blocks: int
    store_need: float
    object_store: int
    run_memory: float
    used: int
    ram: int
    head_room: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What `plan` found.

    Attributes:
        verdict: see `Verdict`.
        changes: keys of the spec that make it fit; empty unless the verdict says so.
        checks: of the spec as it is.
        nodes: what each node does, with the changes.
        capacity: the block for the spec, with the changes; empty if the run is refused.
        throughput: what to expect, with the changes.
        figures: every number, with its formula and where it is from.
        rows: rows to do, over all checkpoints.
        blocks: blocks of a pass over the data.
        cluster: what it was worked out for.
    """

    verdict: Verdict
    changes: tuple[Change, ...]
    checks: tuple[Check, ...]
    nodes: tuple[NodePlan, ...]
    capacity: CapacitySpec
    throughput: Throughput
    figures: tuple[Figure, ...]
    rows: int
    blocks: int
    cluster: Cluster

    @property
    def exit_code(self) -> int:
        """0 fits, 2 fits with changes, 3 refused or unknown."""
        return EXIT_CODES[self.verdict]

    @property
    def reasons(self) -> tuple[Check, ...]:
        """The checks that fail."""
        return tuple(check for check in self.checks if check.level == "fails")

    def to_json(self) -> dict[str, Any]:
        """Plain data, as kept in a run's ``plan.json``."""
        names = ("verdict", "checks", "nodes", "throughput", "figures", "rows", "blocks")
        plain = {name: msgspec.to_builtins(getattr(self, name)) for name in names}
        return {
            **plain,
            "changes": [change._asdict() for change in self.changes],
            "capacity": self.capacity.model_dump(exclude_none=True),
            "cluster": self.cluster.to_json(),
        }


def plan(
    spec: RunSpec,
    cluster: Cluster,
    *,
    source: Source | None = None,
    rows: int | None = None,
    checkpoints: int | None = None,
    engine_rate: float | None = None,
    engine_memory: float | None = None,
    start_seconds: float | None = None,
    swap_seconds: float | None = None,
    sample_seconds: float = SAMPLE_SECONDS,
) -> Plan:
    """Plans `spec` on `cluster`: samples the data in a process of its own, reads the models' configurations, and
    works the rest out. Starts no Ray and no engine, writes nothing.

    Args:
        spec: the run, with absolute paths.
        cluster: see `cluster` and `described`.
        source: the run's source, if it is open already.
        rows: rows that are left to do, over all checkpoints; default: all.
        checkpoints: those that have rows left to do; default: all.
        engine_rate: rows a second of one engine, if that was measured.
        engine_memory: bytes of one engine's process, if they are known.
        start_seconds: seconds that an engine takes to start, if that was measured.
        swap_seconds: seconds that an engine takes to take over a checkpoint and to prove it, likewise.
        sample_seconds: time for the sample.

    Raises:
        UserError: the source or a model cannot be used at all.
    """
    if source is None:
        source = source_of(spec)
    expected = source.expected()
    if not expected:
        raise UserError("no rows: nothing to plan", where=spec.source.path)
    groups = source.groups(expected, spec.stream.block_rows, int(spec.stream.block_mb * _MB))
    facts = Facts(
        rows=len(expected) * len(spec.engine.checkpoints) if rows is None else rows,
        source_rows=len(expected),
        source_bytes=sum(group.size_bytes for group in groups),
        sample=take_sample(spec, source, groups, sample_seconds),
        models=tuple(read_models(spec)),
        engine_rate=engine_rate,
        engine_memory=engine_memory,
        start_seconds=start_seconds,
        swap_seconds=swap_seconds,
        checkpoints=checkpoints,
    )
    return plan_with(spec, facts, cluster)


def plan_with(spec: RunSpec, facts: Facts, cluster: Cluster) -> Plan:
    """The plan from facts that are known already. Pure."""
    first = evaluate(spec, facts, cluster)
    verdict: Verdict = "fits" if facts.sample.trouble is None else "unknown"
    changes: tuple[Change, ...] = ()
    final_spec, final = spec, first
    if first.failing:
        cured = cure(spec, facts, cluster)
        verdict = "refused" if cured is None else "fits with these changes"
        if cured is not None:
            final_spec, changes = cured
            final = evaluate(final_spec, facts, cluster)
    return Plan(
        verdict=verdict,
        changes=changes,
        checks=first.checks,
        nodes=_nodes(final),
        capacity=CapacitySpec() if verdict == "refused" else capacity_block(final_spec, final),
        throughput=throughput(final_spec, facts, final.shares),
        figures=final.figures,
        rows=facts.rows,
        blocks=facts.blocks(final_spec),
        cluster=cluster,
    )


def capacity_block(spec: RunSpec, found: Evaluation) -> CapacitySpec:
    """The block for the spec. Numbers that the spec gives are kept; those that are added never set more aside than
    what is free on the fullest node, so that the block fits when it is planned again."""
    given = CapacitySpec() if spec.capacity is None else spec.capacity
    free = min((share.free / share.reads for share in found.shares if share.reads), default=math.inf)
    memory = min(max(_MARGIN * found.task_estimate, found.demand.task_memory), free)
    task = max(1, math.floor(memory / _MB + ROUNDING))
    worked_out: dict[str, int] = {
        "engines_per_node": max(share.engines for share in found.shares),
        "engine_memory_mb": max(1, math.ceil(found.demand.engine_memory / _MB)),
        "concurrent_reads": found.reads,
        "read_memory_mb": task,
        "prepare_workers": found.reads,
        "prepare_memory_mb": task,
        "object_store_mb": max(SMALLEST_STORE_MB, min(share.node.object_store for share in found.shares) // _MB),
    }
    block = {name: min(value, MOST) or None for name, value in worked_out.items()}
    return CapacitySpec(**{**block, **given.model_dump(exclude_none=True)})


def _nodes(found: Evaluation) -> tuple[NodePlan, ...]:
    return tuple(_node_plans(found))


def _node_plans(found: Evaluation) -> Iterable[NodePlan]:
    demand = found.demand
    for share in found.shares:
        node = share.node
        tasks = share.reads * demand.task_memory + (demand.worker_memory if share.engines else 0)
        blocks = share.store_need / demand.block_bytes if demand.block_bytes else 0
        yield NodePlan(
            node=node.name,
            count=share.count,
            engines=share.engines,
            reads=share.reads,
            blocks=round(blocks),
            store_need=share.store_need,
            object_store=node.object_store,
            run_memory=node.services + share.engines * demand.engine_memory + tasks + share.store_need,
            used=node.used,
            ram=node.ram,
            head_room=share.head_room,
        )
