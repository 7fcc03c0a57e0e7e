"""A machine that plays a cluster, and whatever can happen to it, against what is decided."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proctor.fleet.decide import (
    MOST_INTERRUPTIONS,
    Action,
    Admit,
    GiveUp,
    Kill,
    MarkEnded,
    MarkGone,
    MarkStuck,
    Requeue,
    Stop,
    decide,
)
from proctor.fleet.view import AttemptView, FleetView, Job, JobState, LastWords, Limits, Room, UnitView


@dataclass
class World:
    """One attempt as it really is, of which the view tells only a part."""

    state: JobState | None = None
    driver: bool = False
    fenced: bool = False
    seen: bool = False
    stopping: int | None = None
    killing: int | None = None
    kills: int = 0
    stuck: bool = False
    immortal: bool = False
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
                kills=world.kills,
                stuck=world.stuck,
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
                life.now.killing, life.now.kills = 0, life.now.kills + 1
                if (life.now.state is JobState.RUNNING or at_hand) and not life.now.immortal:
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
            case MarkStuck():
                assert life.now is not None
                assert not life.now.stuck, "a person is called once"
                life.now.stuck = True
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

    @precondition(lambda self: self.jobs(JobState.RUNNING))
    @rule(data=st.data())
    def a_driver_cannot_be_ended_from_here(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.jobs(JobState.RUNNING)))[1].immortal = True

    @rule()
    def a_driver_left_alone_ends(self) -> None:
        for life in self.units.values():
            for world in life.attempts:
                if world.state is not JobState.RUNNING and not world.immortal:
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
        for life in self.units.values():
            for world in life.attempts:
                world.immortal = False  # the person has come
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
