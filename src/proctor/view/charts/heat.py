"""The confusion matrix: targets down, predictions across, shaded by the share of the target's rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from proctor.tasks import Confusion
from proctor.view.charts.scale import Tick
from proctor.view.formats import clip, percent, whole

_MOST_LABELS = 20
_LETTER = 6.2  # pixels
_TURNED_TOP = 74


class Cell(NamedTuple):
    """One count: corner in pixels, text, shade 0 to 1, what the tooltip says, and the labels that it is of."""

    x: float
    y: float
    text: str
    shade: float
    on_diagonal: bool
    title: str
    target: str
    said: str


@dataclass(frozen=True, slots=True)
class Heat:
    """A chart, in pixels; `note` says what was left out, if anything."""

    field: str
    size: int
    left: int
    top: int
    width: int
    height: int
    rows: list[Tick]
    columns: list[Tick]
    recalls: list[Tick]
    cells: list[Cell]
    turned: bool
    total: int
    note: str


def heat(confusion: Confusion) -> Heat:
    """The matrix of one field; of many labels the most frequent ones."""
    labels, counts, note = _most_frequent(confusion)
    size = 50 if len(labels) <= 6 else 40 if len(labels) <= 10 else 28
    names = [clip(label, 14) for label in labels]
    longest = max((len(name) for name in names), default=0) * _LETTER
    left, turned = round(longest) + 12, longest > size
    top, span = (_TURNED_TOP if turned else 24), size * len(labels)
    middle = [size * i + size / 2 for i in range(len(labels))]
    sums = [sum(row) for row in counts]
    return Heat(
        field=confusion.field,
        size=size,
        left=left,
        top=top,
        width=left + span + 62,
        height=top + span + 4,
        rows=[Tick(top + at, name) for at, name in zip(middle, names, strict=True)],
        columns=[Tick(left + at, name) for at, name in zip(middle, names, strict=True)],
        recalls=[Tick(top + at, percent(counts[i][i] / sums[i], 0)) for i, at in enumerate(middle) if sums[i]],
        cells=[
            _cell(left + size * j, top + size * i, counts[i][j], sums[i], (labels[i], labels[j]), i == j)
            for i in range(len(labels))
            for j in range(len(labels))
        ],
        turned=turned,
        total=sum(sums),
        note=note,
    )


def _most_frequent(confusion: Confusion) -> tuple[list[str], list[list[int]], str]:
    labels, counts = confusion.labels, confusion.counts
    if len(labels) <= _MOST_LABELS:
        return list(labels), [list(row) for row in counts], ""
    often: Sequence[int] = sorted(range(len(labels)), key=lambda i: (-sum(counts[i]), i))[:_MOST_LABELS]
    kept = sorted(often)
    picked = [[counts[i][j] for j in kept] for i in kept]
    outside = sum(map(sum, counts)) - sum(map(sum, picked))
    note = f"the {_MOST_LABELS} most frequent of {len(labels)} labels; {whole(outside)} rows lie outside"
    return [labels[i] for i in kept], picked, note


def _cell(x: float, y: float, count: int, row_sum: int, pair: tuple[str, str], on_diagonal: bool) -> Cell:
    share = count / row_sum if row_sum else 0.0
    target, said = pair
    title = f"target {target}, answered {said}: {whole(count)} of {whole(row_sum)}"
    return Cell(x, y, _short(count), round(share, 3), on_diagonal, title, target, said)


def _short(count: int) -> str:
    """At most five characters, to fit a cell."""
    if count < 10_000:
        return str(count) if count else ""
    return f"{count / 1e3:.0f}k" if count < 1_000_000 else f"{count / 1e6:.1f}M"
