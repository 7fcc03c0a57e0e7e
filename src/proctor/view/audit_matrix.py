"""The matrix of an audit: arms down, what was compared across, each share with its interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from proctor.audit.conduct import Audit, Shown
from proctor.audit.model import Comparison, Rate
from proctor.view.formats import NOTHING, percent, whole

_LAYERS = {
    "repeat": "Run to run: nothing changed",
    "traffic": "Traffic: size of the batch, neighbours, order, shared beginnings",
    "cache": "Caches: the same rows asked before",
    "observer": "The observer: what is asked for beside the answer",
    "engine": "Settings of the engine",
    "control": "Controls: these must differ, or the instrument is blind",
}
_SHADES = (0.0, 0.1, 0.35, 0.7)
"""Shares that differ above which a cell gets the next shade."""


class Cell(NamedTuple):
    """One figure: the value, what stands below it, how many it covers, and a shade from 0 (none) to 4."""

    value: str
    below: str = ""
    n: str = ""
    shade: int = 0


@dataclass(frozen=True, slots=True)
class Line:
    """One arm."""

    name: str
    below: str
    differs: bool
    cells: list[Cell]


class Group(NamedTuple):
    """Arms of one layer."""

    title: str
    lines: list[Line]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Columns, the groups of the design, and those of arms that the search added."""

    columns: list[str]
    groups: list[Group]
    added: list[Group]

    @property
    def added_lines(self) -> int:
        """Number of arms that the search added."""
        return sum(len(group.lines) for group in self.added)


_Column = tuple[str, Callable[[Comparison], Cell | None]]


def _share(name: str) -> Callable[[Comparison], Cell | None]:
    def cell(found: Comparison) -> Cell | None:
        rate: Rate | None = getattr(found, name)
        return rate_cell(rate, found.rows) if rate is not None and rate.of else None

    return cell


def _shift(found: Comparison) -> Cell | None:
    if not found.shift:
        return None
    digits = "" if found.bitwise else f"sent to {found.digits} digits"
    return Cell(f"{found.shift[-1]:.2g}" if found.shift[-1] else "0", f"median {found.shift[0]:.1g}", digits)


def _score(found: Comparison) -> Cell | None:
    if found.score_change is None:
        return None
    change, low, high = found.score_change
    worse, better = found.score_flips or (0, 0)
    sure = low > 0 or high < 0
    return Cell(
        f"{100 * change:+.1f}",
        f"{100 * low:+.1f} to {100 * high:+.1f}",
        f"{worse} worse, {better} better" if worse or better else "",
        shade=2 if sure else 0,
    )


_COLUMNS: tuple[_Column, ...] = (
    ("Log-probabilities equal", _share("logprob_equal")),
    ("Most likely token equal", _share("top1_equal")),
    ("All tokens equal", _share("token_equal")),
    ("Text equal", _share("text_equal")),
    ("Read alike by the task", _share("parsed_equal")),
    ("Largest shift, nats", _shift),
    ("Score, points", _score),
)


def matrix(audit: Audit) -> Matrix:
    """The matrix; columns without a figure in any arm are left out."""
    arms = [shown for shown in audit.arms if shown.comparison is not None or shown.repeats.rows]
    kept = [
        (title, cell)
        for title, cell in _COLUMNS
        if any(shown.comparison is not None and cell(shown.comparison) is not None for shown in arms)
    ]
    planned = {arm.name for arm in audit.design.arms}
    return Matrix(
        columns=["Agrees with itself", *(title for title, _ in kept)],
        groups=_groups([shown for shown in arms if shown.arm.name in planned], kept),
        added=_groups([shown for shown in arms if shown.arm.name not in planned], kept),
    )


def rate_cell(rate: Rate, pairs: int = 0) -> Cell:
    """A share that should be 100 %; how many it is of is said unless it is all `pairs`."""
    missed = 1 - rate.hits / rate.of
    shade = sum(missed > least for least in _SHADES)
    count = "" if rate.of == pairs else f"n {whole(rate.of)}"
    return Cell(percent(rate.hits / rate.of), interval(rate), count, shade)


def interval(rate: Rate) -> str:
    """``61.2 to 65.0``, in per cent."""
    return f"{100 * rate.low:.1f} to {100 * rate.high:.1f}"


def _groups(arms: Sequence[Shown], columns: Sequence[_Column]) -> list[Group]:
    groups = [
        Group(title, [_line(shown, columns) for shown in arms if shown.arm.layer == layer])
        for layer, title in _LAYERS.items()
    ]
    return [group for group in groups if group.lines]


def _line(shown: Shown, columns: Sequence[_Column]) -> Line:
    found = shown.comparison
    cells = [(cell(found) if found is not None else None) or Cell(NOTHING) for _, cell in columns]
    return Line(
        name=shown.arm.name,
        below=_pairs(shown, found),
        differs=(found is not None and found.differs) or shown.repeats.differs,
        cells=[_itself(shown.repeats), *cells],
    )


def _pairs(shown: Shown, found: Comparison | None) -> str:
    if found is None:
        return f"{whole(shown.rounds)} rounds"
    failed = f", {whole(found.failed)} without an answer" if found.failed else ""
    return f"against {shown.arm.against}, {whole(found.rows)} pairs{failed}"


def _itself(found: Comparison) -> Cell:
    """How an arm agrees with itself, from round to round."""
    rate = next((r for r in (found.logprob_equal, found.token_equal, found.text_equal) if r is not None and r.of), None)
    if rate is None:
        return Cell(NOTHING)
    if not found.differs:
        return Cell("yes", f"{whole(found.rows)} pairs")
    several = f"{whole(found.unique.hits)} of {whole(found.unique.of)} rows vary" if found.unique else ""
    return Cell("no", several, shade=3)
