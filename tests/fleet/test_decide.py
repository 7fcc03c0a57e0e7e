"""What is decided, case by case."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from proctor.fleet.decide import (
    MOST_INTERRUPTIONS,
    Action,
    Admit,
    Adopt,
    GiveUp,
    Kill,
    MarkEnded,
    MarkGone,
    MarkStuck,
    Requeue,
    Started,
    Stop,
    decide,
    why_fewer,
    why_idle,
)
from proctor.fleet.view import AttemptView, FleetView, Job, JobState, LastWords, Limits, Room, UnitView

LIMITS = Limits(reap_after=7200, pending_seconds=900, stop_seconds=30, max_attempts=3)
ROOM = Room(24.0)


def unit(name: str = "a", **parts: Any) -> UnitView:
    return UnitView(name, parts.pop("gpus", 6.0), **parts)


def attempt(state: JobState | None = JobState.RUNNING, **parts: Any) -> AttemptView:
    interrupted = parts.pop("interrupted", False)
    job = None if state is None else Job("s", state, interrupted, "said so")
    return AttemptView(1, "s", **{"job": job, "known": True, "started": True, **parts})


def at_work(state: JobState | None = JobState.RUNNING, *, live: bool = True, **parts: Any) -> UnitView:
    about = {name: parts.pop(name) for name in ("silent", "complete", "held") if name in parts}
    return unit(attempt=attempt(state, **parts), tried=1, live=live, waiting=False, **about)


def decided(*units: UnitView, room: Room | None = ROOM, admits: bool = True) -> list[Action]:
    return decide(FleetView(tuple(units), room, LIMITS, admits))


CASES: dict[str, tuple[UnitView, Action | None]] = {
    "what waits is admitted": (unit(), Admit("a", 1)),
    "what is held is not": (unit(held=True), None),
    "what rests is not": (unit(rest=3.0), None),
    "what somebody runs by hand is left alone": (unit(live=True), None),
    "what was complete before is only noted": (unit(complete=2), MarkEnded("a", 0, 2, complete=True)),
    "what is over stays so": (unit(over=True, waiting=False), None),
    "a job that works is left alone": (at_work(silent=7000.0), None),
    "its start is noted": (at_work(started=False), Started("a", 1)),
    "a job without progress is stopped": (at_work(silent=7201.0), Stop("a", 1, "no progress for 7201 s")),
    "a driver that never takes its run directory, too": (
        at_work(live=False, started=False, silent=7201.0),
        Stop("a", 1, "no progress for 7201 s"),
    ),
    "a job that waits is left alone": (at_work(JobState.PENDING, live=False, silent=900.0), None),
    "not for ever": (at_work(JobState.PENDING, live=False, silent=901.0), Stop("a", 1, "pending for 901 s")),
    "a person's word counts at once": (at_work(held=True), Stop("a", 1, "asked to stop", asked=True)),
    "a stop has its time": (at_work(stopping=29.0), None),
    "then it is ended": (at_work(stopping=30.0), Kill("a", 1, at_hand=False)),
    "the end has its time": (at_work(stopping=60.0, killing=29.0), None),
    "then its driver is killed": (at_work(stopping=90.0, killing=30.0, kills=1), Kill("a", 1, at_hand=True)),
    "again after twice the time": (at_work(stopping=200.0, killing=59.0, kills=2), None),
    "and not before that": (at_work(stopping=200.0, killing=60.0, kills=2), Kill("a", 1, at_hand=True)),
    "what cannot be ended needs a person": (
        at_work(stopping=300.0, killing=30.0, kills=3),
        MarkStuck("a", 1, "ended by force 3 times, and still there"),
    ),
    "who is called once": (at_work(stopping=300.0, killing=119.0, kills=3, stuck=True), None),
    "it is still tried": (at_work(stopping=400.0, killing=120.0, kills=3, stuck=True), Kill("a", 1, at_hand=True)),
    "ever more rarely": (at_work(stopping=9e5, killing=3599.0, kills=5000, stuck=True), None),
    "but not never": (at_work(stopping=9e5, killing=3600.0, kills=5000, stuck=True), Kill("a", 1, at_hand=True)),
    "a waiting job that was stopped is gone: it will find that; it never began, which does not count": (
        at_work(JobState.PENDING, live=False, stopping=1.0, reason="why"),
        MarkGone("a", 1, "why", counts=False),
    ),
    "what Ray calls over is not, while its driver lives": (at_work(JobState.STOPPED, stopping=1.0), None),
    "unless that has said its last word, and the run is somebody else's": (
        at_work(JobState.FAILED, words=LastWords(1, "another driver is running here")),
        MarkEnded("a", 1, 1, complete=False, reason="another driver is running here"),
    ),
    "it is gone with its driver": (
        at_work(JobState.STOPPED, live=False, stopping=1.0, reason="why"),
        MarkGone("a", 1, "why", counts=True),
    ),
    "what a person stopped does not count": (
        at_work(JobState.STOPPED, live=False, stopping=1.0, reason="why", asked=True),
        MarkGone("a", 1, "why", counts=False),
    ),
    "even stopped, it may have come to its end": (
        at_work(JobState.STOPPED, live=False, stopping=1.0, complete=0),
        MarkEnded("a", 1, 0, complete=True),
    ),
    "a run that is complete": (
        at_work(JobState.SUCCEEDED, live=False, complete=0),
        MarkEnded("a", 1, 0, complete=True),
    ),
    "a run that is not": (
        at_work(JobState.FAILED, live=False, words=LastWords(3, "rows left")),
        MarkEnded("a", 1, 3, complete=False, reason="rows left"),
    ),
    "a job that says nothing": (
        at_work(JobState.FAILED, live=False),
        MarkGone("a", 1, "its driver ended without a word: said so", counts=True),
    ),
    "a job that never started does not count": (
        at_work(JobState.FAILED, live=False, interrupted=True),
        MarkGone("a", 1, "said so", counts=False),
    ),
    "a job that Ray has forgotten does not count": (
        at_work(None, live=False),
        MarkGone("a", 1, "the cluster does not know its job any more", counts=False),
    ),
    "but while its driver lives, it runs": (at_work(None, silent=60.0), None),
    "unless nothing comes of it": (at_work(None, silent=61.0), Stop("a", 1, "its job is over and its driver is not")),
    "an orphan is killed at hand": (at_work(None, stopping=30.0), Kill("a", 1, at_hand=True)),
    "a job that never got through is submitted once more": (
        at_work(None, live=False, known=False, started=False),
        Admit("a", 1),
    ),
    "unless somebody works there": (at_work(None, live=True, known=False, started=False), None),
    "or a person has stopped it": (
        at_work(None, live=False, known=False, started=False, held=True),
        Stop("a", 1, "asked to stop", asked=True),
    ),
    "a job that is not in the events is taken over": (at_work(recorded=False), Adopt("a", 1)),
    "what failed is queued again": (unit(waiting=False, tried=1, failures=1, last="why"), Requeue("a", "why")),
    "up to a limit": (
        unit(waiting=False, tried=5, failures=3, interruptions=2, last="why"),
        GiveUp("a", "3 attempts, the last one: why"),
    ),
    "interruptions have one of their own": (
        unit(waiting=False, tried=25, interruptions=MOST_INTERRUPTIONS, last="why"),
        GiveUp("a", f"the cluster interrupted it {MOST_INTERRUPTIONS} times, lastly: why"),
    ),
    "what has no prospect is not tried again": (
        unit(waiting=False, tried=2, failures=2, hopeless="refused twice"),
        GiveUp("a", "refused twice"),
    ),
}


@pytest.mark.parametrize(("seen", "expected"), CASES.values(), ids=CASES)
def test_each_case(seen: UnitView, expected: Action | None) -> None:
    assert decided(seen) == ([] if expected is None else [expected])


@pytest.mark.parametrize("seen", [seen for seen, _ in CASES.values()], ids=CASES)
def test_nothing_is_decided_about_a_cluster_that_cannot_be_seen(seen: UnitView) -> None:
    assert decided(seen, room=None) == []


def test_only_what_fits_is_admitted_in_the_order_of_the_queue() -> None:
    queue = [unit("a"), unit("b", priority=-1), unit("c", priority=5), unit("d")]
    assert decided(*queue, room=Room(18.0)) == [Admit("c", 1), Admit("a", 1), Admit("d", 1)]
    assert decided(*queue, room=Room(18.0, others=1.0)) == [Admit("c", 1), Admit("a", 1)]
    assert decided(*queue, room=Room(24.0, jobs=1)) == [Admit("c", 1)]
    assert decided(*queue, admits=False) == []


def test_a_large_unit_is_not_passed_by_small_ones_unless_it_can_never_fit() -> None:
    running = at_work()
    large, small = unit("b", gpus=20.0, priority=1), unit("c", gpus=2.0)
    assert decided(running, large, small) == []
    assert decided(running, replace(large, gpus=25.0), small) == [Admit("c", 1)]


def test_engines_never_take_all_cpus_together_and_one_alone_may_try() -> None:
    queue = [unit(name, cpus=1.0) for name in "abc"]
    assert decided(*queue, room=Room(24.0, cpus=2.5)) == [Admit("a", 1), Admit("b", 1)]
    assert decided(replace(at_work(), cpus=1.0), queue[1], room=Room(24.0, cpus=1.5)) == []
    assert decided(*queue, room=Room(24.0, cpus=0.5)) == [Admit("a", 1)]  # its run says what it takes
    assert decided(unit("free"), *queue, room=Room(24.0, cpus=0.5)) == [Admit("free", 1)]
    busy = replace(at_work(), cpus=1.0)
    told = why_fewer(FleetView((busy, queue[1]), Room(24.0, cpus=1.5)))
    assert told == (
        "a unit waits although there are GPUs for it: the engines of all jobs may reserve 1.5 CPUs, "
        "and 1 more are wanted (engine.cpus_per_replica)"
    )
    for room in (Room(24.0, cpus=2.0), Room(6.0, cpus=1.5), Room(24.0, jobs=1, cpus=1.5), None):
        assert why_fewer(FleetView((busy, queue[1]), room)) == ""
    assert why_fewer(FleetView((busy,), Room(24.0, cpus=0.5))) == ""


def test_units_run_by_hand_take_room_too() -> None:
    assert decided(unit("x", live=True), unit("b"), room=Room(6.0)) == []


def test_why_nothing_is_at_work() -> None:
    def why(*units: UnitView, room: Room | None = ROOM, admits: bool = True) -> str:
        return why_idle(FleetView(units, room, LIMITS, admits))

    small, large = unit("s", gpus=2.0), unit("l", gpus=32.0, priority=1)
    assert why(small, large) == ""
    assert why(large, unit("x", gpus=64.0)) == "nothing can start: l takes 32 GPUs, and the fleet may use 24"
    assert why(small, large, room=Room(24.0, 23.0)) == "nothing can start now: others use the GPUs that s waits for"
    assert why(large, at_work()) == ""
    assert why(unit("s", held=True)) == ""
    assert why(large, room=None) == ""
    assert why(large, admits=False) == ""


def test_tenths_of_gpus_add_up() -> None:
    assert len(decided(*(unit(str(number), gpus=0.1) for number in range(11)), room=Room(1.0))) == 10


def test_without_admission_a_lost_submission_waits_too() -> None:
    assert decided(at_work(None, live=False, known=False, started=False), admits=False) == []
