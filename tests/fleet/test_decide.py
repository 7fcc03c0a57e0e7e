"""What is decided, case by case; and a machine that plays a cluster and whatever can happen to it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proctor.fleet.decide import (
    MOST_INTERRUPTIONS,
    Action,
    Admit,
    Adopt,
    GiveUp,
    Kill,
    MarkEnded,
    MarkGone,
    Requeue,
    Started,
    Stop,
    decide,
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
    "then its driver is killed": (at_work(stopping=90.0, killing=30.0), Kill("a", 1, at_hand=True)),
    "a waiting job that was stopped is gone: it will find that": (
        at_work(JobState.PENDING, live=False, stopping=1.0, reason="why"),
        MarkGone("a", 1, "why", counts=True),
    ),
    "what Ray calls over is not, while its driver lives": (at_work(JobState.STOPPED, stopping=1.0), None),
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


def test_units_run_by_hand_take_room_too() -> None:
    assert decided(unit("x", live=True), unit("b"), room=Room(6.0)) == []


def test_tenths_of_gpus_add_up() -> None:
    assert len(decided(*(unit(str(number), gpus=0.1) for number in range(11)), room=Room(1.0))) == 10


def test_without_admission_a_lost_submission_waits_too() -> None:
    assert decided(at_work(None, live=False, known=False, started=False), admits=False) == []


@dataclass
class World:
    """One attempt as it really is, of which the view tells only a part."""

    state: JobState | None = None
    driver: bool = False
    fenced: bool = False
    seen: bool = False
    stopping: int | None = None
    killing: int | None = None
    idle: int = 0
    code: int | None = None


@dataclass
class Life:
    gpus: float
    attempts: list[World]
    now: World | None = None
    waiting: bool = True
    complete: bool = False
    over: str = ""
    failures: int = 0
    interruptions: int = 0


class Fleet(RuleBasedStateMachine):
    """Units on a cluster that loses jobs, drivers, answers and itself; time passes in steps of ten minutes."""

    def __init__(self) -> None:
        super().__init__()
        self.units: dict[str, Life] = {}
        self.up, self.total, self.luck = True, 12.0, Counter[str]()

    @initialize(gpus=st.lists(st.sampled_from([1.0, 3.0, 6.0, 12.0]), min_size=1, max_size=6))
    def begin(self, gpus: list[float]) -> None:
        self.units = {f"u{number}": Life(size, []) for number, size in enumerate(gpus)}

    def view(self) -> FleetView:
        return FleetView(
            tuple(self.seen(name, life) for name, life in self.units.items()),
            Room(self.total) if self.up else None,
            Limits(reap_after=7200, pending_seconds=900, stop_seconds=600, max_attempts=3),
        )

    def seen(self, name: str, life: Life) -> UnitView:
        world, shown = life.now, None
        if world is not None:
            world.seen = world.seen or world.state is not None or world.driver
            shown = AttemptView(
                len(life.attempts),
                name,
                job=None if world.state is None else Job(name, world.state),
                known=world.seen,
                started=True,
                stopping=None if world.stopping is None else world.stopping * 600.0,
                killing=None if world.killing is None else world.killing * 600.0,
                reason="stopped",
                words=None if world.code is None else LastWords(world.code),
            )
        return UnitView(
            name,
            life.gpus,
            attempt=shown,
            tried=len(life.attempts),
            live=any(world.driver for world in life.attempts),
            complete=0 if life.complete else None,
            silent=0.0 if world is None else world.idle * 600.0,
            failures=life.failures,
            interruptions=life.interruptions,
            waiting=life.waiting,
            over=bool(life.over),
        )

    @rule(times=st.integers(1, 5))
    def watch(self, times: int = 1) -> None:
        for _ in range(times):
            for action in decide(self.view()):
                self.do(action, self.units[action.unit])

    def do(self, action: Action, life: Life) -> None:
        match action:
            case Admit(_, number):
                self.submit(life, number)
            case Stop():
                assert life.now is not None
                life.now.fenced, life.now.stopping = True, 0
            case Kill(_, _, at_hand):
                assert life.now is not None
                life.now.killing = 0
                if life.now.state is JobState.RUNNING or at_hand:
                    self.end(life.now, JobState.STOPPED)
            case _:
                self.note(action, life)

    def submit(self, life: Life, number: int) -> None:
        if number > len(life.attempts):
            assert life.now is None
            life.now = World()
            life.attempts.append(life.now)
            life.waiting = False
        assert life.now is not None
        assert life.now.state is None
        if not self.luck["lost submission"]:
            life.now.state = JobState.PENDING
        self.luck["lost submission"] = 0

    @staticmethod
    def note(action: Action, life: Life) -> None:
        match action:
            case MarkGone(_, _, _, counts):
                life.now = None
                life.failures += counts
                life.interruptions += not counts
            case MarkEnded(_, _, _, complete, _):
                life.now, life.waiting = None, False
                life.over = "ended" if complete else ""
                life.failures += not complete
            case Requeue():
                life.waiting = True
            case GiveUp():
                life.over = "given up"
            case _:
                raise AssertionError(action)

    @staticmethod
    def end(world: World, state: JobState | None) -> None:
        world.state, world.driver = state, False

    def jobs(self, state: JobState) -> list[tuple[Life, World]]:
        """Of all attempts, old ones that were withdrawn too: Ray may start them at any time."""
        return [(life, world) for life in self.units.values() for world in life.attempts if world.state is state]

    @rule()
    def time_passes(self) -> None:
        for life in self.units.values():
            for world in life.attempts:
                world.idle += 1
                world.stopping = None if world.stopping is None else world.stopping + 1
                world.killing = None if world.killing is None else world.killing + 1

    @precondition(lambda self: self.jobs(JobState.PENDING))
    @rule(data=st.data())
    def ray_starts_a_job(self, data: st.DataObject) -> None:
        _life, world = data.draw(st.sampled_from(self.jobs(JobState.PENDING)))
        world.state, world.idle = JobState.RUNNING, 0
        if world.fenced:
            self.end(world, JobState.FAILED)  # it finds that it was asked to stop, and does nothing
            world.code = 130
        else:
            world.driver = True

    @precondition(lambda self: self.jobs(JobState.RUNNING))
    @rule(data=st.data(), how=st.sampled_from(["complete", "incomplete", "killed", "gets on", "stops", "node lost"]))
    def something_happens(self, data: st.DataObject, how: str) -> None:
        life, world = data.draw(st.sampled_from(self.jobs(JobState.RUNNING)))
        if how == "gets on":
            world.idle = 0
        elif how == "node lost":
            world.state = JobState.FAILED  # its driver may still seem alive
        elif how == "stops" and world.fenced:
            self.end(world, JobState.FAILED)
            world.code = 130
        elif how != "stops":
            self.end(world, JobState.SUCCEEDED if how == "complete" else JobState.FAILED)
            life.complete = life.complete or how == "complete"
            world.code = {"complete": 0, "incomplete": 3}.get(how)

    @rule()
    def a_driver_left_alone_ends(self) -> None:
        for life in self.units.values():
            for world in life.attempts:
                if world.state is not JobState.RUNNING:
                    world.driver = False

    @rule()
    def a_submission_is_lost(self) -> None:
        self.luck["lost submission"] = 1

    @rule()
    def the_head_starts_anew(self) -> None:
        for life in self.units.values():
            for world in life.attempts:
                self.end(world, None)
        self.up = True

    @rule(up=st.booleans())
    def the_network(self, up: bool) -> None:
        self.up = up

    @rule(total=st.sampled_from([12.0, 12.0, 6.0]))
    def nodes_come_and_go(self, total: float) -> None:
        self.total = total

    @invariant()
    def no_unit_runs_twice(self) -> None:
        for life in self.units.values():
            assert sum(world.driver for world in life.attempts) <= 1

    @invariant()
    def never_more_gpus_than_there_were(self) -> None:
        drivers = [life.gpus for life in self.units.values() for world in life.attempts if world.driver]
        assert sum(drivers) <= 12.0

    @invariant()
    def nobody_is_given_up_before_its_time(self) -> None:
        for life in self.units.values():
            assert life.over != "given up" or life.failures == 3 or life.interruptions == MOST_INTERRUPTIONS
            assert life.over != "ended" or life.complete

    def teardown(self) -> None:
        """From wherever it stands, a quiet cluster brings every unit to its end."""
        self.up, self.total, self.luck = True, 12.0, Counter()
        for _ in range(400):
            self.watch()
            self.time_passes()
            self.a_driver_left_alone_ends()
            for life, world in self.jobs(JobState.PENDING) + self.jobs(JobState.RUNNING):
                if world.fenced or world.state is JobState.RUNNING:
                    life.complete = life.complete or not world.fenced
                    self.end(world, JobState.FAILED if world.fenced else JobState.SUCCEEDED)
                    world.code = 130 if world.fenced else 0
                else:
                    world.state, world.driver, world.idle = JobState.RUNNING, True, 0
            self.no_unit_runs_twice()
            self.never_more_gpus_than_there_were()
            if all(life.over for life in self.units.values()):
                return
        raise AssertionError(f"not at an end: {self.units}")


TestFleet = Fleet.TestCase
TestFleet.settings = settings(max_examples=80, stateful_step_count=60, deadline=None)
