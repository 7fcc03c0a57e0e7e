"""How many jobs a watcher has at work, and that it says so where it could be more."""

from __future__ import annotations

from pathlib import Path

from proctor.fleet import words
from proctor.fleet.jobs import UnreachableError
from proctor.fleet.loop import Ears
from tests.fleet.making import RUN
from tests.fleet.staged import Stage, steps


def test_others_gpus_and_tickets_count(tmp_path: Path) -> None:
    stage = Stage(tmp_path, cluster={"ticket": "seat", "gpus": 9}, priority=[{"match": "c", "priority": 1}])
    stage.cluster.used = 6.0  # of 12: 3 of the 9 that this fleet may have are taken
    watcher = stage.watcher()
    with watcher.watching():
        steps(watcher)
        assert [order.tickets for order in stage.cluster.orders] == [{"seat": 6.0}]
        assert list(stage.cluster.jobs) == [stage.id("c")]


def test_engines_leave_a_cpu_to_what_reads(tmp_path: Path) -> None:
    run = {**RUN, "engine": {"kind": "scripted", "cpus_per_replica": 4.0}}  # of 8 CPUs
    stage = Stage(tmp_path, run=run)
    said: list[str] = []
    with (watcher := stage.watcher(ears=Ears(trouble=said.append))).watching():
        steps(watcher)
        assert [order.submission for order in stage.cluster.orders] == [stage.id("a")]
        stage.finish("a")
        steps(watcher)
        assert [order.submission for order in stage.cluster.orders] == [stage.id("a"), stage.id("b")]
    assert len(said) == 1
    assert said[0].startswith("a unit waits although there are GPUs for it")


def test_a_cluster_that_can_be_seen_and_takes_no_jobs_is_told_once(stage: Stage) -> None:
    said: list[str] = []
    stage.cluster.faults = [UnreachableError("No available agent to submit job")] * 6
    watcher = stage.watcher(ears=Ears(trouble=said.append))
    with watcher.watching():
        steps(watcher, 4)
        assert said == [
            "the cluster does not take the job of a, which is tried again: No available agent to submit job"
        ]
        assert not stage.cluster.orders
        steps(watcher, 4)
        assert [order.submission for order in stage.cluster.orders] == [stage.id("a"), stage.id("b")]
    assert len(said) == 1
    assert stage.kinds("a") == [words.UNIT_ADMITTED]  # one attempt all the while
