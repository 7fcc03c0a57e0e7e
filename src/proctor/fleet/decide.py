"""What is to be done, from what is seen. Pure: no clock, no files, no Ray.

A unit goes round until it has its last word::

    waiting -> admitted -> (started) -> ended by itself -> over, if every row is accounted for
       ^                      |              |
       |                      v              v
       +---- requeued <---- gone <---- stopping, killed          given up, after too many tries

At most one step of a unit is taken at a time, so that what is decided next follows from what was really seen.
"""

from __future__ import annotations

from dataclasses import dataclass

from proctor.fleet.view import AttemptView, FleetView, JobState, Limits, Room, UnitView
from proctor.storage.lease import TTL

MOST_INTERRUPTIONS = 25
"""Tries of a unit that the cluster may interrupt before the unit is suspected of being the reason."""
_ROUNDING = 1e-6
_HELPLESS = 3
"""Times that an attempt is ended by force in vain before a person is called."""
_LONGEST_PAUSE = 3600.0
"""Most seconds between two such times, unless a stop itself may take longer."""
_MOST_DOUBLINGS = 30
_ORPHAN_SECONDS = 2 * TTL
"""A driver on a machine that is gone still seems alive for so long."""


@dataclass(frozen=True, slots=True)
class Admit:
    """Submit the job of a unit: a new attempt, or once more one that never got through to Ray."""

    unit: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Adopt:
    """Take over a job of this fleet that its events do not hold."""

    unit: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Started:
    """The driver of an attempt is at work."""

    unit: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Ask an attempt to stop in good order. From here on its job, should it start only now, does nothing."""

    unit: str
    attempt: int
    reason: str
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Kill:
    """End an attempt that was asked to stop and did not; `at_hand`: its driver itself, if Ray cannot or could not."""

    unit: str
    attempt: int
    at_hand: bool


@dataclass(frozen=True, slots=True)
class MarkStuck:
    """An attempt cannot be ended from here: say so, once. It is still tried, ever more rarely."""

    unit: str
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class MarkGone:
    """Nothing of an attempt is left, and it did not end by itself. `counts`: against the attempts a unit has."""

    unit: str
    attempt: int
    reason: str
    counts: bool


@dataclass(frozen=True, slots=True)
class MarkEnded:
    """A run came to its end by itself: `complete` if every row of it is accounted for."""

    unit: str
    attempt: int
    exit_code: int
    complete: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Requeue:
    """Put a unit back into the queue."""

    unit: str
    reason: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Leave a unit as it is; the others go on."""

    unit: str
    reason: str


Action = Admit | Adopt | Started | Stop | Kill | MarkStuck | MarkGone | MarkEnded | Requeue | GiveUp


def decide(view: FleetView) -> list[Action]:
    """The steps to take now: at most one for each unit. None while the cluster cannot be reached."""
    if view.room is None:
        return []
    steps = [step for unit in view.units if not unit.over and (step := _step(unit, view.limits)) is not None]
    if view.admits:
        return [*steps, *_admissions(view, view.room)]
    return [step for step in steps if not isinstance(step, Admit)]


def _step(unit: UnitView, limits: Limits) -> Action | None:
    if unit.attempt is not None:
        return _under_way(unit, unit.attempt, limits)
    if unit.live:
        return None  # somebody runs it by hand: it is left alone, and never a second one started beside it
    if unit.complete is not None:
        return MarkEnded(unit.name, unit.tried, unit.complete, complete=True)
    if unit.held or unit.waiting:
        return None
    return _again(unit, limits)


def _again(unit: UnitView, limits: Limits) -> Action:
    """What becomes of a unit whose last try is gone."""
    if unit.hopeless:
        return GiveUp(unit.name, unit.hopeless)
    if unit.failures >= limits.max_attempts:
        return GiveUp(unit.name, f"{unit.failures} attempts, the last one: {unit.last}")
    if unit.interruptions >= MOST_INTERRUPTIONS:
        return GiveUp(unit.name, f"the cluster interrupted it {unit.interruptions} times, lastly: {unit.last}")
    return Requeue(unit.name, unit.last)


def _under_way(unit: UnitView, attempt: AttemptView, limits: Limits) -> Action | None:
    if not attempt.recorded:
        return Adopt(unit.name, attempt.number)
    if _is_gone(unit, attempt):
        return _end_of(unit, attempt)
    if attempt.job is None and not attempt.known:
        return _once_more(unit, attempt)
    if unit.live and not attempt.started:
        return Started(unit.name, attempt.number)
    if attempt.stopping is None:
        reason = _why_stop(unit, attempt, limits)
        return Stop(unit.name, attempt.number, reason, asked=unit.held) if reason else None
    return _by_force(unit, attempt, attempt.stopping, limits.stop_seconds)


def _by_force(unit: UnitView, attempt: AttemptView, stopping: float, patience: float) -> Action | None:
    """Ends an attempt that was asked to stop `stopping` seconds ago and did not, after pauses that grow."""
    waited = stopping if attempt.killing is None else attempt.killing
    if waited < patience:
        return None
    if attempt.kills >= _HELPLESS and not attempt.stuck:
        return MarkStuck(unit.name, attempt.number, f"ended by force {attempt.kills} times, and still there")
    pause = min(patience * 2.0 ** min(max(0, attempt.kills - 1), _MOST_DOUBLINGS), max(patience, _LONGEST_PAUSE))
    at_hand = attempt.killing is not None or attempt.job is None or attempt.job.state.terminal
    return Kill(unit.name, attempt.number, at_hand) if waited >= pause else None


def _once_more(unit: UnitView, attempt: AttemptView) -> Action | None:
    """An attempt that never got through to Ray, or was forgotten before anyone saw it: the same id cannot run twice."""
    if unit.held:
        return Stop(unit.name, attempt.number, "asked to stop", asked=True)
    return None if unit.live else Admit(unit.name, attempt.number)


def _is_gone(unit: UnitView, attempt: AttemptView) -> bool:
    """Whether nothing of an attempt can run any more: Ray's word alone does not do, nor does the lease's."""
    over = attempt.job is not None and attempt.job.state.terminal
    if unit.live:
        return over and attempt.words is not None  # its process has said its last word: it is somebody else's run
    if attempt.job is None:
        return attempt.known or attempt.stopping is not None
    # Ray cannot take back a job that waits; should it ever start, it finds that it was asked to stop.
    withdrawn = attempt.job.state is JobState.PENDING and attempt.stopping is not None
    return over or withdrawn


def _why_stop(unit: UnitView, attempt: AttemptView, limits: Limits) -> str:
    if unit.held:
        return "asked to stop"
    if attempt.job is None or attempt.job.state.terminal:
        left_alone = unit.silent > max(_ORPHAN_SECONDS, limits.stop_seconds)
        return "its job is over and its driver is not" if left_alone else ""
    if attempt.job.state is JobState.PENDING:
        return f"pending for {unit.silent:.0f} s" if unit.silent > limits.pending_seconds else ""
    return f"no progress for {unit.silent:.0f} s" if unit.silent > limits.reap_after else ""


def _end_of(unit: UnitView, attempt: AttemptView) -> Action:
    """How an attempt ended of which nothing is left."""
    name, number, job, words = unit.name, attempt.number, attempt.job, attempt.words
    if unit.complete is not None:
        return MarkEnded(name, number, unit.complete, complete=True)
    if attempt.stopping is not None:
        began = job is None or job.state is not JobState.PENDING  # one that never did is the cluster's affair
        return MarkGone(name, number, attempt.reason, counts=began and not attempt.asked)
    if job is None:
        return MarkGone(name, number, "the cluster does not know its job any more", counts=False)
    if job.interrupted:
        return MarkGone(name, number, job.message or "its job never started", counts=False)
    if words is not None:
        return MarkEnded(name, number, words.exit_code, complete=False, reason=words.message)
    return MarkGone(name, number, f"its driver ended without a word: {job.message or job.state}", counts=True)


def _admissions(view: FleetView, room: Room) -> list[Action]:
    """Units that fit now, in the order of the queue: none passes another that could go next."""
    free, slots, cpus = _left(view, room)
    alone = not any(unit.takes_room for unit in view.units)
    admitted: list[Action] = []
    for unit in _queue(view):
        if unit.gpus > room.gpus + _ROUNDING:
            continue  # the cluster is too small for it, at least now; the others need not wait for that
        if unit.gpus > free or slots < 1:
            break
        if unit.cpus > cpus and (admitted or not alone):
            break  # one that is alone is refused by its own run, which says what it takes
        free, slots, cpus = free - unit.gpus, slots - 1, cpus - unit.cpus
        admitted.append(Admit(unit.name, unit.tried + 1))
    return admitted


def _left(view: FleetView, room: Room) -> tuple[float, int, float]:
    """GPUs, jobs and CPUs that are left beside the units that take room."""
    taking = [unit for unit in view.units if unit.takes_room]
    free = room.gpus - room.others - sum(unit.gpus for unit in taking) + _ROUNDING
    return free, room.jobs - len(taking), room.cpus - sum(unit.cpus for unit in taking) + _ROUNDING


def _queue(view: FleetView) -> list[UnitView]:
    return sorted((unit for unit in view.units if may_run(unit)), key=lambda unit: -unit.priority)


def may_run(unit: UnitView) -> bool:
    """Whether a unit waits for nothing but room."""
    idle = unit.waiting and not (unit.takes_room or unit.over or unit.held)
    return idle and unit.complete is None and unit.rest <= 0


def why_idle(view: FleetView) -> str:
    """Why nothing is at work although units wait for room; empty where something is, or none does."""
    waiting = _queue(view)
    if view.room is None or not (view.admits and waiting) or any(unit.takes_room for unit in view.units):
        return ""
    fitting = [unit for unit in waiting if unit.gpus <= view.room.gpus + _ROUNDING]
    if not fitting:
        least = min(waiting, key=lambda unit: unit.gpus)
        return f"nothing can start: {least.name} takes {least.gpus:g} GPUs, and the fleet may use {view.room.gpus:g}"
    if fitting[0].gpus > view.room.gpus - view.room.others + _ROUNDING:
        return f"nothing can start now: others use the GPUs that {fitting[0].name} waits for"
    return ""


def why_fewer(view: FleetView) -> str:
    """Why a unit waits although there are GPUs for it, if that is for CPUs; else empty."""
    waiting = _queue(view)
    if view.room is None or not (view.admits and waiting and any(unit.takes_room for unit in view.units)):
        return ""
    (free, slots, cpus), first = _left(view, view.room), waiting[0]
    if first.gpus > free or slots < 1 or first.cpus <= cpus:
        return ""
    may = f"the engines of all jobs may reserve {max(0.0, view.room.cpus):g} CPUs, and {first.cpus:g} more are wanted"
    return f"a unit waits although there are GPUs for it: {may} (engine.cpus_per_replica)"
