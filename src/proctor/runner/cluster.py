"""The Ray that a run uses: one of its own on this machine, or a running cluster."""

from __future__ import annotations

import logging
import math
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import ray
from ray.exceptions import RayError

from proctor.capacity.cluster import wanted_cpus
from proctor.capacity.refusal import REFUSALS, refusal
from proctor.doctor.nodes import check_nodes, newcomers
from proctor.rows import Event, UserError, told
from proctor.runner.placement import MB, bundles, engine_resources, engines_on, left_beside
from proctor.spec import CapacitySpec, RunSpec

_STARTS = 3
_ROUNDING = 1e-6
_EXECUTOR_SECONDS = 30.0


@contextmanager
def cluster(spec: RunSpec) -> Iterator[dict[str, float]]:
    """Connects to Ray for the duration of the block and gives the cluster's resources. A Ray that is up is left up.

    Raises:
        UserError: the cluster cannot be reached, can never hold the engines, or one of its nodes has other versions.
    """
    mine = not ray.is_initialized()
    if mine:
        with _signals_kept():
            _connect(spec)
    try:
        resources = ray.cluster_resources()
        _check_room(spec, resources)
        if spec.ray.address is not None:
            check_nodes(spec)
        yield resources
    finally:
        if mine:
            _await_executors()
            ray.shutdown()


def _await_executors() -> None:
    """Ray Data gives the threads of its executions two seconds to end. One that still talks to Ray's processes while
    they end has Ray end this process, at once and without a word."""
    give_up = time.monotonic() + _EXECUTOR_SECONDS
    for thread in threading.enumerate():
        if thread.name.startswith("StreamingExecutor"):
            thread.join(max(0.0, give_up - time.monotonic()))


def notice_newcomers(spec: RunSpec, tell: Callable[[Event], None]) -> None:
    """Asks nodes that have joined meanwhile for their versions, and tells what does not fit together. What such a node
    has computed stands: only a person can say what it is worth."""
    if spec.ray.address is None:
        return
    with suppress(RayError):  # a Ray that is gone is told by what works on it
        for error in newcomers(spec):
            tell(Event("node.differs", message=str(error)))


def await_room(spec: RunSpec) -> int:
    """How many engines a sweep gets: fewer than `engine.replicas` when the cluster has lost nodes meanwhile.

    Waits, up to `limits.load_seconds`, until there is room for one.
    """
    give_up = time.monotonic() + spec.limits.load_seconds
    while True:
        room = cluster_room(spec)
        if room or time.monotonic() >= give_up:
            return min(max(room, 1), spec.engine.replicas)
        time.sleep(1.0)


def cluster_room(spec: RunSpec) -> int:
    """For how many engines the cluster's living nodes have room, whatever runs there now."""
    return engines_that_fit(spec, [node["Resources"] for node in ray.nodes() if node["Alive"]])


def engines_that_fit(spec: RunSpec, nodes: Sequence[Mapping[str, float]]) -> int:
    """How many engines these nodes hold beside a task that reads and prepares. More, and none could ever get a row."""
    cpus = spec.engine.cpus_per_replica
    fit = sum(engines_on(spec, node) for node in nodes) if engine_resources(spec) else spec.engine.replicas
    spare = sum(node.get("CPU", 0.0) for node in nodes) - spec.stream.prepare_cpus + _ROUNDING
    return max(0, min(fit, math.floor(spare / cpus) if cpus else fit))


def _connect(spec: RunSpec) -> None:
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # Ray's C++ side talks on stderr of the driver
    os.environ.setdefault("RAY_kill_child_processes_on_worker_exit", "false")  # the supervisor ends its own children
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    common: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if spec.ray.address is not None:
        try:
            with _silent():
                ray.init(address=spec.ray.address, **common)
        except REFUSALS as error:
            raise refusal(error, spec.ray.address) from error
        return
    capacity = spec.capacity.object_store_mb if spec.capacity is not None else None
    store = spec.ray.object_store_mb or capacity
    _start(
        num_cpus=spec.ray.cpus or max(os.cpu_count() or 1, round(wanted_cpus(spec) + 0.5)),
        object_store_memory=None if store is None else store * MB,
        include_dashboard=False,
        **common,
    )


def _start(**options: Any) -> None:
    """Starts a Ray on this machine; on a busy one it may not be up in the time that Ray gives itself."""
    for attempt in range(1, _STARTS + 1):
        try:
            with _silent():
                ray.init(address="local", **options)  # never one that somebody else has started here
            return
        except Exception as error:  # Ray raises a bare Exception here
            ray.shutdown()
            if attempt == _STARTS:
                raise UserError(
                    f"Ray does not start: {told(error)}",
                    where="ray",
                    fix="look at the load and the free memory of this machine, or set ray.address",
                ) from error


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray takes SIGTERM for itself when it starts, and would leave at once: no reconciliation, no word of resuming."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit:  # Ray's own answer to SIGTERM while it starts
        raise KeyboardInterrupt from None
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _silent() -> Iterator[None]:
    """Keeps what Ray's C++ side says on stderr while it starts; it is shown only when the start fails."""
    with tempfile.TemporaryFile() as kept:
        before = os.dup(2)
        os.dup2(kept.fileno(), 2)
        try:
            yield
        except BaseException:
            kept.seek(0)
            os.write(before, kept.read())
            raise
        finally:
            os.dup2(before, 2)
            os.close(before)


def _check_room(spec: RunSpec, resources: dict[str, float]) -> None:
    """An infeasible request would wait for ever without a word."""
    engine, engines = spec.engine, spec.engines_at_once
    for name, need, key in (
        ("CPU", engines * engine.cpus_per_replica + spec.stream.prepare_cpus, "engine.cpus_per_replica"),
        ("GPU", engines * engine.gpus_per_replica, "engine.gpus_per_replica"),
    ):
        have = resources.get(name, 0.0)
        if need > have:
            raise UserError(
                f"{engines} engines need {need:g} {name}s and the cluster has {have:g}",
                where=f"engine.replicas x {key}",
                fix="lower one of them" if name == "GPU" else "lower one of them, or set ray.cpus",
            )
    if spec.capacity is not None:
        _check_capacity(spec, spec.capacity, [node["Resources"] for node in ray.nodes() if node["Alive"]])


def _check_capacity(spec: RunSpec, capacity: CapacitySpec, nodes: Sequence[Mapping[str, float]]) -> None:
    largest = max(node.get("memory", 0.0) for node in nodes) / MB
    for key in ("engine_memory_mb", "read_memory_mb", "prepare_memory_mb"):
        need = getattr(capacity, key)
        if need is not None and need > largest:
            raise UserError(
                f"{need:,} MB, and the node with the most memory lets Ray have {largest:,.0f} MB",
                where=f"capacity.{key}",
                fix="lower it (`proctor plan` works out what fits)",
            )
    placed = bundles(spec, nodes, spec.engines_at_once)
    if len(placed) < spec.engines_at_once:
        raise UserError(
            f"{spec.engines_at_once} engines, and the nodes have room for {len(placed)}",
            where="engine.replicas",
            fix="lower it, or raise capacity.engines_per_node or lower capacity.engine_memory_mb",
        )
    free = max(left_beside(node, placed).get("memory", 0.0) for node in nodes) / MB
    for key in ("read_memory_mb", "prepare_memory_mb"):
        need = getattr(capacity, key)
        if need is not None and need > free:
            raise UserError(
                f"{need:,} MB, and no node has more than {free:,.0f} MB left beside the engines",
                where=f"capacity.{key}",
                fix="lower it or capacity.engine_memory_mb (`proctor plan` works out what fits)",
            )
