"""What a job of a fleet does: it runs one unit, unless it was asked not to, and says with what it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from proctor.fleet.folder import FleetDir
from proctor.fleet.notes import Notes
from proctor.fleet.observe import submission_of
from proctor.fleet.view import LastWords
from proctor.rows import UserError
from proctor.runner.interrupts import interruptible
from proctor.runner.outcome import ExitCode, RunOutcome
from proctor.spec import RunSpec
from proctor.spec.run import RaySpec

_LOOK_SECONDS = 1.0
_HASTY_SECONDS = 10.0


def run_unit(place: FleetDir, unit: str, attempt: int, run: Callable[[RunSpec], RunOutcome]) -> RunOutcome | None:
    """Runs a unit of the fleet on the cluster that this process is a job of.

    Args:
        place: the fleet directory.
        unit: name of the unit.
        attempt: number of the attempt, from 1.
        run: what runs it: `proctor.run`.

    Returns:
        The outcome; None if it was asked to stop before it began.

    Raises:
        UserError: there is no such unit, or its run was refused.
        KeyboardInterrupt: it was asked to stop before there was anything to conclude.
    """
    notes, submission = Notes(place.folder), submission_of(place.fleet(), unit, attempt)
    if notes.stop_asked(submission):
        notes.leave(submission, LastWords(ExitCode.INTERRUPTED, "asked to stop before it began"))
        return None
    last = LastWords(ExitCode.MISTAKE, "ended by an error of Proctor's own; see the log of its job")
    try:
        spec = place.unit(unit).spec.model_copy(update={"ray": RaySpec(address="auto")})
        with interruptible(), _heeding(Notes(place.folder.hasty(_HASTY_SECONDS)), submission):
            outcome = run(spec)
        last = LastWords(int(outcome.exit_code), "; ".join(f"{k}: {v}" for k, v in outcome.reasons.items()))
        return outcome
    except UserError as error:
        last = LastWords(ExitCode.MISTAKE, str(error))
        raise
    except KeyboardInterrupt:
        last = LastWords(ExitCode.INTERRUPTED, "interrupted before it began")
        raise
    finally:
        with contextlib.suppress(OSError):
            notes.leave(submission, last)


@contextmanager
def _heeding(notes: Notes, submission: str) -> Iterator[None]:
    """Ends the block as SIGTERM would, once this job is asked to stop: Ray itself leaves a job three seconds."""
    done = threading.Event()

    def look() -> None:
        while not done.wait(_LOOK_SECONDS):
            with contextlib.suppress(OSError):
                if notes.stop_asked(submission) and not done.is_set():
                    os.kill(os.getpid(), signal.SIGTERM)
                    return

    thread = threading.Thread(target=look, name="proctor-fleet-stop", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(_HASTY_SECONDS)
