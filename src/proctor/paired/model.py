"""What a comparison of two sides finds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Form = Literal["share", "mean", "f1"]
COVERAGE_COLUMNS = ("answer", "parse_error")
"""Columns of every record that say whether there is an answer, and whether it could be read."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A metric of a task, and how it follows from the columns of the records.

    Attributes:
        name: as in the task's summary.
        column: boolean for a ``share``, a number for a ``mean``, the predicted label for an ``f1`` (whose target is in
            ``COLUMN_target``).
        form: how rows become one number. An ``f1`` (macro-F1) is no mean over rows.
        unit: empty for shares.
        higher_is_better: None where nobody said: a number column of a task of the user's own.
    """

    name: str
    column: str
    form: Form
    unit: str = ""
    higher_is_better: bool | None = True

    @property
    def is_mark(self) -> bool:
        """Whether it is a share of rows that the task marked as right."""
        return self.form == "share" and self.column not in COVERAGE_COLUMNS and self.higher_is_better is True

    @property
    def sign(self) -> int:
        """What a change is multiplied by so that more is better."""
        return -1 if self.higher_is_better is False else 1


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one metric from A to B, over the rows that have it on both sides.

    Attributes:
        measure: the metric.
        n: rows that both sides have it for.
        a, b: its value on each side over these rows.
        difference: b - a; None without rows.
        low, high: bounds of the 95 % interval of the difference, None where none can be given.
        method: how the interval was made.
        worse, better: units (rows, or clusters) that changed, by direction; None for an ``f1``.
        p: exact McNemar test (sign test for a ``mean``) that both are as likely; None for an ``f1``.
        detectable: the smallest true difference that so many such rows show in 80 % of the cases.
        clusters: how many, where rows were clustered.
    """

    measure: Measure
    n: int
    a: float | None = None
    b: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    method: str = ""
    worse: int | None = None
    better: int | None = None
    p: float | None = None
    detectable: float | None = None
    clusters: int | None = None

    @property
    def moved(self) -> Literal["better", "worse", "changed", "no"]:
        """Whether the 95 % interval excludes that nothing changed, and for shares the exact test as well."""
        if self.low is None or self.high is None or self.low <= 0 <= self.high:
            return "no"
        if self.measure.form == "share" and self.p is not None and self.p >= 0.05:
            return "no"
        if self.measure.higher_is_better is None:
            return "changed"
        return "better" if self.low * self.measure.sign > 0 else "worse"


@dataclass(frozen=True, slots=True)
class Standing:
    """Rows with the same fate: what they are on side A and on side B.

    A fate is ``scored``, ``not scored`` (no target), ``unparsed``, ``error KIND``, ``unanswered KIND`` (a tombstone),
    ``unsound`` (neither an answer nor an error, or both), ``no record``, or, by sample id, ``no sample id`` and
    ``sample id not unique``.
    """

    a: str
    b: str
    rows: int


@dataclass(frozen=True, slots=True)
class Account:
    """Every row of both sides, once.

    Attributes:
        expected: rows of each side's source; None where no source is known.
        rows: by fate on both sides, most rows first.
        nowhere: expected rows without a record on either side (by row id only).
        duplicates: records beyond the first of their key on each side, left out.
        other_targets: paired rows whose target is not the same on both sides.
    """

    expected: tuple[int | None, int | None]
    rows: list[Standing]
    nowhere: int = 0
    duplicates: tuple[int, int] = (0, 0)
    other_targets: int = 0

    def count(self, *, a: bool, b: bool) -> int:
        """Rows that are scored on side A (or not), and on side B (or not)."""
        return sum(r.rows for r in self.rows if (r.a == SCORED) == a and (r.b == SCORED) == b)

    @property
    def sound(self) -> bool:
        """Whether nothing is odd: no duplicates, no unsound records, no targets that differ."""
        odd = any("unsound" in (r.a, r.b) for r in self.rows)
        return not (odd or any(self.duplicates) or self.other_targets)


SCORED = "scored"
NO_RECORD = "no record"


@dataclass(frozen=True, slots=True)
class AddedUp:
    """A metric that a task of the user's own added up: it cannot be paired by row, so it has no interval here."""

    name: str
    a: float | None
    b: float | None


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """One row whose score differs, or that is scored on one side only.

    Attributes:
        row_a, row_b: row ids (the same unless paired by sample id); None without a record.
        change: by how much the score changed, more is better; None if it is scored on one side only.
        fate_a, fate_b: see `Standing`.
        answer_a, answer_b: the answers; None for an error.
    """

    row_a: int | None
    row_b: int | None
    sample_id: str | None
    change: float | None
    fate_a: str
    fate_b: str
    target: str | None
    answer_a: str | None
    answer_b: str | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Side B beside side A.

    Attributes:
        a, b: what the sides are called.
        paired_by: ``row id`` or ``sample id``.
        headline: name of the metric that the verdict is about; None if the task has none that can be paired.
        changes: every metric that can be paired, the headline first.
        added_up: metrics of a user's own summary that cannot.
        spec_changes: keys of the spec that differ.
        regressions: the rows that got worse, most first, those that lost their score after them; at most as many as
            asked for.
        regressed: how many rows there are of that kind.
        strict: whether rows without a score counted as wrong.
        remarks: what to bear in mind.
    """

    a: str
    b: str
    paired_by: str
    headline: str | None
    account: Account
    changes: list[Change]
    added_up: list[AddedUp] = field(default_factory=list)
    spec_changes: list[str] = field(default_factory=list)
    regressions: list[ChangedRow] = field(default_factory=list)
    regressed: int = 0
    strict: bool = False
    remarks: list[str] = field(default_factory=list)

    def change(self, name: str | None) -> Change | None:
        """The change of a metric by its name, None if it cannot be paired."""
        return next((change for change in self.changes if change.measure.name == name), None)
