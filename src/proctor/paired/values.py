"""What one side is worth by itself: its metrics and its ledger, from the records as they are now."""

from __future__ import annotations

from dataclasses import dataclass

from proctor.paired.model import Measure
from proctor.paired.sides import Side
from proctor.paired.workbench import STONE, Workbench, told_of
from proctor.rows import UserError, told
from proctor.spec.task import PythonTaskSpec
from proctor.tasks import Metric, Summary
from proctor.tasks.registry import make_task
from proctor.tasks.summaries import quoted, share


@dataclass(frozen=True, slots=True)
class Tally:
    """One side's rows.

    Attributes:
        expected: rows of the source; where that is not known, the rows with a record.
        errors: rows that ended in an error of their own.
        unanswered: rows with a tombstone, and expected rows without any record.
        odd: records that Proctor would not have left: keys that are there twice, neither an answer nor an error.
    """

    expected: int
    errors: int
    unanswered: int
    odd: int

    @property
    def error_rate(self) -> float:
        """Share of the expected rows that ended in an error."""
        return self.errors / self.expected if self.expected else 0.0


def tally_of(bench: Workbench, side: Side, view: str) -> Tally:
    """Counts the records in `view`."""
    unsound = "(answer is null) = (error_kind is null)"
    rows, stones, errors, odd = bench.one(
        f"select count(*), count(*) filter ({STONE}), count(*) filter (not {STONE} and error_kind is not null and not "
        f"({unsound})), count(*) filter ({unsound}) from {view}"
    )
    expected = side.expected if side.expected is not None else rows
    return Tally(expected, errors, stones + max(0, expected - rows), odd + bench.duplicates[view])


def summary_of(bench: Workbench, side: Side, view: str) -> Summary | None:
    """The task's metrics over the records in `view`; None if there are none.

    A task of the user's own is not loaded: what the run added up when it closed is taken instead, because to look at a
    run directory must not run the code that it names.

    Raises:
        UserError: the records do not fit the task.
    """
    if isinstance(side.spec.task, PythonTaskSpec):
        return side.stored_summary()
    expected = side.expected if side.expected is not None else bench.one(f"select count(*) from {view}")[0]
    task = make_task(side.spec.task, side.spec.source.columns)
    try:
        return task.summary(bench.connection.view(view), expected)
    except Exception as error:
        # Whatever a stranger's records make a task stumble over (a label that is none, a column of another type).
        what = f"the records do not fit the task {side.spec.task.kind}: {told(error)}"
        raise UserError(what, where=side.where) from error


def strict_share(bench: Workbench, side: Side, view: str, measure: Measure) -> Metric:
    """A share over all expected rows that have a target, where a row without a score counts as wrong."""
    cell = quoted(measure.column)
    with told_of(side):
        hits, free = bench.one(
            f"select count(*) filter ({cell} and error_kind is null and answer is not null), count(*) filter "
            f"({cell} is null and answer is not null and parse_error is null and error_kind is null) from {view}"
        )
    expected = side.expected if side.expected is not None else bench.one(f"select count(*) from {view}")[0]
    return share(measure.name, hits, max(hits, expected - free), expected)
