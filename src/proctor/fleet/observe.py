"""Looks at the cluster and at the run directories, and tells what there is to see."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from proctor.fleet.book import ENDED, Attempt, Book, History
from proctor.fleet.cells import Unit
from proctor.fleet.folder import Fleet, FleetDir
from proctor.fleet.jobs import Cluster, Sighting, UnreachableError
from proctor.fleet.notes import Notes
from proctor.fleet.others import Others
from proctor.fleet.progress import rows_of_status
from proctor.fleet.silence import Clocks, Silence, mark_of
from proctor.fleet.view import AttemptView, FleetView, Job, Limits, Room, UnitView
from proctor.results import RunDir
from proctor.rows import UserError


def prefix_of(fleet: Fleet) -> str:
    """What the ids of a fleet's jobs begin with."""
    return f"proctor-{fleet.id}-"


def submission_of(fleet: Fleet, unit: str, attempt: int) -> str:
    """Id of the job of an attempt: the same attempt is never taken twice by Ray."""
    return f"{prefix_of(fleet)}{unit}-{attempt}"


def parsed(fleet: Fleet, submission: str) -> tuple[str, int] | None:
    """Unit and attempt of a job of this fleet; None for any other job."""
    prefix = prefix_of(fleet)
    unit, dash, number = submission.removeprefix(prefix).rpartition("-")
    return (unit, int(number)) if submission.startswith(prefix) and dash and number.isdecimal() else None


class Observer:
    """Makes a view of a fleet, again and again.

    Args:
        directory: the fleet directory.
        cluster: where its jobs run.
        book: what has happened so far; kept up to date by whoever acts.
        admits: whether what is decided from the view may admit units.
        clocks: by which units are silent.
    """

    def __init__(
        self,
        directory: FleetDir,
        cluster: Cluster,
        book: Book,
        *,
        admits: bool = True,
        clocks: Callable[[], Clocks] = Clocks.read,
    ) -> None:
        self._directory, self._cluster, self._book, self._admits = directory, cluster, book, admits
        self._notes, self._silence, self._clocks = Notes(directory.folder), Silence(directory.folder), clocks
        self._others = Others()
        self._complete: dict[tuple[str, int], int | None] = {}
        self.trouble = ""
        """Why the cluster cannot be reached; empty if it can be."""

    def look(self, fleet: Fleet, units: Sequence[Unit]) -> FleetView:
        """What there is to see now.

        Raises:
            OSError: the fleet directory cannot be read.
        """
        limits = Limits(
            fleet.spec.reap_after, fleet.spec.pending_seconds, fleet.spec.stop_seconds, fleet.spec.max_attempts
        )
        sighting = self._sighting()
        if sighting is None:
            return FleetView(tuple(self._remembered(unit) for unit in units), None, limits, self._admits)
        jobs = {place: job for job in sighting.jobs.values() if (place := parsed(fleet, job.submission)) is not None}
        held = self._notes.held()
        found = tuple(self._directory.each(lambda unit: self._unit(unit, jobs, held), units))
        ours = {unit.name: unit.gpus for unit in found if unit.live}
        others = self._others.of(sighting.used, ours, self._book.now())
        return FleetView(found, _room(fleet, sighting, others, units), limits, self._admits)

    def keep(self, *, at_once: bool = False) -> None:
        """Stores since when units have not got on, every half minute or `at_once`, for the next watcher.

        Raises:
            OSError: storage failed.
        """
        self._silence.save(at_once=at_once)

    def _sighting(self) -> Sighting | None:
        try:
            found = self._cluster.look()
        except UnreachableError as error:
            self.trouble = str(error)
            return None
        self.trouble = ""
        return found

    def _remembered(self, unit: Unit) -> UnitView:
        history = self._book.unit(unit.name)
        over = bool(history.over)
        complete = history.exit_code if history.over == ENDED else None
        return UnitView(
            unit.name, unit.gpus, unit.priority, tried=history.tried, complete=complete, over=over, rows=history.rows
        )

    def _unit(self, unit: Unit, ours: dict[tuple[str, int], Job], held: set[str]) -> UnitView:
        history = self._book.unit(unit.name)
        if history.over:
            return self._remembered(unit)
        run = self._directory.run(unit.name)
        found = _unrecorded(ours, unit.name, history)
        attempt = history.attempt if found is None else Attempt(found[0], found[1].submission)
        live = self._live(unit, run, history, looked_at=attempt is not None)
        job = None if attempt is None else ours.get((unit.name, attempt.number))
        shown = None if attempt is None else self._attempt(attempt, job, recorded=found is None, live=live)
        status = _status(run) if shown is not None or live else None
        silent = 0.0 if shown is None else self._silence.of(unit.name, _mark(shown, status), self._clocks())
        return UnitView(
            unit.name,
            unit.gpus,
            unit.priority,
            cpus=unit.spec.engines_at_once * unit.spec.engine.cpus_per_replica,
            attempt=shown,
            tried=history.tried,
            live=live,
            complete=None if live else self._completeness(unit, run, history),
            silent=silent,
            failures=history.failures,
            interruptions=history.interruptions,
            waiting=history.waiting,
            held=unit.name in held,
            hopeless=history.hopeless,
            rest=self._book.rest(unit.name),
            last=history.last,
            rows=rows_of_status(status) or history.rows,
        )

    def _attempt(self, attempt: Attempt, job: Job | None, *, recorded: bool, live: bool) -> AttemptView:
        attempt.known = attempt.known or job is not None or live
        may_have_ended = not live or (job is not None and job.state.terminal)
        return AttemptView(
            attempt.number,
            attempt.submission,
            job=job,
            known=attempt.known,
            recorded=recorded,
            started=attempt.started,
            stopping=self._book.since(attempt.stopping),
            killing=self._book.since(attempt.killing),
            kills=attempt.kills,
            stuck=attempt.stuck,
            reason=attempt.reason,
            asked=attempt.asked,
            words=self._notes.left(attempt.submission) if may_have_ended else None,
        )

    def _live(self, unit: Unit, run: RunDir, history: History, *, looked_at: bool) -> bool:
        """Whether a driver holds the run directory. One that nobody has submitted is looked at once, and as long as
        somebody runs it by hand; before a unit is admitted, it is looked at again."""
        if not (looked_at or history.by_hand or (unit.name, history.tried) not in self._complete):
            return False
        live = run.live
        if live and not looked_at:
            history.by_hand = True
        elif history.by_hand:
            history.by_hand = False
            self._complete.pop((unit.name, history.tried), None)
        return live

    def _completeness(self, unit: Unit, run: RunDir, history: History) -> int | None:
        """Exit code with which a run directory says that every row is accounted for; None if it does not.

        Looked at once for each attempt that is gone, and again as long as one is under way.
        """
        key = (unit.name, history.tried)
        if history.attempt is None and key in self._complete:
            return self._complete[key]
        self._complete[key] = completeness(run, [cell.checkpoint for cell in unit.cells])
        return self._complete[key]


def completeness(run: RunDir, checkpoints: Sequence[str]) -> int | None:
    """Exit code with which a run directory says that every row of `checkpoints` is accounted for; else None."""
    try:
        found = run.read("reconciliation")
        complete = {ledger["checkpoint"] for ledger in found["checkpoints"] if ledger["complete"]}
        return int(found["exit_code"]) if complete.issuperset(checkpoints) else None
    except (UserError, KeyError, TypeError, ValueError):
        return None  # not there, or damaged: the run's own next attempt makes it anew


def _unrecorded(ours: dict[tuple[str, int], Job], unit: str, history: History) -> tuple[int, Job] | None:
    """A job of a later attempt than any that the events hold: a watcher died before it could write that down."""
    if history.attempt is not None:
        return None
    jobs = {number: job for (name, number), job in ours.items() if name == unit and number > history.tried}
    alive = [number for number, job in jobs.items() if not job.state.terminal]
    return (max(alive), jobs[max(alive)]) if alive else None


def _status(run: RunDir) -> Any:
    with contextlib.suppress(UserError):  # damaged; it is written anew all the time
        return run.read("status")
    return None


def _mark(attempt: AttemptView, status: Any) -> str:
    return mark_of(attempt.number, "" if attempt.job is None else attempt.job.state, status)


def _room(fleet: Fleet, sighting: Sighting, others: float, units: Sequence[Unit]) -> Room:
    """What the fleet may use."""
    most = sighting.gpus if fleet.spec.cluster.gpus is None else min(sighting.gpus, fleet.spec.cluster.gpus)
    left_to_others = sighting.gpus - most
    jobs = fleet.spec.max_concurrent or max(1, int(sighting.cpus))  # a driver keeps a CPU busy
    prepares = max((unit.spec.stream.prepare_cpus for unit in units), default=0.0)
    return Room(most, max(0.0, others - left_to_others), jobs, sighting.cpus - prepares)
