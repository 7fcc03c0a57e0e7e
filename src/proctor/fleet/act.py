"""Does what was decided, and writes down each step. Whoever uses it holds the fleet's lease."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from proctor.fleet import words
from proctor.fleet.book import Book
from proctor.fleet.cells import Unit
from proctor.fleet.decide import (
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
)
from proctor.fleet.folder import Fleet, FleetDir, storage_options
from proctor.fleet.jobs import Cluster, Order, RefusedError, TwiceError, UnreachableError
from proctor.fleet.notes import Notes
from proctor.fleet.observe import submission_of
from proctor.fleet.progress import rows_of_ledgers
from proctor.rows import Event
from proctor.storage.connect import DEFAULT_OPTIONS
from proctor.storage.folder import Folder
from proctor.storage.holder import Holder
from proctor.storage.lease import read_lease


class Actor:
    """Carries out decisions on one cluster.

    Args:
        directory: the fleet directory.
        cluster: where jobs run.
        book: is told every event.
        tell: is told every event, too.
        check: raises `UserError` once this process may not write in the fleet directory any more.
    """

    def __init__(
        self,
        directory: FleetDir,
        cluster: Cluster,
        book: Book,
        tell: Callable[[Event], None],
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._directory, self._cluster, self._book, self._tell = directory, cluster, book, tell
        self._notes, self._check = Notes(directory.folder), check
        self.untaken = ""
        """Why the cluster did not take the job that was submitted last; empty if it did."""

    def record(self, kind: str, message: str = "", **data: Any) -> None:
        """Writes an event with plain `data` down, and then takes it into account.

        Raises:
            OSError: it could not be written; then it counts for nothing.
            UserError: another watcher has the fleet now.
        """
        self._check()
        event = Event(kind, message=message, data=dict(data))
        self._directory.append_event(event)
        self._book.add(event)
        self._tell(event)

    def act(self, actions: Sequence[Action], fleet: Fleet, units: Sequence[Unit]) -> None:
        """Carries out `actions`, in order. What the cluster does not take is decided anew at the next look.

        Raises:
            OSError: the fleet directory cannot be written.
            UserError: another watcher has the fleet now.
        """
        by_name = {unit.name: unit for unit in units}
        reached = True
        for action in actions:
            self._check()
            match action:
                case Admit():  # each try to reach a cluster that does not answer would take its whole time limit
                    reached = reached and self._admit(action, fleet, by_name[action.unit])
                case Stop():
                    self._stop(action, fleet)
                case Kill():
                    self._kill(action, fleet)
                case _:
                    self._note(action, fleet)

    def _admit(self, action: Admit, fleet: Fleet, unit: Unit) -> bool:
        """Submits a job; whether the cluster could be reached."""
        if self._directory.run(unit.name).live:
            self._book.unit(unit.name).by_hand = True  # since the last look
            return True
        submission = submission_of(fleet, unit.name, action.attempt)
        current = self._book.unit(unit.name).attempt

        def note(kind: str, message: str = "", *, counts: bool | None = None) -> None:
            about = {"unit": unit.name, "attempt": action.attempt, "submission": submission, "gpus": unit.gpus}
            self.record(kind, message, **about, **({} if counts is None else {"counts": counts}))

        if current is None or current.number != action.attempt:
            note(words.UNIT_ADMITTED)
        try:
            self._cluster.submit(self._order(fleet, unit, submission, action.attempt))
        except TwiceError:
            note(words.UNIT_ADOPTED, "its job was submitted already")
        except RefusedError as error:
            note(words.UNIT_GONE, f"its job was refused: {error}", counts=True)
        except UnreachableError as error:
            self.untaken = f"the cluster does not take the job of {unit.name}, which is tried again: {error}"
            return False  # whether it has arrived will be seen
        self.untaken = ""
        return True

    def _order(self, fleet: Fleet, unit: Unit, submission: str, attempt: int) -> Order:
        python = fleet.spec.cluster.python or sys.executable
        command = [python, "-m", "proctor", "fleet", "unit", fleet.spec.fleet_dir, unit.name]
        command += ["--attempt", str(attempt)]
        options = storage_options(fleet.spec)
        if options != DEFAULT_OPTIONS:  # the job has to find the fleet directory before it can read the spec in it
            command += ["--storage", msgspec.json.encode(options).decode()]
        ticket = fleet.spec.cluster.ticket
        tickets = {} if ticket is None or not unit.gpus else {ticket: unit.gpus}
        return Order(submission, shlex.join(command), tickets)

    def _stop(self, action: Stop, fleet: Fleet) -> None:
        submission = submission_of(fleet, action.unit, action.attempt)
        self._notes.ask_to_stop(submission, action.reason)
        self.record(
            words.UNIT_STOPPING,
            action.reason,
            unit=action.unit,
            attempt=action.attempt,
            asked=action.asked,
        )

    def _kill(self, action: Kill, fleet: Fleet) -> None:
        submission = submission_of(fleet, action.unit, action.attempt)
        with contextlib.suppress(UnreachableError):
            self._cluster.stop(submission)
        ended = action.at_hand and kill_driver(self._directory.run(action.unit).folder, action.unit)
        how = "its driver was killed" if ended else "Ray was told to end its job"
        self.record(words.UNIT_KILLED, how, unit=action.unit, attempt=action.attempt)

    def _note(self, action: Action, fleet: Fleet) -> None:
        """Steps that are nothing but written down."""
        match action:
            case Started(unit, attempt):
                self.record(words.UNIT_STARTED, unit=unit, attempt=attempt)
            case Adopt(unit, attempt):
                submission = submission_of(fleet, unit, attempt)
                text = "found at Ray, not in the events"
                self.record(words.UNIT_ADOPTED, text, unit=unit, attempt=attempt, submission=submission)
            case MarkGone(unit, attempt, reason, counts):
                asked = self._asked(unit)
                self.record(words.UNIT_GONE, reason, unit=unit, attempt=attempt, counts=counts, asked=asked)
            case MarkStuck(unit, attempt, reason):
                who = read_lease(self._directory.run(unit).folder)
                self.record(words.UNIT_STUCK, f"{reason}; {_where(who)}", unit=unit, attempt=attempt)
            case MarkEnded(unit, attempt, code, complete, reason):
                rows = rows_of_ledgers(self._directory.run(unit))
                about = {"exit_code": code, "complete": complete, **({} if rows is None else rows._asdict())}
                self.record(words.UNIT_ENDED, reason, unit=unit, attempt=attempt, **about)
            case Requeue(unit, reason):
                self.record(words.UNIT_REQUEUED, reason, unit=unit, attempt=self._book.unit(unit).tried)
            case GiveUp(unit, reason):
                self.record(words.UNIT_GIVEN_UP, reason, unit=unit, attempt=self._book.unit(unit).tried)

    def _asked(self, unit: str) -> bool:
        attempt = self._book.unit(unit).attempt
        return attempt is not None and attempt.asked


def _where(holder: Holder | None) -> str:
    if holder is None or holder.released:
        return "no driver says that it is at work: look for its job with `ray job list`"
    return f"end its driver by hand (pid {holder.pid} on {holder.host})"


def kill_driver(run: Folder, unit: str) -> bool:
    """Kills the process that holds a run directory, if it is a unit's on this machine. Returns whether it was."""
    holder = read_lease(run)
    if holder is None or holder.released or not (holder.here and holder.alive):
        return False
    try:
        command = Path(f"/proc/{holder.pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    if not {b"fleet", b"unit", unit.encode()}.issubset(command):
        return False  # somebody's own run
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(holder.pid, signal.SIGKILL)
        return True
    return False
