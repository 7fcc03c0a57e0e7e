"""The one loop: first run, retry, resume and recovery are the same code.

    while todo := unanswered rows:     what the files in results/ do not answer yet
        stream(todo)                   read -> prepare -> infer -> score -> write, on Ray Data
    close                              tombstones for what is still missing, reconciliation, metrics

Whatever goes wrong below a row (a lost block, a dead actor, a killed driver) leaves rows unanswered, and the next
sweep, or the next run of the same command, has them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from pyroaring import BitMap64
from ray.exceptions import RayError

from proctor.results import lift_tombstones, settle
from proctor.rows import ErrorKind, Event, told
from proctor.runner.admission import planned
from proctor.runner.audited import audit_first
from proctor.runner.begin import begin, check
from proctor.runner.cluster import await_room, cluster, notice_newcomers
from proctor.runner.convict import convict
from proctor.runner.course import Course, Sweep, Swept
from proctor.runner.exam import Exam
from proctor.runner.exported import Exported
from proctor.runner.hub import HubClient
from proctor.runner.interrupts import interruptible
from proctor.runner.outcome import RunOutcome, conclude
from proctor.runner.progress import Tracker
from proctor.runner.sequence import answer_in_sequence
from proctor.runner.snapshot import Observer, quiet
from proctor.runner.stoppable import Stopped
from proctor.runner.stream import stream, tally_of
from proctor.runner.together import answer_together
from proctor.runner.tracked import Tracked
from proctor.runner.watch import WatchedSweep
from proctor.spec import RunSpec


def run(
    spec: RunSpec,
    *,
    only: BitMap64 | None = None,
    fresh: bool = False,
    force: bool = False,
    observer: Observer = quiet,
) -> RunOutcome:
    """Evaluates every checkpoint of `spec` over every row of its source, or resumes where an earlier run stopped.

    Args:
        spec: what to run; its ``run_dir`` is where everything is kept.
        only: ids of the rows to run; None is for those that an earlier run in the same directory keeps to, or all.
        fresh: put an earlier run in the same directory aside and start anew.
        force: go ahead with a run that the plan says does not fit.
        observer: is told how the run goes.

    Returns:
        The outcome; its ``exit_code`` is 0 complete, 2 complete with too many errors, 3 incomplete, 130 interrupted.

    Raises:
        UserError: the spec, its source, task or engine cannot work or does not fit, the source lacks a row of `only`,
            or the directory holds another run.
    """
    asked = Exam.of(spec, only, fresh=fresh)
    check(asked, fresh=fresh)
    exam, plan = planned(asked, force=force)
    tracked, exported = Tracked(exam), Exported(exam)
    tracker = Tracker(exam, exported.beside(tracked.beside(observer)))
    with exam.run.locked(exported.or_lose(tracked.or_lose(tracker.lose))) as lease:
        begin(asked, fresh=fresh)
        if plan is not None:
            exam.run.write("plan", plan.to_json())
        if lease.before is not None:
            exam.run.append_event(Event("lease.taken_over", message=f"from {lease.before}, which is dead"))
        with exported.exporting(), tracked.telling():
            interrupted = False
            try:
                with interruptible():
                    evaluate(exam, tracker)
            except KeyboardInterrupt:
                interrupted = True
            except (OSError, RayError) as error:
                tracker.reasons["run"] = f"ended early: {told(error)}"
            return exported.ended(tracked.ended(conclude(exam, tracker, interrupted=interrupted)))


def evaluate(exam: Exam, tracker: Tracker) -> None:
    """Takes the checkpoints in turn, one or several at once, or one after another in the same engines.

    Ray starts only when there is something left to do.
    """
    tell = exam.run.append_event
    open_rows = {name: exam.expected - _done(exam, name, tracker, tell) for name in tracker.checkpoints}
    if not any(open_rows.values()):
        return
    with cluster(exam.spec), tracker.watching(HubClient.start(exam.run.folder)) as hub:
        try:
            audit_first(exam, tracker, hub)
            in_sequence = exam.spec.engine.mode == "sequential"
            first_pass = answer_in_sequence if in_sequence else answer_together
            for names in _turns(open_rows, len(open_rows) if in_sequence else exam.spec.stream.checkpoints_at_once):
                if len(names) > 1:
                    first_pass(exam, {name: open_rows[name] for name in names}, tracker, hub)
                    notice_newcomers(exam.spec, hub.emit)
                    open_rows |= {name: exam.expected - _done(exam, name, tracker, hub.emit) for name in names}
                for name in filter(open_rows.get, names):
                    answer_all(exam, name, open_rows[name], tracker, hub)
            hub.await_ends()
        finally:
            hub.flush()


def _turns(open_rows: dict[str, BitMap64], at_once: int) -> list[list[str]]:
    """The checkpoints with open rows, `at_once` of them at a time."""
    names = [name for name, rows in open_rows.items() if rows]
    return [names[start : start + at_once] for start in range(0, len(names), at_once)]


def answer_all(exam: Exam, checkpoint: str, todo: BitMap64, tracker: Tracker, hub: HubClient) -> None:
    """Sweeps over the rows that `checkpoint` has not answered, until none is left or another sweep has no prospect."""
    lift_tombstones(exam.run.results, checkpoint)
    course = Course(checkpoint, exam.spec.stream.block_rows, exam.spec.limits.sweeps)
    while True:
        sweep = course.sweep
        hub.emit(Event("sweep.started", count=len(todo), message=f"{checkpoint}: sweep {sweep.number}"))
        swept = sweep_once(exam, sweep._replace(engines=await_room(exam.spec)), todo, tracker, hub)
        tracker.check_held()
        notice_newcomers(exam.spec, hub.emit)
        convict(exam, sweep, todo, hub, ended=not (swept.failed or swept.halted))
        left = exam.expected - _done(exam, checkpoint, tracker, hub.emit)
        hub.emit(Event("sweep.ended", count=len(left), message=f"{checkpoint}: {len(left)} rows left"))
        if not course.goes_on(todo, left, swept):
            return
        todo = left


def sweep_once(exam: Exam, sweep: Sweep, todo: BitMap64, tracker: Tracker, hub: HubClient) -> Swept:
    """One pass of the stream over `todo`. Whatever ends it early, its rows are unanswered, and that is all."""
    returned, sent_back, trouble = 0, 0, None
    watched = WatchedSweep(sweep.engines)
    try:
        with tracker.sweeping(sweep, watched), closing(stream(exam, sweep, todo, hub)) as tallies:
            for tally in tallies:
                if trouble := tally["trouble"]:
                    break
                returned += tally["rows"]
                sent_back += tally_of(tally, ErrorKind.ENGINE_INIT_FAILED)
                tracker.add(sweep.checkpoint, tally)
    except Stopped:
        assert watched.verdict is not None
        reason, swept = watched.verdict
        return _cut_short(sweep, tracker, hub, reason, swept._replace(vanished=max(0, len(todo) - returned)))
    except Exception as error:
        reason = f"sweep {sweep.number} ended early: {told(error)}"
        return _cut_short(sweep, tracker, hub, reason, Swept(failed=True))
    if trouble is not None:
        return _cut_short(sweep, tracker, hub, trouble, Swept(halted=True))
    return Swept(vanished=max(0, len(todo) - returned), sent_back=sent_back)


def _cut_short(sweep: Sweep, tracker: Tracker, hub: HubClient, reason: str, swept: Swept) -> Swept:
    tracker.reasons[sweep.checkpoint] = reason
    action = "no further sweep" if swept.halted else "rows left to the next sweep"
    hub.emit(Event("sweep.cut_short", action=action, message=f"{sweep.checkpoint}: {reason}"))
    return swept


def _done(exam: Exam, checkpoint: str, tracker: Tracker, tell: Callable[[Event], None]) -> BitMap64:
    settled = settle(exam.run.results, checkpoint)
    for part in settled.set_aside:
        tell(Event("part.set_aside", action="its rows run again", message=f"{part} is damaged, it is in aside/"))
    tracker.settled(checkpoint, settled)
    return settled.done
