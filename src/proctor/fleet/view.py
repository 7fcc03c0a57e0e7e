"""What a watcher sees when it looks once: plain data, with ages in place of times, from which `decide` follows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class JobState(StrEnum):
    """State of a job, in Ray's words (`ray.job_submission.JobStatus`)."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    @property
    def terminal(self) -> bool:
        """Whether nothing of the job runs any more, as far as Ray knows."""
        return self not in (JobState.PENDING, JobState.RUNNING)


@dataclass(frozen=True, slots=True)
class Job:
    """A job as Ray tells it.

    Attributes:
        submission: its id, which the fleet chose.
        state: how far it is.
        interrupted: it failed through no fault of its own: its supervising actor never started, or died.
        message: what Ray says about it.
    """

    submission: str
    state: JobState
    interrupted: bool = False
    message: str = ""


@dataclass(frozen=True, slots=True)
class LastWords:
    """What a unit's own process left when it ended.

    Attributes:
        exit_code: the run's.
        message: why, where it is a mistake; else empty.
    """

    exit_code: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class AttemptView:
    """A try of a unit that has not been found gone yet. Ages in seconds.

    Attributes:
        number: from 1.
        submission: id of its job.
        job: what Ray says now; None: Ray does not know it.
        known: whether Ray ever knew it, or its driver was ever seen.
        recorded: whether the fleet's events hold it; one that they do not hold was found at Ray.
        started: whether its driver was seen at work.
        stopping: since it was asked to stop; None: it was not.
        killing: since it was last ended by force; None: it was not.
        kills: how often that was.
        stuck: it was told that a person has to end it.
        reason: why it was asked to stop.
        asked: a person wants it stopped, so that it does not count as a failure.
        words: what its process left; None: nothing (yet).
    """

    number: int
    submission: str
    job: Job | None = None
    known: bool = False
    recorded: bool = True
    started: bool = False
    stopping: float | None = None
    killing: float | None = None
    kills: int = 0
    stuck: bool = False
    reason: str = ""
    asked: bool = False
    words: LastWords | None = None


class Rows(NamedTuple):
    """Rows of a unit, over all of its checkpoints.

    Attributes:
        expected: to answer.
        done: with a final record, errors among them.
        errors: that ended in an error; of a run that goes on, only those of its last try.
    """

    expected: int
    done: int
    errors: int


@dataclass(frozen=True, slots=True)
class UnitView:
    """A unit of the fleet.

    Attributes:
        name: of the unit.
        gpus: that its job takes.
        cpus: that its engines reserve.
        priority: higher comes first; among equals the order in the view decides.
        attempt: the try that is under way, if one is.
        tried: tries so far.
        live: a driver holds its run directory, whatever Ray says.
        complete: exit code with which its run directory says that every row is accounted for; None: it does not.
        silent: seconds since its run directory, or the state of its job, last got on.
        failures: tries that count against `Limits.max_attempts`.
        interruptions: tries that the cluster interrupted.
        waiting: it stands in the queue: it was never tried, or has been put back.
        over: it has its last word.
        held: a person does not want it to run.
        hopeless: why another try has no prospect; empty if it may have.
        rest: seconds until it may be tried again.
        last: why the last try ended.
        rows: how far its run is, as far as that is known.
    """

    name: str
    gpus: float
    priority: int = 0
    cpus: float = 0.0
    attempt: AttemptView | None = None
    tried: int = 0
    live: bool = False
    complete: int | None = None
    silent: float = 0.0
    failures: int = 0
    interruptions: int = 0
    waiting: bool = True
    over: bool = False
    held: bool = False
    hopeless: str = ""
    rest: float = 0.0
    last: str = ""
    rows: Rows | None = None

    @property
    def takes_room(self) -> bool:
        """Whether its GPUs may be in use: it was admitted, or somebody runs it by hand."""
        return self.attempt is not None or self.live

    @property
    def ending(self) -> bool:
        """Whether an attempt that was asked to stop is still there, and may yet end without a person."""
        return self.attempt is not None and self.attempt.stopping is not None and not self.attempt.stuck


@dataclass(frozen=True, slots=True)
class Limits:
    """What a fleet's spec says about patience; seconds and counts. See `proctor.spec.fleet.FleetSpec`."""

    reap_after: float = 7200.0
    pending_seconds: float = 900.0
    stop_seconds: float = 30.0
    max_attempts: int = 3


@dataclass(frozen=True, slots=True)
class Room:
    """What the fleet may use.

    Attributes:
        gpus: in all, for this fleet: what the spec allows it, of what the cluster's living nodes have.
        others: of those, GPUs that somebody else uses.
        jobs: most jobs at the same time.
        cpus: that engines may reserve: those of the cluster's living nodes, but for what a task takes that reads and
            prepares. Where engines of several jobs reserve them all, none of them ever gets a row.
    """

    gpus: float
    others: float = 0.0
    jobs: int = 1_000_000
    cpus: float = math.inf


@dataclass(frozen=True, slots=True)
class FleetView:
    """Everything that decisions follow from.

    Attributes:
        units: in the order in which they are expanded.
        room: what may be used; None: the cluster cannot be reached, and nothing is decided.
        limits: the fleet's patience.
        admits: whether units may be admitted at all (`fleet reap` and `fleet stop` only end what runs).
    """

    units: tuple[UnitView, ...]
    room: Room | None
    limits: Limits = Limits()
    admits: bool = True

    @property
    def over(self) -> bool:
        """Whether every unit has its last word."""
        return all(unit.over for unit in self.units)
