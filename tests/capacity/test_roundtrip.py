"""A printed block fits when it is planned again, and more of anything never turns a run away."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.capacity.cluster import Cluster, Node
from proctor.capacity.cures import apply
from proctor.capacity.placement import last_that
from proctor.capacity.planning import Plan, plan_with
from proctor.capacity.sample import Sample
from proctor.spec import RunSpec, build_spec
from tests.capacity.facts import block, facts, spec

GB = 10**9
RANK = {"fits": 0, "fits with these changes": 1, "refused": 2}


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    nodes = []
    for at in range(draw(st.integers(1, 3))):
        ram = draw(st.integers(1_500, 64_000)) * 1_000_003
        store = draw(st.none() | st.integers(50_000_000, 3 * GB))
        nodes.append(
            Node(
                name=f"n{at}",
                cpus=draw(st.sampled_from([0.5, 1, 2, 3.5, 4, 8, 16])),
                ram=ram,
                object_store=int(0.3 * ram) if store is None else min(store, ram // 2),
                used=draw(st.sampled_from([0, 0, 1_234_567_891])),
                services=draw(st.sampled_from([330_000_000, 1_650_000_000])),
                disk=draw(st.sampled_from([None, 0, 5 * GB])),
                count=draw(st.sampled_from([1, 1, 2, 4])),
            )
        )
    return Cluster(tuple(nodes), "test")


@st.composite
def runs(draw: st.DrawFn) -> tuple[RunSpec, Any]:
    given_block = draw(
        st.sampled_from([{}, {}, {"engine_memory_mb": 1}, {"concurrent_reads": 1, "prepare_workers": 9},
                         {"read_memory_mb": 700}, {"engines_per_node": 2}])
    )  # fmt: skip
    made = spec(
        engine={
            "kind": "scripted",
            "checkpoints": ["ck"],
            "replicas": draw(st.integers(1, 12)),
            "cpus_per_replica": draw(st.sampled_from([0.5, 1, 2, 4.0])),
        },
        stream={
            "block_mb": draw(st.sampled_from([1, 16, 64.0])),
            "blocks_in_flight": draw(st.sampled_from([1, 3, 8])),
            "prepare_cpus": draw(st.sampled_from([0.5, 1.0, 2.0])),
        },
        **({"capacity": given_block} if given_block else {}),
    )
    sample = Sample((block(read_peak=draw(st.sampled_from([1_000_000, 20_000_000, 500_000_001]))),))
    memory = draw(st.none() | st.sampled_from([500_000_000.5, 3 * GB + 1, 26 * GB]))
    return made, facts(sample=sample, engine_memory=memory)


def with_block(before: RunSpec, made: Plan) -> RunSpec:
    data = apply(before, list(made.changes)).model_dump(mode="json")
    return build_spec({**data, "capacity": made.capacity.model_dump(exclude_none=True)})


@settings(max_examples=150, deadline=None)
@given(clusters(), runs())
def test_a_printed_block_fits_and_is_printed_again(cluster: Cluster, run: tuple[RunSpec, Any]) -> None:
    before, known = run
    made = plan_with(before, known, cluster)
    if made.verdict == "refused":
        return
    again = plan_with(with_block(before, made), known, cluster)
    assert (again.verdict, again.reasons) == ("fits", ())
    assert again.capacity == made.capacity
    own = before.capacity.model_dump(exclude_none=True) if before.capacity else {}
    assert own.items() <= made.capacity.model_dump(exclude_none=True).items()


@settings(max_examples=100, deadline=None)
@given(clusters(), runs(), st.sampled_from(["ram", "cpus", "gpus", "disk", "count", "store"]), st.integers(0, 2))
def test_more_of_anything_never_turns_a_run_away(
    cluster: Cluster, run: tuple[RunSpec, Any], what: str, which: int
) -> None:
    before, known = run
    at = which % len(cluster.nodes)
    node = cluster.nodes[at]
    larger_by: dict[str, dict[str, Any]] = {
        "ram": {"ram": node.ram + 1_700_000_000},
        "cpus": {"cpus": node.cpus * 2},
        "gpus": {"gpus": node.gpus + 1},
        "disk": {"disk": (node.disk or 0) + GB},
        "count": {"count": node.count + 1},
        # A larger store is taken from the node's memory, so that it needs so much more of it.
        "store": {"object_store": node.object_store + 900_000_000, "ram": node.ram + GB},
    }
    nodes = [*cluster.nodes[:at], replace(node, **larger_by[what]), *cluster.nodes[at + 1 :]]
    less, larger = plan_with(before, known, cluster), plan_with(before, known, Cluster(tuple(nodes), "test"))
    if what == "count" and len(cluster.nodes) == node.count == 1:
        return  # of one machine the run starts Ray itself, and may choose the size of its object store
    assert RANK[larger.verdict] <= RANK[less.verdict]


def test_the_engine_memory_that_was_rounded_up_still_fits() -> None:
    node = Node("n0", 2, 16 * GB, int(4.8 * GB), used=GB, services=1_650_000_000)
    cluster, known = Cluster((node,), "test"), facts(engine_memory=2_700_000_000.4)
    two = spec(engine={"kind": "scripted", "checkpoints": ["ck"], "replicas": 2, "cpus_per_replica": 0.5})
    made = plan_with(two, known, cluster)
    assert (made.verdict, made.capacity.engines_per_node) == ("fits", 2)
    again = plan_with(with_block(two, made), known, cluster)
    assert (again.verdict, again.capacity) == ("fits", made.capacity)


def test_one_engine_less_makes_room_for_reading() -> None:
    pods = Cluster((Node("pod", 1, 16 * GB, int(4.8 * GB), services=1_650_000_000, count=4),), "pods")
    four = spec(engine={"kind": "scripted", "checkpoints": ["ck"], "replicas": 4})
    made = plan_with(four, facts(), pods)
    assert made.verdict == "fits with these changes"
    assert [(c.key, c.before, c.after) for c in made.changes] == [("engine.replicas", 4, 3)]
    engines = next(check for check in made.checks if check.what == "engines")
    assert engines.formula.startswith("3 of 4 find a place; pod, beside a task that reads: CPUs allow 0")
    assert [(node.count, node.engines, node.reads) for node in made.nodes] == [
        (3, 1, 0),
        (1, 0, 1),
    ]  # and one that writes


def test_no_engine_goes_to_a_node_whose_store_has_no_room_for_its_blocks() -> None:
    small = Node("small", 8, 64 * GB, 10_000_000, disk=0)
    large = Node("large", 8, 64 * GB, 10 * GB)
    two = spec(engine={"kind": "scripted", "checkpoints": ["ck"], "replicas": 2})
    made = plan_with(two, facts(), Cluster((small, large), "test"))
    assert made.verdict == "fits"
    assert [(node.node, node.engines) for node in made.nodes] == [("small", 0), ("large", 2)]
    assert made.nodes[0].reads == 0  # nor does a task, which makes two blocks of 16 MB
    with_disk = plan_with(two, facts(), Cluster((replace(small, disk=GB), large), "test"))
    assert [node.engines for node in with_disk.nodes] == [1, 1]


def test_engine_memory_that_is_too_little_is_kept_and_judged() -> None:
    cluster = Cluster((Node("n", 8, 16 * GB, int(4.8 * GB)),), "test")
    made = plan_with(spec(capacity={"engine_memory_mb": 1}), facts(engine_memory=3 * GB), cluster)
    assert made.capacity.engine_memory_mb == 1
    (check,) = [check for check in made.checks if check.where == "capacity.engine_memory_mb"]
    assert (check.level, check.have) == ("tight", 1_000_000)
    assert check.need is not None
    assert check.need > 3 * GB
    assert check.formula.startswith("capacity.engine_memory_mb 1 MB < 3,")
    assert made.nodes[0].run_memory > 3 * GB  # the arithmetic is that of what the engine really takes


def test_unequal_numbers_of_tasks_are_kept_and_judged() -> None:
    cluster = Cluster((Node("n", 8, 16 * GB, int(4.8 * GB)),), "test")
    made = plan_with(spec(capacity={"concurrent_reads": 1, "prepare_workers": 9}), facts(), cluster)
    assert (made.capacity.concurrent_reads, made.capacity.prepare_workers) == (1, 9)
    (check,) = [check for check in made.checks if check.what == "tasks"]
    assert check.level == "tight"
    assert check.formula.startswith("concurrent_reads 1, prepare_workers 9:")
    assert made.nodes[0].reads == 1


@pytest.mark.parametrize(
    ("node", "engine", "stream", "change"),
    [
        (Node("a", 8, 6 * GB, 200_000_000, disk=0), {}, {"blocks_in_flight": 100_000}, "stream.blocks_in_flight"),
        (Node("a", 30_000, 6 * GB, GB), {"replicas": 20_000}, {}, "engine.replicas"),
        (Node("a", 2e9, 10**15, GB), {"replicas": 2_000_000_000}, {}, "engine.replicas"),
        (Node("a", 8, 10**12, GB), {"replicas": 10**8, "cpus_per_replica": 1e-6}, {}, "engine.replicas"),
    ],
)
def test_numbers_without_bound_are_planned_at_once(
    node: Node, engine: dict[str, Any], stream: dict[str, Any], change: str
) -> None:
    begin = time.process_time()
    run = spec(engine={"kind": "scripted", "checkpoints": ["ck"], **engine}, stream=stream)
    made = plan_with(run, facts(), Cluster((node,), "test"))
    assert time.process_time() - begin < 5
    assert made.verdict == "fits with these changes"
    assert change in {c.key for c in made.changes}


def test_the_largest_number_that_helps_is_proposed() -> None:
    node = Node("a", 8, 6 * GB, 200_000_000, disk=0)
    made = plan_with(spec(stream={"blocks_in_flight": 100_000, "block_mb": 0.25}), facts(), Cluster((node,), "test"))
    (change,) = made.changes
    assert change.key == "stream.blocks_in_flight"
    one_more = spec(stream={"blocks_in_flight": change.after + 1, "block_mb": 0.25})
    assert plan_with(one_more, facts(), Cluster((node,), "test")).verdict == "fits with these changes"


def test_two_thousand_million_nodes() -> None:
    nodes = Node("a", 2e9, 10**15, GB, count=2_000_000_000)
    made = plan_with(spec(), facts(), Cluster((nodes,), "test"))
    assert made.verdict == "fits"
    assert made.capacity.concurrent_reads == 2**31 - 1


@given(st.integers(0, 1000), st.integers(0, 1000))
def test_the_last_number_that_holds(limit: int, high: int) -> None:
    assert last_that(lambda n: n <= limit, 0, high) == min(limit, high)
