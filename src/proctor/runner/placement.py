"""Which node each engine starts on. Without `capacity.engines_per_node` that is Ray's affair."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import ray
from ray.exceptions import GetTimeoutError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from proctor.spec import RunSpec

MB = 1_000_000
_ROUNDING = 1e-6
_PRESENCE = 0.001
"""Share of a node's own resource (``node:ADDRESS``, 1 on each node) that ties a bundle to it."""

Resources = Mapping[str, float]


def engine_resources(spec: RunSpec) -> dict[str, float]:
    """What Ray sets aside for one engine: CPUs, GPUs, and bytes of memory."""
    engine, capacity = spec.engine, spec.capacity
    need = {"CPU": engine.cpus_per_replica, "GPU": engine.gpus_per_replica}
    if capacity is not None and capacity.engine_memory_mb is not None:
        need["memory"] = capacity.engine_memory_mb * MB
    return {name: amount for name, amount in need.items() if amount}


def engines_on(spec: RunSpec, node: Resources) -> int:
    """How many engines a node with these resources holds."""
    need = engine_resources(spec)
    most = spec.engines_at_once
    if spec.capacity is not None and spec.capacity.engines_per_node is not None:
        most = min(most, spec.capacity.engines_per_node)
    return min([most, *(math.floor(node.get(name, 0.0) / amount + _ROUNDING) for name, amount in need.items())])


def bundles(spec: RunSpec, nodes: Sequence[Resources], engines: int) -> list[dict[str, float]]:
    """Where `engines` engines go: a bundle of resources for each, tied to its node, nodes filled in turn."""
    room = {_presence(node): engines_on(spec, node) for node in nodes}
    placed: list[dict[str, float]] = []
    while len(placed) < engines and any(room.values()):
        for presence in [name for name, left in room.items() if left][: engines - len(placed)]:
            placed.append({**engine_resources(spec), presence: _PRESENCE})
            room[presence] -= 1
    return placed


def left_beside(node: Resources, placed: Sequence[Resources]) -> dict[str, float]:
    """What a node has left for tasks when the engines of these bundles are there."""
    here = [bundle for bundle in placed if _presence(node) in bundle]
    return {name: amount - sum(bundle.get(name, 0.0) for bundle in here) for name, amount in node.items()}


@contextmanager
def placed(spec: RunSpec, engines: int) -> Iterator[dict[str, Any]]:
    """Options that make Ray start at most `capacity.engines_per_node` engines on a node, while the block runs.

    Raises:
        TimeoutError: the room is not free within `limits.load_seconds`.
    """
    if spec.capacity is None or spec.capacity.engines_per_node is None:
        yield {}
        return
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    group = placement_group(bundles(spec, nodes, engines), strategy="SPREAD")
    try:
        ray.get(group.ready(), timeout=spec.limits.load_seconds)
        yield {"scheduling_strategy": PlacementGroupSchedulingStrategy(group)}
    except GetTimeoutError:
        raise TimeoutError(f"no room for {engines} engines within {spec.limits.load_seconds:g} s") from None
    finally:
        remove_placement_group(group)


def _presence(node: Resources) -> str:
    return next(name for name in node if name.startswith("node:") and name != "node:__internal_head__")
