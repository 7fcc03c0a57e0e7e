"""One spec on one cluster: what each node gets, and every check. Pure: the same facts give the same plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from proctor.capacity.arithmetic import task_peak
from proctor.capacity.checks import (
    cache_checks,
    data_checks,
    engine_checks,
    given_checks,
    memory_checks,
    model_checks,
    store_checks,
)
from proctor.capacity.cluster import Cluster, Node
from proctor.capacity.engines import RowNeed, host_memory, on_gpu, row_need
from proctor.capacity.figures import Check, Figure
from proctor.capacity.gpu import GpuFit, beside_checks, fit_gpu
from proctor.capacity.model import Model
from proctor.capacity.overhead import WORKER_BYTES
from proctor.capacity.placement import Demand, Share, place
from proctor.capacity.sample import Sample
from proctor.spec import CapacitySpec, RunSpec

_MB = 1_000_000
SMALLEST_STORE_MB = 80
"""A Ray of the run's own has no smaller object store."""


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
        start_seconds: seconds that an engine takes to start, if that was measured.
        swap_seconds: seconds that an engine takes to take over a checkpoint and to prove it, if that was measured.
        checkpoints: those that have rows left to do; None: all.
    """

    rows: int
    source_rows: int
    source_bytes: int
    sample: Sample
    models: tuple[Model, ...] = ()
    engine_rate: float | None = None
    engine_memory: float | None = None
    start_seconds: float | None = None
    swap_seconds: float | None = None
    checkpoints: int | None = None

    def open_checkpoints(self, spec: RunSpec) -> int:
        """How many checkpoints have rows left to do."""
        return len(spec.engine.checkpoints) if self.checkpoints is None else self.checkpoints

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
    """What came out: the shares of the nodes, the checks, and the numbers behind them.

    `task_estimate`: bytes of a task that reads and prepares, whatever the spec sets aside for it.
    """

    demand: Demand
    task_estimate: float
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
        *data_checks(facts.sample),
        *model_checks(facts.models),
        *engine_checks(spec, demand, shares, nodes),
        *memory_checks(demand, shares),
        *(fit.check for fit in fits),
        *beside_checks(spec, fits),
        *store_checks(shares),
        *cache_checks(spec, shares),
        *given_checks(spec, figures[-1], engine[-1]),
    ]
    all_figures = (*figures, *engine, *(figure for fit in fits for figure in fit.figures))
    return Evaluation(demand, figures[-1].value or 0.0, shares, tuple(checks), all_figures, fits)


def _as_told(spec: RunSpec, nodes: Sequence[Node]) -> list[Node]:
    """The nodes with an object store in whole megabytes, as the block for the spec has it: the one that the spec asks
    for, where the run starts Ray itself, on one machine."""
    own = spec.ray.address is None and sum(node.count for node in nodes) == 1
    given = spec.ray.object_store_mb or (spec.capacity or CapacitySpec()).object_store_mb
    if not own or given is None:
        least = SMALLEST_STORE_MB if own else 0
        return [replace(node, object_store=max(least, node.object_store // _MB) * _MB) for node in nodes]
    return [
        replace(node, object_store=given * _MB, sources={**node.sources, "object_store": "the spec"}) for node in nodes
    ]


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
    """Memory in whole megabytes, as Ray is asked for it: what is needed, or what the spec sets aside if that is more
    (`given_checks` tells of less)."""
    capacity = spec.capacity or CapacitySpec()
    given = [count for count in (capacity.concurrent_reads, capacity.prepare_workers) if count is not None]
    tasks = (capacity.read_memory_mb or 0, capacity.prepare_memory_mb or 0)
    return Demand(
        engines=spec.engines_at_once,
        engine_cpus=spec.engine.cpus_per_replica,
        engine_gpus=spec.engine.gpus_per_replica,
        engine_memory=max(math.ceil(engine / _MB), capacity.engine_memory_mb or 0) * _MB,
        task_cpus=spec.stream.prepare_cpus,
        task_memory=max(math.ceil(task / _MB), *tasks) * _MB,
        worker_memory=WORKER_BYTES,
        block_bytes=facts.prepared_block(spec),
        blocks_in_flight=spec.stream.blocks_in_flight,
        engines_per_node=capacity.engines_per_node,
        reads=min(given) if given else None,
    )


def _gpu_fits(spec: RunSpec, facts: Facts, nodes: Sequence[Node]) -> tuple[GpuFit, ...]:
    """For the largest model that is known, on the smallest GPU that an engine may get."""
    if not on_gpu(spec):
        return ()
    with_gpus = [node for node in nodes if node.gpus]
    smallest = min(with_gpus, key=lambda node: node.gpu_memory or 0, default=None)
    memory, kind = (None, None) if smallest is None else (smallest.gpu_memory, smallest.gpu_type)
    needs: list[tuple[Model, RowNeed]] = [
        (model, row_need(model, facts.sample)) for model in facts.models if not model.missing
    ]
    largest = sorted(needs, key=lambda pair: -pair[0].weight_bytes)[:1]
    return tuple(fit_gpu(spec, model, need, memory, kind) for model, need in largest)
