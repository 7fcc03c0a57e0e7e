"""The one loop: first run, retry, resume and recovery are the same code.

    while todo := unanswered rows:     what the files in results/ do not answer yet
        stream(todo)                   read -> prepare -> infer -> score -> write, on Ray Data
    close                              tombstones for what is still missing, reconciliation, metrics

Whatever goes wrong below a row (a lost block, a dead actor, a killed driver) leaves rows unanswered, and the next
sweep, or the next run of the same command, has them.
"""

from __future__ import annotations

from contextlib import closing
from itertools import count
from typing import NamedTuple

from pyroaring import BitMap64

from proctor.results import lift_tombstones, settle, write_tombstones
from proctor.rows import Event, told
from proctor.runner.begin import begin, check
from proctor.runner.cluster import cluster
from proctor.runner.exam import Exam
from proctor.runner.hub import HubClient
from proctor.runner.interrupts import interruptible
from proctor.runner.outcome import RunOutcome, conclude
from proctor.runner.progress import Observer, Tracker, quiet
from proctor.runner.stream import Sweep, smaller, stream
from proctor.spec import RunSpec


def run(spec: RunSpec, *, fresh: bool = False, observer: Observer = quiet) -> RunOutcome:
    """Evaluates every checkpoint of `spec` over every row of its source, or resumes where an earlier run stopped.

    Args:
        spec: what to run; its ``run_dir`` is where everything is kept.
        fresh: put an earlier run in the same directory aside and start anew.
        observer: is told how the run goes.

    Returns:
        The outcome; its ``exit_code`` is 0 complete, 2 complete with too many errors, 3 incomplete, 130 interrupted.

    Raises:
        UserError: the spec, its source, task or engine cannot work, or the directory holds another run.
    """
    exam = Exam.of(spec)
    check(exam, fresh=fresh)
    with exam.run.locked():
        begin(exam, fresh=fresh)
        tracker = Tracker(exam, observer)
        interrupted = False
        try:
            with interruptible():
                evaluate(exam, tracker)
        except KeyboardInterrupt:
            interrupted = True
        return conclude(exam, tracker, interrupted=interrupted)


def evaluate(exam: Exam, tracker: Tracker) -> None:
    """Takes the checkpoints one after another; Ray starts only when there is something left to do."""
    open_rows = {name: exam.expected - _done(exam, name, tracker) for name in tracker.checkpoints}
    if not any(open_rows.values()):
        return
    with cluster(exam.spec), tracker.watching(HubClient.start(exam.run.events_file)) as hub:
        for name, todo in open_rows.items():
            if todo:
                answer_all(exam, name, todo, tracker, hub)
        hub.await_ends()


def answer_all(exam: Exam, checkpoint: str, todo: BitMap64, tracker: Tracker, hub: HubClient) -> None:
    """Sweeps over the rows that `checkpoint` has not answered, until none is left or a sweep gets no further.

    Rows that vanished with their worker run again in ever smaller blocks, until the guilty one stands alone; such
    sweeps do not count as tries, and there are few of them, since the blocks shrink fast.
    """
    lift_tombstones(exam.run.results, checkpoint)
    company, tries = exam.spec.stream.block_rows, 0
    for sweep in count(1):
        hub.emit(Event("sweep.started", count=len(todo), message=f"{checkpoint}: sweep {sweep}"))
        swept = sweep_once(exam, Sweep(checkpoint, sweep, company), todo, tracker, hub)
        left = exam.expected - _done(exam, checkpoint, tracker)
        hub.emit(Event("sweep.ended", count=len(left), message=f"{checkpoint}: {len(left)} rows left"))
        if swept.vanished and company > 1:
            company = smaller(company)
        else:
            tries += 1
            stuck = left == todo and not swept.failed
            if stuck or tries == exam.spec.limits.sweeps:
                break
        if not left or swept.gave_up:
            break
        todo = left
    if left:
        write_tombstones(exam.run.root, checkpoint, left, exam.record_schema, sweep)


class Swept(NamedTuple):
    """How a sweep ended: how many rows did not come back in any way, and what cut it short.

    `gave_up` is for want of an engine in order, `failed` for an error of the stream itself.
    """

    vanished: int = 0
    gave_up: bool = False
    failed: bool = False


def sweep_once(exam: Exam, sweep: Sweep, todo: BitMap64, tracker: Tracker, hub: HubClient) -> Swept:
    """One pass of the stream over `todo`; it is given up when every engine is out of order."""
    checkpoint, returned = sweep.checkpoint, 0
    try:
        with closing(stream(exam, sweep, todo, hub)) as tallies, tracker.sweeping(checkpoint, sweep.number):
            for tally in tallies:
                returned += tally["rows"]
                tracker.add(checkpoint, tally)
                if tracker.all_engines_broken:
                    return Swept(gave_up=True)
    except Exception as error:  # whatever ends the stream early, its rows are unanswered, and that is all
        reason = f"sweep {sweep.number} ended early: {told(error)}"
        tracker.reasons[checkpoint] = reason
        hub.emit(Event("sweep.failed", action="rows left to the next sweep", message=f"{checkpoint}: {reason}"))
        return Swept(failed=True)
    return Swept(vanished=len(todo) - returned)


def _done(exam: Exam, checkpoint: str, tracker: Tracker) -> BitMap64:
    settled = settle(exam.run.results, checkpoint)
    tracker.settled(checkpoint, settled)
    return settled.done
