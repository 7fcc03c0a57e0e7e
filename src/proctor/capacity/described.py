"""A cluster that is described in a YAML file, for a plan before there is one.

nodes:
  - {name: gpu, count: 6, cpus: 56, ram_gb: 512, gpus: 8, gpu_type: H100}
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, model_validator

from proctor.capacity import machine
from proctor.capacity.accelerators import gpu_memory
from proctor.capacity.cluster import HEAD_SERVICES, NODE_SERVICES, Cluster, Node
from proctor.rows import UserError
from proctor.spec.explain import explain
from proctor.spec.model import MOST, SpecModel
from proctor.spec.yamltext import parse_value

_GB = 1_000_000_000
_MOST_GB = 1_000_000.0


class NodeSpec(SpecModel):
    """One kind of node. Gigabytes are 10^9 bytes."""

    name: str = Field(min_length=1)
    """How the plan calls it."""
    count: int = Field(default=1, ge=1, le=MOST)
    """How many nodes are like this."""
    cpus: float = Field(gt=0, le=MOST)
    """CPUs that Ray hands out."""
    ram_gb: float = Field(gt=0, le=_MOST_GB)
    """Memory of the node; of a pod its limit."""
    gpus: float = Field(default=0.0, ge=0, le=MOST)
    """Number of GPUs."""
    gpu_type: str | None = None
    """Name of the GPU as Ray has it (``H100``, ``A100-80G`` …)."""
    gpu_memory_gb: float | None = Field(default=None, gt=0, le=_MOST_GB)
    """Memory of one GPU. Default: that of `gpu_type`, if the name says it."""
    shm_gb: float | None = Field(default=None, gt=0, le=_MOST_GB)
    """Size of ``/dev/shm``. Default: no limit to the object store."""
    object_store_gb: float | None = Field(default=None, gt=0, le=_MOST_GB)
    """Size of Ray's object store. Default: what Ray takes, min(0.3 x memory, 200 GB, 0.95 x /dev/shm or 10 GB if that
    is more)."""
    disk_gb: float | None = Field(default=None, ge=0, le=_MOST_GB)
    """Free disk for spilled objects and caches. Default: not known, and not checked."""
    used_gb: float = Field(default=0.0, ge=0, le=_MOST_GB)
    """Memory that other processes take, beside Ray's own."""

    @model_validator(mode="after")
    def _store_fits(self) -> NodeSpec:
        if self.object_store_gb is not None and self.object_store_gb >= self.ram_gb:
            raise ValueError(f"object_store_gb ({self.object_store_gb:g}) leaves nothing of ram_gb ({self.ram_gb:g})")
        return self


class ClusterSpec(SpecModel):
    """The file: its nodes, Ray's head first. What only the head runs is counted on every node of the first kind."""

    nodes: list[NodeSpec] = Field(min_length=1)
    """The kinds of nodes."""


def load_cluster(path: str | Path) -> Cluster:
    """Reads a description of a cluster.

    Raises:
        UserError: the file cannot be read, is not YAML, or does not describe nodes; names the line and the key.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UserError(f"cannot read the cluster: {reason}", where=str(path)) from error
    data, lines = parse_value(text, str(path))
    if not isinstance(data, dict):
        raise UserError("no description of a cluster", where=str(path), fix="write nodes: and a list below it")
    try:
        spec = ClusterSpec.model_validate(data)
    except ValidationError as error:
        raise explain(error, ClusterSpec, data, lines) from error
    return Cluster(tuple(_node(node, is_head=at == 0) for at, node in enumerate(spec.nodes)), str(path))


def _node(spec: NodeSpec, *, is_head: bool) -> Node:
    ram, shm = round(spec.ram_gb * _GB), _bytes(spec.shm_gb)
    memory, source = (None, "no GPU") if not spec.gpus else gpu_memory(spec.gpu_type)
    if spec.gpu_memory_gb is not None:
        memory, source = _bytes(spec.gpu_memory_gb), "gpu_memory_gb"
    store = _bytes(spec.object_store_gb)
    sources: dict[str, Any] = {"gpu_memory": source, "used": "used_gb"}
    if store is None:
        store = machine.default_object_store(ram, shm)
        sources["object_store"] = machine.STORE_RULE.format("memory")
    return Node(
        name=spec.name,
        count=spec.count,
        cpus=spec.cpus,
        ram=ram,
        object_store=store,
        used=round(spec.used_gb * _GB),
        services=HEAD_SERVICES if is_head else NODE_SERVICES,
        gpus=spec.gpus,
        gpu_memory=memory,
        gpu_type=spec.gpu_type,
        shm=shm,
        disk=_bytes(spec.disk_gb),
        sources=sources,
    )


def _bytes(gigabytes: float | None) -> int | None:
    return None if gigabytes is None else round(gigabytes * _GB)
