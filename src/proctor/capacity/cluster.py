"""The nodes that a run may use: this machine, a running Ray cluster, or one that is described in a file."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from proctor.capacity import machine
from proctor.capacity.accelerators import gpu_memory
from proctor.capacity.refusal import REFUSALS, refusal
from proctor.spec import RunSpec

NODE_SERVICES = 330_000_000
"""Resident bytes of Ray's own processes on a node (raylet, dashboard agent, runtime environment agent, log monitor)."""
HEAD_SERVICES = 870_000_000
"""Bytes of what runs once: Ray's head (GCS, dashboard, autoscaler) and Ray Data's three actors (613 MB), Proctor's hub
(75 MB) and driver (180 MB). Proportional memory (PSS), which counts shared libraries once, by `make scale`."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node, or several that are alike. Memory in bytes.

    Attributes:
        name: how it is called in the plan.
        cpus: CPUs that Ray hands out.
        ram: memory of the node, or of its cgroup.
        object_store: Ray's object store, within `ram`.
        used: memory that other processes have taken already.
        services: memory of what a run needs there besides engines and tasks: Ray's own processes and the driver.
        cores: CPUs there really are; None: as many as `cpus`.
        gpus: number of GPUs.
        gpu_memory: memory of one GPU; None if not known.
        gpu_type: name of the GPU.
        shm: size of ``/dev/shm``; None if not known.
        disk: free disk for spilled objects and caches; None if not known.
        count: how many nodes are like this.
        sources: where the figures are from, by their names here; for those it lacks: `Cluster.origin`.
    """

    name: str
    cpus: float
    ram: int
    object_store: int
    used: int = 0
    services: int = 0
    cores: float | None = None
    gpus: float = 0.0
    gpu_memory: int | None = None
    gpu_type: str | None = None
    shm: int | None = None
    disk: int | None = None
    count: int = 1
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def real_cpus(self) -> float:
        """CPUs that can work at the same time."""
        return self.cpus if self.cores is None else min(self.cpus, self.cores)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The nodes; the first one is Ray's head. `origin` says how they became known."""

    nodes: tuple[Node, ...]
    origin: str

    def total(self, name: str) -> float:
        """Sum of a figure over all nodes."""
        return sum(float(getattr(node, name) or 0.0) * node.count for node in self.nodes)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        nodes = [{**asdict(replace(node, sources={})), "sources": dict(node.sources)} for node in self.nodes]
        return {"origin": self.origin, "nodes": nodes}


def this_machine(*, cpus: int | None = None, object_store: int | None = None) -> Cluster:
    """This machine as a Ray of the run's own would find it.

    Args:
        cpus: CPUs that Ray is told it has; default: those there are.
        object_store: bytes of the object store; default: what Ray takes.
    """
    cores, ram, used = machine.cpu_count(), machine.memory_limit(), machine.memory_used()
    shm, found = machine.shared_memory(), machine.gpus()
    default = machine.default_object_store(ram - used, shm)
    node = Node(
        name="this machine",
        cpus=cores if cpus is None else cpus,
        cores=cores,
        ram=ram,
        object_store=default if object_store is None else object_store,
        used=used,
        services=HEAD_SERVICES,
        gpus=len(found),
        gpu_memory=min((memory for _, memory in found), default=None),
        gpu_type=found[0][0] if found else None,
        shm=shm,
        disk=machine.free_disk(),
        sources={
            "ram": "cgroup limit, or the machine's",
            "object_store": machine.STORE_RULE.format("free memory") if object_store is None else "the spec",
            "used": "in use now",
            "gpu_memory": "nvidia-smi",
            "cpus": "the machine" if cpus in (None, cores) else "ray.cpus, or what the engines need",
        },
    )
    return Cluster((node,), "this machine")


def wanted_cpus(spec: RunSpec) -> float:
    """Logical CPUs that let the engines run, two tasks read and prepare, and one mark and write beside them."""
    return spec.engines_at_once * spec.engine.cpus_per_replica + 3 * spec.stream.prepare_cpus


def cluster_of(spec: RunSpec) -> Cluster:
    """Where a run would take place: the cluster at `ray.address`, or this machine with a Ray of the run's own.

    Such a Ray is told of as many CPUs as `wanted_cpus`, also if there are fewer.

    Raises:
        UserError: there is no such cluster.
    """
    if spec.ray.address is not None:
        return running_cluster(spec.ray.address)
    store = spec.ray.object_store_mb
    return this_machine(
        cpus=spec.ray.cpus or max(machine.cpu_count(), round(wanted_cpus(spec) + 0.5)),
        object_store=None if store is None else store * 1_000_000,
    )


def from_ray(nodes: Iterable[Mapping[str, Any]]) -> Cluster:
    """The living nodes of a running cluster, from what ``ray.nodes()`` returns; nodes that are alike become one entry.

    Ray's ``memory`` and ``object_store_memory`` together are the memory that was free when the node started.
    """
    living = [_of_ray(node) for node in nodes if node.get("Alive")]
    living.sort(key=lambda found: not found[0])  # the head first
    shaped = [
        replace(node, services=HEAD_SERVICES if is_head and at == 0 else NODE_SERVICES)
        for at, (is_head, node) in enumerate(living)
    ]
    return Cluster(tuple(_grouped(shaped)), "a running Ray cluster")


def running_cluster(address: str) -> Cluster:
    """The nodes of the Ray cluster at `address`; connects to it for a moment unless this process is connected already.

    Raises:
        UserError: there is no such cluster.
    """
    import ray

    mine = not ray.is_initialized()
    if mine:
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except REFUSALS as error:
            raise refusal(error, address) from error
    try:
        return from_ray(ray.nodes())
    finally:
        if mine:
            ray.shutdown()


def _of_ray(node: Mapping[str, Any]) -> tuple[bool, Node]:
    resources, labels = node.get("Resources", {}), node.get("Labels", {})
    named = [name.removeprefix("accelerator_type:") for name in resources if name.startswith("accelerator_type:")]
    gpu_type = labels.get("ray.io/accelerator-type") or (named[0] if named else None)
    store = int(resources.get("object_store_memory", 0))
    gpus = float(resources.get("GPU", 0.0))
    memory, source = gpu_memory(gpu_type) if gpus else (None, "no GPU")
    sources = {
        "ram": "Ray: memory + object_store_memory",
        "object_store": "Ray: object_store_memory",
        "gpu_memory": source,
    }
    made = Node(
        name=str(node.get("NodeName") or node.get("NodeManagerHostname") or node.get("NodeID") or "node"),
        cpus=float(resources.get("CPU", 0.0)),
        ram=int(resources.get("memory", 0)) + store,
        object_store=store,
        gpus=gpus,
        gpu_memory=memory,
        gpu_type=gpu_type if gpus else None,
        disk=machine.free_disk() if node.get("NodeManagerHostname") == os.uname().nodename else None,
        sources=sources,
    )
    return "node:__internal_head__" in resources, made


def _grouped(nodes: Sequence[Node]) -> list[Node]:
    """Nodes that differ in their names only, as one entry each, in the order of the first of them."""
    groups: dict[object, Node] = {}
    for node in nodes:
        key = (node.cpus, _coarse(node.ram), _coarse(node.object_store), node.services, node.gpus, node.gpu_type)
        seen = groups.get(key)
        if seen is None:
            groups[key] = node
        else:  # the smaller figure is true of all of them
            ram, store = min(seen.ram, node.ram), min(seen.object_store, node.object_store)
            groups[key] = replace(seen, count=seen.count + 1, ram=ram, object_store=store)
    return list(groups.values())


def _coarse(memory: int) -> int:
    """Equal for machines of one kind, whose free memory is never the same to the byte."""
    return round(memory / 5e8)
