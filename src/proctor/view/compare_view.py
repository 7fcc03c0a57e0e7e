"""A comparison as a page shows it: the same for the live page and for the one that is frozen into a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from proctor.paired.model import Change, ChangedRow, Comparison
from proctor.paired.words import interval_of, p_value, sentence, size_of, value_of
from proctor.view.charts.differences import difference_chart
from proctor.view.charts.forest import Chart, Factor
from proctor.view.formats import NOTHING, whole
from proctor.view.worddiff import Piece, word_diff

MOST_FATES = 24
TONES: Mapping[str, str] = {"better": "good", "worse": "bad", "changed": "warn", "no": "open"}


class Line(NamedTuple):
    """A metric, in words."""

    name: str
    headline: bool
    a: str
    b: str
    difference: str
    interval: str
    moved: str
    tone: str
    worse: str
    better: str
    p: str
    detectable: str
    n: str


class Flips(NamedTuple):
    """Rows by whether they are right on the first side and on the other: what the exact McNemar test is about.

    Attributes:
        metric: the share of right rows that is meant.
        lost: right on the first side alone; `gained`: on the other alone.
    """

    metric: str
    both: int
    lost: int
    gained: int
    neither: int
    p: str


@dataclass(frozen=True, slots=True)
class ComparisonView:
    """One side against the first, as its page shows it.

    Attributes:
        found: what was found.
        tone: colour of the verdict.
        lines: each metric that some row has on both sides.
        chart: differences of shares and F1s, in points of a hundred; None without any.
        flips: of the headline; None where it is no share, or rows were clustered.
        fates: rows by what they are on both sides, most first.
        fates_left_out: rows of rarer combinations.
        notes: what is odd, each with its colour.
    """

    found: Comparison
    sentence: str
    tone: str
    lines: list[Line]
    chart: Chart | None
    flips: Flips | None
    fates: list[tuple[str, str, int]]
    fates_left_out: int
    notes: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class AnswerView:
    """What a side says to a row.

    Attributes:
        pieces: the text, against that of the first side; the first side's own is one piece.
        cut: whether there is more of it.
        error: kind of an error; then the text is its message.
        fate: said where there is neither.
        kind: what became of it since the first side; empty on the first.
        change: by how much its score changed, in words.
    """

    pieces: list[Piece]
    cut: bool
    error: str | None
    fate: str
    kind: str
    change: str


def comparison_view(found: Comparison) -> ComparisonView:
    """What a page shows of a comparison."""
    change = found.change(found.headline)
    shown = [each for each in found.changes if each.n]
    fates = found.account.rows
    return ComparisonView(
        found=found,
        sentence=sentence(found, change),
        tone="" if change is None else TONES[change.moved].replace("open", ""),
        lines=[_line(each, found.headline) for each in shown],
        chart=difference_chart([factor for each in shown if (factor := _factor(each)) is not None]),
        flips=None if change is None else flips(change),
        fates=[(row.a, row.b, row.rows) for row in fates[:MOST_FATES]],
        fates_left_out=sum(row.rows for row in fates[MOST_FATES:]),
        notes=_notes(found),
    )


def flips(change: Change) -> Flips | None:
    """The rows of a share by whether they are right on both sides, on one, or on none."""
    whole_rows = change.clusters is None and change.measure.form == "share"
    if not whole_rows or change.a is None or change.worse is None or change.better is None or change.p is None:
        return None
    lost, gained = (change.worse, change.better)[:: change.measure.sign]
    both = round(change.n * change.a) - lost
    return Flips(change.measure.name, both, lost, gained, change.n - both - lost - gained, p_value(change.p))


def answer_view(
    text: str | None, first: str | None, *, most: int, error: str | None = None, fate: str = "", kind: str = "",
    change: float | None = None,
) -> AnswerView:  # fmt: skip
    """What a side says, against what the first side says.

    Args:
        text: its answer, or the message of its error; None without either.
        first: the answer of the first side; None for that side itself, and where there is nothing to compare.
        most: characters that are shown.
        error, fate, kind, change: see `AnswerView`.
    """
    shown = (text or "")[:most]
    pieces = [Piece("same", shown)] if first is None else word_diff(first[:most], shown)
    said = "" if change is None or not kind else f"{change:+.4g}"
    return AnswerView(pieces, text is not None and len(text) > most, error, "" if text else fate, kind, said)


def answers_of(row: ChangedRow, most: int) -> list[AnswerView]:
    """Both sides of a row that got worse."""
    first = row.answer_a if row.answer_b is not None else None
    before = answer_view(row.answer_a, None, most=most, fate=row.fate_a)
    after = answer_view(row.answer_b, first, most=most, fate=row.fate_b, kind="regression", change=row.change)
    return [before, after]


def _line(change: Change, headline: str | None) -> Line:
    measure = change.measure
    return Line(
        name=measure.name + (f", {measure.unit}" if measure.unit else ", %" if measure.form != "mean" else ""),
        headline=measure.name == headline,
        a=value_of(change.a, measure),
        b=value_of(change.b, measure),
        difference=NOTHING if change.difference is None else size_of(change.difference, measure).split(" ")[0],
        interval=interval_of(change),
        moved="" if change.moved == "no" else change.moved,
        tone=TONES[change.moved],
        worse=NOTHING if change.worse is None else whole(change.worse),
        better=NOTHING if change.better is None else whole(change.better),
        p=NOTHING if change.p is None else p_value(change.p),
        detectable=_detectable(change),
        n=whole(change.n),
    )


def _detectable(change: Change) -> str:
    if change.detectable is None:
        return NOTHING
    return size_of(change.detectable, change.measure, sign=False).split(" ")[0]


def _factor(change: Change) -> Factor | None:
    if change.measure.form == "mean" or change.difference is None:
        return None
    low, high = (None if edge is None else 100 * edge for edge in (change.low, change.high))
    title = f"{change.measure.name}: {size_of(change.difference, change.measure)} ({interval_of(change)})"
    return Factor(change.measure.name, 100 * change.difference, low, high, TONES[change.moved], title)


def _notes(found: Comparison) -> list[tuple[str, str]]:
    account = found.account
    notes = [("warn", text) for text in found.remarks]
    for label, number in zip((found.a, found.b), account.duplicates, strict=True):
        if number:
            notes.append(("bad", f"{label}: records left out whose row has one already: {whole(number)}"))
    if account.other_targets:
        text = f"rows with another target, which were marked against other truths: {whole(account.other_targets)}"
        notes.append(("bad", text))
    if account.nowhere:
        notes.append(("warn", f"expected rows without a record on either side: {whole(account.nowhere)}"))
    lost, gained = account.count(a=True, b=False), account.count(a=False, b=True)
    if (lost or gained) and not found.strict:
        sides = f"{whole(lost)} of {found.a}, {whole(gained)} of {found.b}"
        notes.append(("warn", f"rows that are scored on one side only, and left out of the metrics: {sides}"))
    notes += [("warn", f"the runs differ in {text}") for text in found.spec_changes]
    return notes
