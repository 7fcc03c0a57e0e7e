"""What became of a macro-F1, which is no mean over rows: whole rows are drawn again, with both sides' answers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proctor.paired.model import Change, Measure
from proctor.paired.workbench import Workbench
from proctor.tasks.statistics import CONFIDENCE, RESAMPLES

MOST_CELLS = 2_000
"""With more kinds of rows (target, answer of A, answer of B) than this, only the rows are counted."""
GROUPS = 200
"""Clusters are put together into at most so many groups at random (K. M. Wolter 2007, "Introduction to Variance
Estimation", chapter 2), so that what a draw costs does not grow with them."""

_SEED = 20_231
_AT_ONCE = 1 << 21
_TAILS = (50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE))  # percent

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class _Cells(NamedTuple):
    """Kinds of rows: (cells,) target, answer of A, answer of B as places of labels; (groups, cells) rows."""

    target: Integers
    a: Integers
    b: Integers
    rows: Floats
    labels: int


def f1_change(bench: Workbench, measure: Measure, place: int, *, clustered: bool) -> Change:
    """The change of a macro-F1 with a paired percentile bootstrap (Efron, Tibshirani 1993, chapter 13).

    Two pseudo-rows are drawn along, one that got right and one that got wrong, spread evenly over the labels, as in
    `proctor.tasks.differences.change_bounds`: without them few changed rows show too little spread.
    Arguments as for `proctor.paired.shares.mean_change`.
    """
    known = f"from pairs where t{place} is not null"
    kinds, n, units = bench.one(
        f"select count(distinct (t{place}, a{place}, b{place})), count(*), count(distinct cluster) {known}"
    )
    clusters = units if clustered else None
    if not n or kinds > MOST_CELLS:
        return Change(measure, n, clusters=clusters)
    group = f"hash(cluster) % {GROUPS}" if clustered else "0"
    cells = _cells(
        bench.ask(f"select t{place}, a{place}, b{place}, {group}, count(*) {known} group by all order by all")
    )
    rows = cells.rows.sum(axis=0)[None, :]
    a, b = (float(_macro_f1(cells.target, said, cells.labels, rows)[0]) for said in (cells.a, cells.b))
    if clustered and len(cells.rows) < 2:
        return Change(measure, n, a, b, b - a, clusters=clusters)
    drawn = _draws(_with_pseudo_rows(cells), clustered=clustered)
    low, high = (float(bound) for bound in np.percentile(drawn, _TAILS))
    method = "bootstrap, by cluster" if clustered else "bootstrap"
    return Change(measure, n, a, b, b - a, low, high, method, clusters=clusters)


def _cells(found: list[tuple[str, str, str, int, int]]) -> _Cells:
    kinds = {kind: place for place, kind in enumerate(dict.fromkeys(row[:3] for row in found))}
    groups = {group: place for place, group in enumerate(dict.fromkeys(row[3] for row in found))}
    labels = {label: place for place, label in enumerate(sorted({label for kind in kinds for label in kind}))}
    rows = np.zeros((len(groups), len(kinds)))
    for *kind, group, count in found:
        rows[groups[group], kinds[(kind[0], kind[1], kind[2])]] += count
    places = np.array([[labels[label] for label in kind] for kind in kinds], dtype=np.int64)
    return _Cells(places[:, 0], places[:, 1], places[:, 2], rows, len(labels))


def _with_pseudo_rows(cells: _Cells) -> _Cells:
    """One row that A has right and B wrong, and one the other way round, in parts over all labels; each a group."""
    if cells.labels < 2:
        return cells
    right = np.arange(cells.labels)
    wrong = (right + 1) % cells.labels
    weight = 1.0 if len(cells.rows) == 1 else float(cells.rows.sum(axis=1).mean())
    part = np.full(cells.labels, weight / cells.labels)
    none = np.zeros(cells.labels)
    extra = np.stack([np.concatenate([part, none]), np.concatenate([none, part])])
    if len(cells.rows) == 1:  # rows are drawn one by one: the pseudo-rows join their only group
        rows = np.concatenate([cells.rows, extra.sum(axis=0)[None, :]], axis=1)
    else:
        rows = np.block([[cells.rows, np.zeros((len(cells.rows), extra.shape[1]))],
                         [np.zeros((2, cells.rows.shape[1])), extra]])  # fmt: skip
    return _Cells(
        np.concatenate([cells.target, right, right]),
        np.concatenate([cells.a, right, wrong]),
        np.concatenate([cells.b, wrong, right]),
        rows,
        cells.labels,
    )


def _draws(cells: _Cells, *, clustered: bool) -> Floats:
    """(resamples,) differences of the macro-F1: rows drawn one by one, or groups of clusters as they are."""
    rng, found = np.random.default_rng(_SEED), []
    at_once = max(1, _AT_ONCE // max(cells.rows.shape))
    for start in range(0, RESAMPLES, at_once):
        size = min(at_once, RESAMPLES - start)
        if clustered:
            groups = len(cells.rows)
            rows = rng.multinomial(groups, np.full(groups, 1 / groups), size=size) @ cells.rows
        else:
            total = cells.rows.sum()
            rows = rng.multinomial(round(total), cells.rows[0] / total, size=size).astype(np.float64)
        one, other = (_macro_f1(cells.target, said, cells.labels, rows) for said in (cells.a, cells.b))
        found.append(other - one)
    return np.concatenate(found)


def _macro_f1(target: Integers, said: Integers, labels: int, rows: Floats) -> Floats:
    """(draws,) macro-F1 as `proctor.tasks.statistics.macro_f1`, from the (draws, cells) rows of each kind."""
    right = np.zeros((len(target), labels))
    marginals = np.zeros((len(target), labels))
    cells = np.arange(len(target))
    np.add.at(right, (cells, target), (target == said).astype(np.float64))
    np.add.at(marginals, (cells, target), 1.0)
    np.add.at(marginals, (cells, said), 1.0)
    diagonal, sums = rows @ right, rows @ marginals
    seen = sums > 0
    f1 = np.divide(2.0 * diagonal, sums, out=np.zeros(diagonal.shape), where=seen)
    return np.asarray(f1.sum(axis=1) / np.maximum(seen.sum(axis=1), 1))
