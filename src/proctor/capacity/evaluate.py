"""One spec on one cluster: what each node gets, and every check. Pure: the same facts give the same plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from proctor.capacity.arithmetic import (
    RAM_SHARE,
    Demand,
    Share,
    cpu_check,
    engine_limits,
    engine_room,
    most_engines,
    place,
    store_check,
    task_peak,
)
from proctor.capacity.cluster import Cluster, Node
from proctor.capacity.engines import RowNeed, host_memory, on_gpu, row_need
from proctor.capacity.figures import Check, Figure, Level
from proctor.capacity.gpu import GpuFit, fit_gpu
from proctor.capacity.model import Model
from proctor.capacity.overhead import WORKER_BYTES
from proctor.capacity.sample import Sample
from proctor.spec import CapacitySpec, MdsSourceSpec, RunSpec
from proctor.storage.connect import is_url

_MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found out about the data and the models, and what the person says.

    Attributes:
        rows: rows that are left to do, over all checkpoints.
        source_rows: rows of the source.
        source_bytes: bytes of the source, as it counts them.
        sample: measured.
        models: of the checkpoints; empty for engines that load none.
        engine_rate: rows a second of one engine, if it was measured.
        engine_memory: bytes of one engine's process, if they are known.
    """

    rows: int
    source_rows: int
    source_bytes: int
    sample: Sample
    models: tuple[Model, ...] = ()
    engine_rate: float | None = None
    engine_memory: float | None = None

    def blocks(self, spec: RunSpec) -> int:
        """Blocks of one pass over the source, about: as many as rows or bytes ask for."""
        by_rows = math.ceil(self.source_rows / spec.stream.block_rows)
        by_bytes = math.ceil(self.source_bytes / (spec.stream.block_mb * _MB))
        return max(1, by_rows, by_bytes)

    def block_bytes(self, spec: RunSpec) -> float:
        """Bytes of the largest block, as the source counts them: a full one, or a single row that is larger."""
        full = min(spec.stream.block_mb * _MB, spec.stream.block_rows * self.sample.mean_row, self.source_bytes)
        return max(full, self.sample.largest_row / (self.sample.f_arrow or 1.0))

    def prepared_block(self, spec: RunSpec) -> float:
        """Bytes of the largest block in the object store."""
        return self.block_bytes(spec) * max(self.sample.f_prepared, self.sample.f_arrow)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What came out: the shares of the nodes, the checks, and the numbers behind them."""

    demand: Demand
    shares: tuple[Share, ...]
    checks: tuple[Check, ...]
    figures: tuple[Figure, ...]
    gpu: tuple[GpuFit, ...]

    @property
    def failing(self) -> tuple[Check, ...]:
        """The checks that keep the run from working."""
        return tuple(check for check in self.checks if check.level == "fails")

    @property
    def engines(self) -> int:
        """Engines that found a place."""
        return sum(share.engines * share.count for share in self.shares)

    @property
    def reads(self) -> int:
        """Tasks that read and prepare at once, in the whole cluster."""
        return sum(share.reads * share.count for share in self.shares)


def evaluate(spec: RunSpec, facts: Facts, cluster: Cluster) -> Evaluation:
    """Works out what `spec` takes of `cluster`."""
    nodes = _as_told(spec, cluster.nodes)
    figures = _task_figures(spec, facts)
    engine = host_memory(spec, facts.sample, list(facts.models), facts.prepared_block(spec), facts.engine_memory)
    demand = _demand(spec, facts, task=figures[-1].value or 0.0, engine=engine[-1].value or 0.0)
    shares = tuple(place(nodes, demand))
    fits = _gpu_fits(spec, facts, nodes)
    checks = [
        *_data_checks(facts.sample),
        *_engine_checks(spec, demand, shares, nodes),
        *_memory_checks(demand, shares),
        *(fit.check for fit in fits),
        *_store_checks(shares),
        *_cache_checks(spec, shares),
        *_given_checks(spec, figures[-1]),
    ]
    all_figures = (*figures, *engine, *(figure for fit in fits for figure in fit.figures))
    return Evaluation(demand, shares, tuple(checks), all_figures, fits)


def _as_told(spec: RunSpec, nodes: Sequence[Node]) -> list[Node]:
    """The nodes with the object store that the spec asks for, where the run starts Ray itself: on one machine."""
    given = spec.ray.object_store_mb or (spec.capacity or CapacitySpec()).object_store_mb
    if given is None or spec.ray.address is not None or sum(node.count for node in nodes) > 1:
        return list(nodes)
    sources = {"object_store": "the spec"}
    return [replace(node, object_store=given * _MB, sources={**node.sources, **sources}) for node in nodes]


def _task_figures(spec: RunSpec, facts: Facts) -> list[Figure]:
    """What a task takes that reads and prepares; the last is the sum."""
    sample, block = facts.sample, facts.block_bytes(spec)
    read, prepare = sample.block_peak(block)
    prepared = facts.prepared_block(spec)
    peak = task_peak(1.0, read + prepare, prepared, 1.0)
    exact = "the kernel's high-water mark" if sample.exact_peaks else "looked at every 2 ms"
    return [
        Figure("mean row", sample.mean_row, "B", f"{sample.rows:,} rows of {len(sample.blocks)} blocks", "measured"),
        Figure(
            "largest row", sample.largest_row, "B", "among those, or of their shards where the format tells", "measured"
        ),
        Figure("images a row", sample.images_per_row, "", "mean", "measured"),
        Figure("f_heap", sample.f_heap, "", f"peak while reading / bytes of the rows; {exact}", "measured"),
        Figure("f_arrow", sample.f_arrow, "", "bytes in Arrow / bytes of the rows", "measured"),
        Figure("largest block", block, "B", "min(block_mb, block_rows x mean row), or the largest row", "computed"),
        Figure("reading a block", read, "B", "f_heap x block", "measured"),
        Figure("preparing a block", prepare, "B", "peak while decoding, prompting and copying it", "measured"),
        Figure(
            "two finished blocks", 2 * prepared, "B", "2 x block x f_arrow, the buffer of Ray's generator", "computed"
        ),
        Figure("a worker by itself", WORKER_BYTES, "B", "Ray, Ray Data, pyarrow, Pillow", "measured"),
        Figure("peak of a task", WORKER_BYTES + peak, "B", "sum of the four above", "computed"),
    ]


def _demand(spec: RunSpec, facts: Facts, *, task: float, engine: float) -> Demand:
    capacity = spec.capacity or CapacitySpec()
    given = [count for count in (capacity.concurrent_reads, capacity.prepare_workers) if count is not None]
    return Demand(
        engines=spec.engines_at_once,
        engine_cpus=spec.engine.cpus_per_replica,
        engine_gpus=spec.engine.gpus_per_replica,
        engine_memory=max(engine, (capacity.engine_memory_mb or 0) * _MB),
        task_cpus=spec.stream.prepare_cpus,
        task_memory=max(task, (capacity.read_memory_mb or 0) * _MB, (capacity.prepare_memory_mb or 0) * _MB),
        worker_memory=WORKER_BYTES,
        block_bytes=facts.prepared_block(spec),
        blocks_in_flight=spec.stream.blocks_in_flight,
        engines_per_node=capacity.engines_per_node,
        reads=min(given) if given else None,
    )


def _gpu_fits(spec: RunSpec, facts: Facts, nodes: Sequence[Node]) -> tuple[GpuFit, ...]:
    """One for each model, on the smallest GPU that an engine may get."""
    if not on_gpu(spec):
        return ()
    with_gpus = [node for node in nodes if node.gpus]
    smallest = min(with_gpus, key=lambda node: node.gpu_memory or 0, default=None)
    memory, kind = (None, None) if smallest is None else (smallest.gpu_memory, smallest.gpu_type)
    needs: list[tuple[Model, RowNeed]] = [(model, row_need(model, facts.sample)) for model in facts.models]
    largest = sorted(needs, key=lambda pair: -pair[0].weight_bytes)[:1]
    return tuple(fit_gpu(spec, model, need, memory, kind) for model, need in largest)


def _data_checks(sample: Sample) -> list[Check]:
    if sample.trouble is None:
        return []
    message = f"{sample.trouble.kind.value}: {sample.trouble.message}"
    return [Check("data", "sample", "unknown", None, None, "", f"no row of the sample can be used: {message}")]


def _engine_checks(spec: RunSpec, demand: Demand, shares: Sequence[Share], nodes: Sequence[Node]) -> list[Check]:
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


def _memory_checks(demand: Demand, shares: Sequence[Share]) -> list[Check]:
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


def _store_checks(shares: Sequence[Share]) -> list[Check]:
    return [
        store_check(share.store_need, share.node.object_store, share.node.disk, share.node.name)
        for share in shares
        if share.engines or share.reads
    ]


def _cache_checks(spec: RunSpec, shares: Sequence[Share]) -> list[Check]:
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


def _given_checks(spec: RunSpec, peak: Figure) -> list[Check]:
    """Memory that the spec has Ray set aside for a task, against what the task takes."""
    capacity = spec.capacity or CapacitySpec()
    checks, need = [], peak.value or 0.0
    for key in ("read_memory_mb", "prepare_memory_mb"):
        given = getattr(capacity, key)
        if given is not None and given * _MB < need:
            formula = f"capacity.{key} {given:,} MB < {need / 1e6:,.0f} MB, the peak of a task that reads and prepares"
            advice = "leave the key out, and plan again"
            checks.append(Check("memory", f"capacity.{key}", "tight", need, given * _MB, "B", formula, advice))
    return checks
