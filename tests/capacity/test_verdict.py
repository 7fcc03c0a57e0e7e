"""The verdict, what would make a run fit, the block for the spec, and which stage limits it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.capacity.cluster import Cluster, Node
from proctor.capacity.cures import apply
from proctor.capacity.evaluate import evaluate
from proctor.capacity.planning import EXIT_CODES, Plan, plan_with
from proctor.capacity.sample import Sample
from proctor.rows import ErrorKind, Failure
from proctor.spec import CapacitySpec, RunSpec
from tests.capacity.facts import block, facts, spec

GB = 10**9


def one(ram_gb: float = 24, cpus: float = 2.5, **parts: Any) -> Cluster:
    store = parts.pop("object_store", int(0.3 * ram_gb * GB))
    return Cluster((Node("n", cpus, int(ram_gb * GB), store, services=int(1.65 * GB), **parts),), "test")


def scripted(**engine: Any) -> dict[str, Any]:
    return {"kind": "scripted", "checkpoints": ["ck"], **engine}


def same_plan_with_changes(made: Plan, before: RunSpec, cluster: Cluster) -> None:
    """The changes, applied to the spec as it was, pass every check."""
    changed = apply(before, list(made.changes))
    assert not evaluate(changed, facts(), cluster).failing
    again = plan_with(changed, facts(), cluster)
    assert (again.verdict, again.changes) == ("fits", ())
    assert again.capacity == made.capacity


def test_a_run_that_fits_as_it_is() -> None:
    made = plan_with(spec(), facts(), one())
    assert (made.verdict, made.exit_code, made.changes, made.reasons) == ("fits", 0, (), ())
    (node,) = made.nodes
    assert (node.engines, node.reads) == (
        1,
        2,
    )  # the engine's CPU, two tasks that read and one that writes, half a CPU each
    assert node.blocks == 1 * 3 + 2 * 2
    assert made.blocks == 100_000 * 100_000 / 16e6
    figures = {figure.name: figure for figure in made.figures}
    assert figures["f_heap"].value == 2
    assert figures["reading a block"].value == 32_000_000  # 16 MB are read at a time
    assert figures["preparing a block"].value == 48_000_000
    assert figures["two finished blocks"].value == 32_000_000
    worker = figures["a worker by itself"].value
    assert worker is not None
    assert figures["peak of a task"].value == worker + 112_000_000
    assert {figure.origin for figure in made.figures} <= {"measured", "config", "assumed", "given", "computed"}
    assert all(figure.formula for figure in made.figures)


def test_the_block_is_what_was_worked_out() -> None:
    made = plan_with(spec(), facts(), one())
    peak = next(figure.value for figure in made.figures if figure.name == "peak of a task")
    assert peak is not None
    assert made.capacity == CapacitySpec(
        engines_per_node=1,
        engine_memory_mb=made.capacity.engine_memory_mb,
        concurrent_reads=2,
        read_memory_mb=int(1.25 * peak / 1e6),
        prepare_workers=2,
        prepare_memory_mb=int(1.25 * peak / 1e6),
        object_store_mb=7199,
    )
    with_block = plan_with(spec(capacity=made.capacity.model_dump(exclude_none=True)), facts(), one())
    assert with_block.verdict == "fits"
    assert with_block.capacity.concurrent_reads == 2


def test_engines_that_find_no_place() -> None:
    cluster, before = one(cpus=4), spec(engine=scripted(replicas=9))
    made = plan_with(before, facts(), cluster)
    assert made.verdict == "fits with these changes"
    assert made.exit_code == 2
    assert [(c.key, c.before, c.after) for c in made.changes] == [("engine.replicas", 9, 3)]
    assert made.reasons[0].what == "cpu"
    assert made.reasons[0].formula == "9 x 1 + 0.5 = 9.5 > 4"
    same_plan_with_changes(made, before, cluster)


def test_two_engines_in_a_pod_of_64_gb_become_one() -> None:
    pod = Cluster((Node("pod", 56 / 6, 64 * GB, int(12.8 * GB), used=4 * GB, count=6),), "pods")
    before = spec(engine=scripted(replicas=12, cpus_per_replica=4.0), ray={"address": "auto"})
    # An engine of 20 GB, with its actor, and tasks of 1.6 GB: the published case, where the CPUs would allow two.
    heavy = Sample((block(read_peak=800_000_000),))
    known = facts(sample=heavy, engine_memory=19.7 * GB)
    made = plan_with(before, known, pod)
    assert made.verdict == "fits with these changes"
    assert [(c.key, c.after) for c in made.changes] == [("engine.replicas", 6)]
    (failing,) = made.reasons
    assert failing.what == "engines"
    assert failing.formula == (
        "6 of 12 find a place; pod, beside a task that reads: CPUs allow 2, memory allows 1 = 39.1 GB / 20 GB"
    )
    assert made.capacity.engines_per_node == 1


def test_a_block_too_large_for_the_memory_is_made_smaller() -> None:
    huge = Sample((block(read_peak=900_000_000, prepare_peak=900_000_000),))
    cluster = one(ram_gb=5, object_store=200_000_000)
    made = plan_with(spec(), facts(sample=huge), cluster)
    assert made.verdict == "fits with these changes"
    assert [change.key for change in made.changes] == ["stream.block_mb"]
    (change,) = made.changes
    assert change.after < 16
    assert {check.what for check in made.reasons} == {"engines", "memory"}


def test_memory_that_nothing_helps() -> None:
    made = plan_with(spec(), facts(), one(ram_gb=2))
    assert (made.verdict, made.exit_code, made.changes) == ("refused", 3, ())
    assert made.capacity == CapacitySpec()
    assert any("GB free" in check.formula for check in made.reasons)
    nothing = plan_with(spec(engine=scripted(row_ms=5.0)), facts(), one(ram_gb=1))
    assert nothing.verdict == "refused"
    assert nothing.throughput.stages[2].formula == "no engine has room"


def test_memory_is_given_back_by_a_smaller_object_store() -> None:
    before, cluster = spec(), one(ram_gb=4, object_store=int(1.5 * GB))
    made = plan_with(before, facts(), cluster)
    assert made.verdict == "fits with these changes"
    assert [change.key for change in made.changes] == ["ray.object_store_mb"]
    same_plan_with_changes(made, before, cluster)
    running = plan_with(spec(ray={"address": "auto"}), facts(), cluster)
    assert "ray.object_store_mb" not in {change.key for change in running.changes}  # it cannot be told any more


def test_blocks_that_do_not_fit_the_store_go_to_disk_or_get_smaller() -> None:
    large = facts(sample=Sample((block(largest_row=90_000_000),)))
    cluster = one(object_store=100_000_000, disk=10 * GB)
    made = plan_with(spec(), large, cluster)
    assert made.verdict == "fits"
    (check,) = [check for check in made.checks if check.what == "object store"]
    assert check.level == "tight"
    assert "to disk, which has 10 GB" in check.formula
    without_disk = plan_with(spec(), large, one(object_store=100_000_000, disk=0))
    assert "object store" in {check.what for check in without_disk.reasons}


def test_a_cache_of_shards_larger_than_the_disk() -> None:
    remote = spec(source={"kind": "mds", "path": "s3://bucket/data", "cache_gb": 500.0})
    made = plan_with(remote, facts(), one(disk=100 * GB))
    assert [(c.key, c.before, c.after) for c in made.changes] == [("source.cache_gb", 500.0, 80.0)]
    assert [check.what for check in made.reasons] == ["disk"]
    assert plan_with(remote, facts(), one(disk=900 * GB)).verdict == "fits"
    unknown = plan_with(remote, facts(), one())
    assert (unknown.verdict, [c.level for c in unknown.checks if c.what == "disk"]) == ("fits", ["unknown"])


def test_data_that_cannot_be_read_leave_the_verdict_open() -> None:
    unread = Sample(trouble=Failure(ErrorKind.READ_CORRUPT, "shard.00000.mds: truncated"))
    made = plan_with(spec(), facts(sample=unread), one())
    assert (made.verdict, made.exit_code) == ("unknown", 3)
    (check,) = [check for check in made.checks if check.what == "data"]
    assert "read.corrupt: shard.00000.mds: truncated" in check.formula
    assert plan_with(spec(), facts(sample=unread), one(ram_gb=1)).verdict == "refused"


def test_numbers_that_the_spec_gives_are_kept_and_judged() -> None:
    cluster = one(cpus=8, ram_gb=64)
    made = plan_with(spec(capacity={"concurrent_reads": 3, "read_memory_mb": 100}), facts(), cluster)
    assert made.nodes[0].reads == 3
    (check,) = [check for check in made.checks if check.where == "capacity.read_memory_mb"]
    assert check.level == "tight"
    many = plan_with(spec(engine=scripted(replicas=4), capacity={"engines_per_node": 2}), facts(), cluster)
    assert many.verdict == "fits with these changes"
    assert [(c.key, c.after) for c in many.changes] == [("engine.replicas", 2)]


def test_a_plan_is_plain_data() -> None:
    made = plan_with(spec(engine=scripted(replicas=9)), facts(), one(cpus=4))
    plain = json.loads(json.dumps(made.to_json()))
    assert plain["verdict"] == "fits with these changes"
    assert plain["changes"] == [{"key": "engine.replicas", "before": 9, "after": 3}]
    assert plain["nodes"][0]["engines"] == 3
    assert plain["cluster"]["nodes"][0]["name"] == "n"
    assert CapacitySpec.model_validate(plain["capacity"]) == made.capacity


def test_the_scripted_engine_limits_when_its_rows_take_long() -> None:
    made = plan_with(spec(engine=scripted(row_ms=20.0)), facts(), one())
    assert made.throughput.limit == "infer"
    assert made.throughput.rows_per_second == pytest.approx(50)
    assert made.throughput.hours == pytest.approx(100_000 / 50 / 3600)
    assert not made.throughput.bound_only


def test_preparing_limits_when_images_take_longer_than_anything_else() -> None:
    slow = Sample((block(prepare_cpu=2.0),))  # 20 ms a row
    made = plan_with(spec(), facts(sample=slow), one())
    assert made.throughput.limit == "prepare"
    assert 80 < (made.throughput.rows_per_second or 0) < 100  # 2 cores, and a little for all the rest


def test_reading_limits_when_a_store_is_slow() -> None:
    slow = Sample((block(read_seconds=10.0),))  # 100 ms a row, waited for
    made = plan_with(spec(), facts(sample=slow), one())
    assert made.throughput.limit == "read"
    assert made.throughput.rows_per_second == pytest.approx(2 / 0.101, rel=0.01)  # two tasks, each 100 + 1 ms a row


def test_writing_limits_when_records_are_slow() -> None:
    slow = Sample((block(write_cpu=1.5),))
    assert plan_with(spec(), facts(sample=slow), one()).throughput.limit == "write"


def test_ray_itself_limits_tiny_rows() -> None:
    tiny = block(source_bytes=2_000, arrow_bytes=3_000, largest_row=40, read_seconds=1e-4, read_cpu=1e-4,
                 prepare_cpu=1e-3, write_cpu=1e-4, prepare_source_bytes=2_000, prepared_bytes=3_000)  # fmt: skip
    made = plan_with(spec(), facts(sample=Sample((tiny,)), source_bytes=2_000_000), one(cpus=2))
    assert made.throughput.limit == "overhead"
    # 100,000 tiny rows in blocks of 256 took 25.3 s: see `overhead`
    assert 100_000 / (made.throughput.rows_per_second or 1) == pytest.approx(25.3, rel=0.15)


def test_a_model_whose_speed_is_not_known_gives_a_bound_only() -> None:
    engine = {"kind": "openai", "base_url": "http://x", "checkpoints": ["m"]}
    bound = plan_with(spec(engine=engine), facts(), one()).throughput
    assert bound.bound_only
    assert bound.limit != "infer"
    known = plan_with(spec(engine=engine), facts(engine_rate=22.0), one()).throughput
    assert (known.limit, known.rows_per_second, known.bound_only) == ("infer", 22.0, False)


def test_exit_codes() -> None:
    assert EXIT_CODES == {"fits": 0, "fits with these changes": 2, "refused": 3, "unknown": 3}


@settings(max_examples=40)
@given(
    st.floats(1, 200),
    st.floats(0.5, 64),
    st.integers(1, 12),
    st.floats(1, 200),
    st.integers(100_000, 500_000_000),
)
def test_whatever_is_changed_fits_by_the_same_arithmetic(
    ram: float, cpus: float, replicas: int, block_mb: float, read_peak: int
) -> None:
    cluster = one(ram_gb=ram, cpus=cpus)
    known = facts(sample=Sample((block(read_peak=read_peak),)))
    before = spec(engine=scripted(replicas=replicas), stream={"block_mb": block_mb})
    made = plan_with(before, known, cluster)
    if made.verdict == "refused":
        assert made.reasons
        return
    after = apply(before, list(made.changes))
    assert not evaluate(after, known, cluster).failing
    assert bool(made.changes) == bool(evaluate(before, known, cluster).failing)
    node, given_block = cluster.nodes[0], made.capacity
    taken = (given_block.read_memory_mb or 0) * (given_block.concurrent_reads or 0)
    taken += (given_block.engine_memory_mb or 0) * (given_block.engines_per_node or 0)
    assert taken * 1e6 <= 0.9 * node.ram - (given_block.object_store_mb or 0) * 1e6 - node.services + 1e6
