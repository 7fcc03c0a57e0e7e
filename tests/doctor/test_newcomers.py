"""Nodes that join a cluster while a run is at work there."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from ray.exceptions import RayError

from proctor.doctor import nodes
from proctor.doctor.agreement import NodeFacts
from proctor.doctor.versions import facts_here
from proctor.rows import Event
from proctor.runner.cluster import notice_newcomers
from tests.doctor.test_versions import spec


def test_each_node_that_joins_is_asked_once_and_what_differs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    there, asked, said = ["n1", "n2"], list[list[str]](), list[Event]()
    run = spec(ray={"address": "auto"})
    here = facts_here(run)
    other = replace(here, own=replace(here.own, packages={**here.own.packages, "ray": "1.0"}))

    def ask(_spec: Any, _seconds: float, new: Any = None) -> list[NodeFacts]:
        names = there if new is None else [node["NodeID"] for node in new]
        asked.append(list(names))
        return [NodeFacts(name, False, other if name == "n4" else here) for name in names]

    monkeypatch.setattr(nodes, "_asked", set())
    monkeypatch.setattr(nodes, "ask_nodes", ask)
    monkeypatch.setattr(nodes.ray, "nodes", lambda: [{"NodeID": name, "Alive": name != "n3"} for name in there])
    nodes.check_nodes(run)
    notice_newcomers(run, said.append)
    assert (asked, said) == ([["n1", "n2"]], [])
    there += ["n3", "n4", "n5"]
    for _ in range(2):
        notice_newcomers(run, said.append)
    assert asked[1:] == [["n4", "n5"]], "the dead are not asked, nor is anybody twice"
    assert [(event.kind, "node n4: ray is 1.0 there" in event.message) for event in said] == [("node.differs", True)]
    there.append("n6")
    notice_newcomers(run.model_copy(update={"ray": spec().ray}), said.append)  # a Ray of its own has nobody else
    assert len(asked) == 2


def test_a_ray_that_is_gone_is_told_by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> Any:
        raise RayError("the head is gone")

    monkeypatch.setattr(nodes.ray, "nodes", gone)
    notice_newcomers(spec(ray={"address": "auto"}), lambda event: pytest.fail(str(event)))
