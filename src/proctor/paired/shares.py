"""What became of metrics that are means over rows: shares and distances."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from proctor.paired.model import Change, Measure
from proctor.paired.workbench import Workbench
from proctor.tasks.differences import Moments, change_bounds, mcnemar
from proctor.tasks.statistics import BOOTSTRAP_ROWS

_NONE = 1e-12
"""A change below this share of the span is rounding: sums in another order, not another score."""


class _Values(NamedTuple):
    """The rows that both sides have a metric for: how many, the means, the largest change, the range of values."""

    n: int
    a: float
    b: float
    largest: float
    low: float
    high: float


def mean_change(bench: Workbench, measure: Measure, place: int, *, clustered: bool) -> Change:
    """The change of a share or mean.

    Args:
        bench: with the table ``pairs``.
        measure: the metric.
        place: its place in the plan, which is the number of its columns.
        clustered: whether rows of the same cluster count as one unit.
    """
    rows = (
        f"select a{place} as a, b{place} as b, cluster from pairs where a{place} is not null and b{place} is not null"
    )
    found = _Values(*bench.one(f"select count(*), favg(a), favg(b), max(abs(b - a)), min(least(a, b)), "
                               f"max(greatest(a, b)) from ({rows})"))  # fmt: skip
    if not found.n:
        return Change(measure, 0)
    span = _span(measure, found)
    units = f"select b - a as c, 1 as m from ({rows})"
    if clustered:
        units = f"select fsum(b - a) as c, count(*) as m from ({rows}) group by cluster"
    moments, up, down = _moments(bench, units, span)
    low, high, method = _bounds(bench, units, moments, span)
    worse, better = (down, up) if measure.sign > 0 else (up, down)
    return Change(
        measure, found.n, _stable(found.a), _stable(found.b), _stable(found.b - found.a), _stable(low), _stable(high),
        f"{method}, by cluster" if clustered else method, worse, better, mcnemar(worse, better),
        _stable(moments.detectable()), moments.units if clustered else None,
    )  # fmt: skip


def _span(measure: Measure, found: _Values) -> float:
    """By how much a row's value can change: 1 for shares; for others what was seen, which is a stand-in."""
    return 1.0 if measure.form == "share" else found.largest or (found.high - found.low) or 1.0


def _moments(bench: Workbench, units: str, span: float) -> tuple[Moments, int, int]:
    row: tuple[Any, ...] = bench.one(
        "select count(*), fsum(c), fsum(m), fsum(c * c), fsum(c * m), fsum(m * m), max(m), "
        f"count(*) filter (c > ?), count(*) filter (c < ?) from ({units})",
        _NONE * span,
        -_NONE * span,
    )
    change, rows, change2, change_rows, rows2, most = (float(number) for number in row[1:7])
    moments = Moments(int(row[0]), change, rows, change2, change_rows, rows2, most, span)
    return moments, int(row[7]), int(row[8])


def _bounds(bench: Workbench, units: str, moments: Moments, span: float) -> tuple[float, float, str]:
    """Bootstrapped for few units; for many the normal interval is as good and needs only sums."""
    if moments.units > BOOTSTRAP_ROWS:
        return *moments.normal_bounds(), "normal"
    table = bench.connection.execute(f"select c::double as c, m::bigint as m from ({units}) order by c, m").fetchnumpy()
    change = np.asarray(table["c"], dtype=np.float64)
    return *change_bounds(change, np.asarray(table["m"], dtype=np.int64), span), "bootstrap"


def _stable(number: float) -> float:
    """Twelve significant digits: what threads may add up in another order next time stays below them."""
    return float(f"{number:.12g}")
