"""Asks every node of a Ray cluster what it has, and refuses what does not fit together."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import ray
from ray import cloudpickle
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from proctor.doctor import facts
from proctor.doctor.agreement import NodeFacts, disagreements
from proctor.doctor.facts import Facts
from proctor.doctor.versions import asked_about, facts_here, interpreter, refuse
from proctor.rows import UserError, told
from proctor.spec import RunSpec

_NOTICE_SECONDS = 30.0
"""Ray calls a node dead after about five health checks of three seconds each."""
NODE_SECONDS = 120.0
"""Most seconds in which a node has to say what it has: it may have to start a process for that."""
_NEWCOMER_SECONDS = 30.0
"""Likewise for one that joins while a run goes on, which waits for the answer."""
_asked: set[str] = set()
"""Ids of nodes that were asked; Ray gives none twice."""


def check_nodes(spec: RunSpec, seconds: float = NODE_SECONDS) -> list[NodeFacts]:
    """Asks every living node of the cluster that this process is connected to; twice, where one does not answer.

    Returns:
        What each of them has.

    Raises:
        UserError: a node has other versions than the driver, or than `requires` asks for, or does not say.
    """
    _asked.update(node["NodeID"] for node in _living())
    found = ask_nodes(spec, seconds)
    if any(node.facts is None for node in found):  # Ray takes a while to notice that a node has gone
        time.sleep(_NOTICE_SECONDS)
        found = ask_nodes(spec, seconds)
    refuse(disagreements(spec, facts_here(spec), found))
    return found


def newcomers(spec: RunSpec, seconds: float = _NEWCOMER_SECONDS) -> list[UserError]:
    """What does not fit together on nodes that have joined since nodes were last asked; each is asked once."""
    new = [node for node in _living() if node["NodeID"] not in _asked]
    if not new:
        return []
    _asked.update(node["NodeID"] for node in new)
    return disagreements(spec, facts_here(spec), ask_nodes(spec, seconds, new))


def _living() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def ask_nodes(
    spec: RunSpec | None, seconds: float = NODE_SECONDS, nodes: Sequence[Mapping[str, Any]] | None = None
) -> list[NodeFacts]:
    """What each of these nodes has (default: each living one), in at most about so many seconds."""
    python, env = interpreter(spec)
    nodes = _living() if nodes is None else nodes
    with _by_value():
        asked = {
            node["NodeID"]: ray.remote(facts.look)
            .options(
                num_cpus=0,
                max_retries=0,
                name="proctor-versions",
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
            )
            .remote(asked_about(spec), python, env, seconds / 2)
            for node in nodes
        }
    ready, _ = ray.wait(list(asked.values()), num_returns=len(asked), timeout=seconds)
    for late in set(asked.values()) - set(ready):
        ray.cancel(late, force=True)
    answers = {node["NodeID"]: _answer(asked[node["NodeID"]], ready, seconds) for node in nodes}
    living = {node["NodeID"] for node in _living()}  # one that has gone meanwhile does not count
    return [
        NodeFacts(_name(node), _holds_engine(spec, node["Resources"]), *answers[node["NodeID"]])
        for node in nodes
        if node["NodeID"] in living
    ]


@contextmanager
def _by_value() -> Iterator[None]:
    """Sends `look` itself, and not where it may be found: the node's Proctor may be another one."""
    cloudpickle.register_pickle_by_value(facts)
    try:
        yield
    finally:
        with suppress(ValueError):
            cloudpickle.unregister_pickle_by_value(facts)


def _answer(asked: Any, ready: Sequence[Any], seconds: float) -> tuple[Facts | None, str]:
    if asked not in ready:
        return None, f"no answer within {seconds:g} s"
    try:
        return msgspec.convert(ray.get(asked), Facts), ""
    except (RayError, msgspec.ValidationError) as error:
        return None, told(error)


def _name(node: Mapping[str, Any]) -> str:
    host, address = node.get("NodeManagerHostname"), node.get("NodeManagerAddress")
    return f"{host} ({address})" if host and address and host != address else str(host or address or node["NodeID"])


def _holds_engine(spec: RunSpec | None, resources: Mapping[str, float]) -> bool:
    if spec is None:
        return False
    engine = spec.engine
    need = {"CPU": engine.cpus_per_replica, "GPU": engine.gpus_per_replica}
    return all(resources.get(name, 0.0) >= amount for name, amount in need.items())
