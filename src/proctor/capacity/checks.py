"""The checks of a plan: what a run needs, against what there is."""

from __future__ import annotations

from collections.abc import Sequence

from proctor.capacity.arithmetic import RAM_SHARE, cpu_check, store_check
from proctor.capacity.cluster import Node
from proctor.capacity.figures import Check, Figure, Level
from proctor.capacity.model import Model
from proctor.capacity.placement import Demand, Share, engine_limits, engine_room, most_engines
from proctor.capacity.sample import Sample
from proctor.spec import CapacitySpec, MdsSourceSpec, RunSpec
from proctor.storage.connect import is_url

_MB = 1_000_000


def data_checks(sample: Sample) -> list[Check]:
    """Whether anything could be measured."""
    if sample.trouble is None:
        return []
    message = f"{sample.trouble.kind.value}: {sample.trouble.message}"
    return [Check("data", "sample", "unknown", None, None, "", f"no row of the sample can be used: {message}")]


def model_checks(models: Sequence[Model]) -> list[Check]:
    """Models whose files do not tell what they take: no reason to refuse them, the engine may know more of them."""
    return [
        Check("model", "engine.checkpoints", "unknown", None, None, "", f"memory of the model not known: {line}")
        for line in dict.fromkeys(line for model in models for line in model.missing)
    ]


def engine_checks(spec: RunSpec, demand: Demand, shares: Sequence[Share], nodes: Sequence[Node]) -> list[Check]:
    """Places for the engines, and CPUs for them and one task beside them."""
    cpus = sum(node.cpus * node.count for node in nodes)
    checks = [cpu_check(demand.engines, demand.engine_cpus, demand.task_cpus, cpus)]
    if demand.engine_gpus:
        gpus = sum(node.gpus * node.count for node in nodes)
        need = demand.engines * demand.engine_gpus
        formula = f"{demand.engines} x {demand.engine_gpus:g} = {need:g} {'<=' if need <= gpus else '>'} {gpus:g}"
        checks.append(Check("gpu", "cluster", "ok" if need <= gpus else "fails", need, gpus, "GPUs", formula))
    placed = sum(share.engines * share.count for share in shares)
    alone = sum(most_engines(node, demand, beside_a_task=False) * node.count for node in nodes)
    beside = placed < min(demand.engines, alone)
    limits = "; ".join(_limits_text(node, demand, beside_a_task=beside) for node in nodes)
    level: Level = "ok" if placed >= demand.engines else "fails"
    formula = f"{placed} of {demand.engines} find a place; {limits}"
    advice = "" if level == "ok" else "fewer engines"
    checks.append(Check("engines", "cluster", level, demand.engines, placed, "engines", formula, advice))
    cores = sum(node.real_cpus * node.count for node in nodes)
    busy = demand.engines * demand.engine_cpus
    if busy > cores and spec.engine.kind not in ("scripted", "openai"):
        formula = f"{demand.engines} x {demand.engine_cpus:g} = {busy:g} > {cores:g} CPUs that there really are"
        checks.append(Check("cpu", "cores", "tight", busy, cores, "CPUs", formula, "engines share CPUs"))
    return checks


def _limits_text(node: Node, demand: Demand, *, beside_a_task: bool) -> str:
    limits = engine_limits(node, demand, beside_a_task=beside_a_task)
    parts = [f"{name} allow {limit}" for name, limit in limits.items() if limit is not None and name != "memory"]
    room = engine_room(node, demand, beside_a_task=beside_a_task)
    parts.append(f"memory allows {limits['memory']} = {room / 1e9:.3g} GB / {demand.engine_memory / 1e9:.3g} GB")
    return f"{node.name}{', beside a task that reads' if beside_a_task else ''}: {', '.join(parts)}"


def memory_checks(demand: Demand, shares: Sequence[Share]) -> list[Check]:
    """Memory of each node for what is placed there, and room for at least one task that reads in the cluster."""
    checks = []
    readers = any(share.reads for share in shares)
    for share in shares:
        limit = RAM_SHARE * share.node.ram
        tasks = share.reads if readers else 1
        need = limit - share.free + tasks * demand.task_memory
        fails = share.free < 0 or (not readers and share.by_memory < 1)
        level: Level = "fails" if fails else "ok"
        advice = "smaller blocks, a smaller object store or fewer engines" if fails else ""
        formula = _memory_formula(share, demand)
        checks.append(Check("memory", share.node.name, level, need, limit, "B", formula, advice))
    if not readers and all(check.level == "ok" for check in checks):
        formula = "no task that reads finds a CPU beside the engines"
        checks.append(Check("cpu", "cluster", "fails", demand.task_cpus, 0.0, "CPUs", formula, "fewer engines"))
    return checks


def _memory_formula(share: Share, demand: Demand) -> str:
    node = share.node
    taken = {
        "store": node.object_store,
        f"{share.engines} x engine": demand.engine_memory,
        "writer": demand.worker_memory if share.engines else 0,
        "others": node.used,
        "Ray": node.services,
    }
    parts = " - ".join(f"{name} {memory / 1e9:.3g}" for name, memory in taken.items())
    return (
        f"{RAM_SHARE:g} x {node.ram / 1e9:.4g} GB - {parts} = {share.free / 1e9:.3g} GB free; "
        f"/ task {demand.task_memory / 1e9:.3g} GB = {share.by_memory} by memory, {share.by_cpu} by CPU, "
        f"{share.by_store} by the store"
    )


def store_checks(shares: Sequence[Share]) -> list[Check]:
    """The object store of each node that does anything."""
    return [
        store_check(share.store_need, share.node.object_store, share.node.disk, share.node.name)
        for share in shares
        if share.engines or share.reads
    ]


def cache_checks(spec: RunSpec, shares: Sequence[Share]) -> list[Check]:
    """Disk for the shards that a node keeps, and for what does not fit into its object store."""
    if not (isinstance(spec.source, MdsSourceSpec) and is_url(spec.source.path)):
        return []
    checks = []
    for share in (share for share in shares if share.reads):
        spilled = max(0.0, share.store_need - share.node.object_store)
        need, disk = spec.source.cache_gb * 1e9 + spilled, share.node.disk
        level: Level = "unknown" if disk is None else "ok" if need <= disk else "fails"
        formula = f"source.cache_gb {spec.source.cache_gb:g} + {spilled / 1e9:.3g} GB spilled"
        advice = "a smaller source.cache_gb" if level == "fails" else ""
        checks.append(Check("disk", share.node.name, level, need, disk, "B", formula, advice))
    return checks


def given_checks(spec: RunSpec, task: Figure, engine: Figure) -> list[Check]:
    """What the spec has Ray set aside, against what is taken; and whether reading and preparing are one task."""
    capacity = spec.capacity or CapacitySpec()
    needs = {"engine_memory_mb": engine, "read_memory_mb": task, "prepare_memory_mb": task}
    checks = []
    for key, figure in needs.items():
        given, need = getattr(capacity, key), figure.value or 0.0
        if given is not None and given * _MB < need:
            formula = f"capacity.{key} {given:,} MB < {need / 1e6:,.0f} MB, {figure.name}"
            advice = "leave the key out, and plan again"
            checks.append(Check("memory", f"capacity.{key}", "tight", need, given * _MB, "B", formula, advice))
    reads, prepares = capacity.concurrent_reads, capacity.prepare_workers
    if reads is not None and prepares is not None and reads != prepares:
        formula = (
            f"concurrent_reads {reads:,}, prepare_workers {prepares:,}: Ray does both in one task only if they are the "
            f"same; planned for {min(reads, prepares):,} at once"
        )
        advice = "give both the same number"
        checks.append(Check("tasks", "capacity.prepare_workers", "tight", prepares, reads, "tasks", formula, advice))
    return checks
