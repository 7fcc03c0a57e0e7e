"""The parts that summaries are made of: each asks DuckDB for counts and adds the interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from proctor.tasks import statistics
from proctor.tasks.base import Confusion, Metric
from proctor.tasks.statistics import Interval

if TYPE_CHECKING:
    import duckdb


def coverage(records: duckdb.DuckDBPyRelation, expected: int) -> tuple[Metric, Metric]:
    """``answered``: share of the expected rows with an answer; ``parse_failures``: share of the answers that could not
    be parsed.
    """
    answered, unparsed = _row(records, "count(answer), count(parse_error)")
    # Rows that nobody expected may be among the records; the reconciliation names them, no share exceeds one.
    return (
        share("answered", min(answered, expected), expected, expected),
        share("parse_failures", unparsed, answered, expected, higher_is_better=False),
    )


def share(name: str, hits: int, n: int, of: int, *, higher_is_better: bool = True) -> Metric:
    """A proportion with Wilson's interval."""
    value = hits / n if n else None
    return _metric(name, value, statistics.wilson(hits, n), n, of, higher_is_better=higher_is_better)


def share_of(records: duckdb.DuckDBPyRelation, name: str, column: str, expected: int) -> Metric:
    """Share of true among the rows where the boolean `column` is not null."""
    cell = quoted(column)
    hits, n = _row(records, f"count(*) filter ({cell}), count({cell})")
    return share(name, hits, n, expected)


def mean_of(records: duckdb.DuckDBPyRelation, name: str, column: str, expected: int, *, unit: str) -> Metric:
    """Mean of a distance over the rows where `column` is not null; smaller is better."""
    cell = quoted(column)
    n, mean, deviation = _row(records, f"count({cell}), favg({cell}), stddev_samp({cell})")
    if n <= statistics.BOOTSTRAP_ROWS:
        values = records.filter(f"{cell} is not null").project(cell).fetchall()
        interval = statistics.bootstrap_mean(np.asarray(values, dtype=np.float64).ravel())
    else:
        interval = statistics.normal_mean(mean, deviation, n)
    return _metric(name, mean, interval, n, expected, unit=unit, higher_is_better=False)


def confusion_of(records: duckdb.DuckDBPyRelation, field: str, labels: Sequence[str]) -> Confusion:
    """Counts of ``<field>_target`` against ``<field>`` over the rows that were marked."""
    target, predicted = quoted(f"{field}_target"), quoted(field)
    cells = records.filter(f"{target} is not null and {predicted} is not null").aggregate(
        f"{target}, {predicted}, count(*)", f"{target}, {predicted}"
    )
    place = {label: index for index, label in enumerate(labels)}
    counts = [[0] * len(labels) for _ in labels]
    for truth, said, count in cells.fetchall():
        counts[place[truth]][place[said]] = count
    return Confusion(field, tuple(labels), tuple(tuple(row) for row in counts))


def quoted(column: str) -> str:
    """A column's name as SQL wants it when it may be a word of SQL."""
    return '"' + column.replace('"', '""') + '"'


def agreement(confusion: Confusion, expected: int, prefix: str = "") -> tuple[Metric, Metric]:
    """``accuracy`` and ``macro_f1`` of one field, from its confusion matrix."""
    counts = np.asarray(confusion.counts, dtype=np.int64)
    n = int(counts.sum())
    return (
        share(f"{prefix}accuracy", int(np.trace(counts)), n, expected),
        _metric(f"{prefix}macro_f1", statistics.macro_f1(counts), statistics.macro_f1_interval(counts), n, expected),
    )


def _metric(
    name: str,
    value: float | None,
    interval: Interval,
    n: int,
    of: int,
    *,
    unit: str = "",
    higher_is_better: bool = True,
) -> Metric:
    low, high, method = interval
    return Metric(name, _stable(value), _stable(low), _stable(high), n, of, unit, method, higher_is_better)


def _stable(number: float | None) -> float | None:
    """Twelve significant digits: what DuckDB's threads may add up in another order next time stays below them."""
    return None if number is None else float(f"{number:.12g}")


def _row(records: duckdb.DuckDBPyRelation, aggregates: str) -> tuple[Any, ...]:
    (row,) = records.aggregate(aggregates).fetchall()
    return tuple(row)
