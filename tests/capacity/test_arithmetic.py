"""A plan never takes more than there is, and more memory never means less work."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.capacity.arithmetic import RAM_SHARE, split_shards, store_check
from proctor.capacity.cluster import Node
from proctor.capacity.placement import Demand, Share, most_engines, place

GB = 10**9


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    ram = draw(st.integers(1, 512)) * GB
    return Node(
        name="n",
        cpus=draw(st.sampled_from([0.5, 1, 2, 9.3, 16, 64])),
        ram=ram,
        object_store=draw(st.integers(0, ram // 2)),
        used=draw(st.integers(0, ram // 4)),
        gpus=draw(st.sampled_from([0, 1, 2, 8])),
        count=draw(st.integers(1, 5)),
    )


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    return Demand(
        engines=draw(st.integers(1, 40)),
        engine_cpus=draw(st.sampled_from([0.5, 1, 4])),
        engine_gpus=draw(st.sampled_from([0, 0.5, 1, 2])),
        engine_memory=draw(st.integers(1, 40 * GB)),
        task_cpus=draw(st.sampled_from([0.25, 0.5, 1])),
        task_memory=draw(st.integers(10**6, 8 * GB)),
        worker_memory=draw(st.integers(0, GB)),
        block_bytes=draw(st.integers(1, GB)),
        blocks_in_flight=draw(st.integers(1, 5)),
        engines_per_node=draw(st.none() | st.integers(1, 4)),
        reads=draw(st.none() | st.integers(1, 30)),
    )


def total(shares: list[Share], name: str) -> int:
    return sum(int(getattr(share, name)) * share.count for share in shares)


@settings(max_examples=60)
@given(st.lists(nodes(), min_size=1, max_size=4), demands())
def test_no_node_is_given_more_than_it_has(cluster: list[Node], demand: Demand) -> None:
    shares = place(cluster, demand)
    assert sum(share.count for share in shares) == sum(node.count for node in cluster)
    assert total(shares, "engines") <= demand.engines
    for share in shares:
        node = share.node
        assert share.engines * demand.engine_cpus + share.reads * demand.task_cpus <= node.cpus + 1e-6
        assert share.engines * demand.engine_gpus <= node.gpus + 1e-6
        assert share.engines <= (demand.engines_per_node or share.engines)
        if share.reads or share.engines:
            taken = node.object_store + share.engines * demand.engine_memory + share.reads * demand.task_memory
            taken += node.used + node.services + (demand.worker_memory if share.engines else 0)
            assert taken <= RAM_SHARE * node.ram + 10
    if demand.reads is not None:
        assert total(shares, "reads") <= demand.reads


@settings(max_examples=60)
@given(st.lists(nodes(), min_size=1, max_size=3), demands())
def test_an_engine_is_left_out_only_where_none_has_room(cluster: list[Node], demand: Demand) -> None:
    placed = total(place(cluster, demand), "engines")
    if placed < demand.engines:
        with_a_task = sum(most_engines(node, demand, beside_a_task=True) * node.count for node in cluster)
        assert placed >= with_a_task


@settings(max_examples=60)
@given(nodes(), demands(), st.integers(0, 200))
def test_more_memory_never_means_fewer_engines_or_readers(node: Node, demand: Demand, more: int) -> None:
    node = replace(node, count=1)
    before, after = place([node], demand), place([replace(node, ram=node.ram + more * GB)], demand)
    assert total(after, "engines") >= total(before, "engines")
    if total(after, "engines") == total(before, "engines"):
        assert total(after, "reads") >= total(before, "reads")


@settings(max_examples=60)
@given(st.integers(1, 5000), st.integers(1, 1000))
def test_every_shard_has_a_task_and_no_task_is_without(shards: int, most: int) -> None:
    split = split_shards(shards, 1.0, most)
    assert split.tasks <= most
    assert split.per_task * split.tasks >= shards > split.per_task * (split.tasks - 1)


@settings(max_examples=60)
@given(st.floats(0, 1e12), st.floats(1, 1e12), st.none() | st.floats(0, 1e12))
def test_a_store_that_is_larger_is_never_worse(held: float, store: float, disk: float | None) -> None:
    rank = {"ok": 0, "tight": 1, "fails": 2}
    assert rank[store_check(held, 2 * store, disk).level] <= rank[store_check(held, store, disk).level]


def test_engines_are_dealt_out_evenly() -> None:
    node = Node("n", cpus=8, ram=64 * GB, object_store=GB, count=3)
    demand = Demand(7, 1, 0, GB, 0.5, GB, 0, 1e6, 3)
    assert [(share.count, share.engines) for share in place([node], demand)] == [(1, 3), (2, 2)]


def test_half_a_gpu_is_not_spread_over_two_gpus() -> None:
    node = Node("n", cpus=64, ram=512 * GB, object_store=GB, gpus=2)
    demand = Demand(9, 1, 0.4, GB, 0.5, GB, 0, 1e6, 3)
    assert total(place([node], demand), "engines") == 4  # 0.8 of each GPU, and not 5 of 2 / 0.4


def test_readers_may_have_a_node_of_their_own() -> None:
    engines = Node("engines", cpus=4, ram=64 * GB, object_store=GB, count=2)
    readers = Node("readers", cpus=16, ram=64 * GB, object_store=GB)
    demand = Demand(8, 1, 0, GB, 0.5, GB, 0, 1e6, 3, engines_per_node=4)
    shares = [(share.node.name, share.engines, share.reads > 0) for share in place([engines, readers], demand)]
    assert shares[0][1] > 0
    assert ("readers", 2, True) in shares
