"""The task contract: ``prompt`` asks, ``parse`` reads the answer, ``score`` marks it, ``summary`` adds up.

A task is pure: it sees one row, or a table of records, and touches no files, engines or Ray.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from proctor.rows import Prompt, Sample

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


class ParseError(ValueError):
    """An answer that does not have the form the task asks for. Its text becomes the record's ``parse_error``."""


Scores = dict[str, Any]
"""Values for the task's own record columns. Missing ones are null."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a summary, never without what it covers.

    Attributes:
        name: e.g. ``surface.accuracy``, ``ade``.
        value: None when no row is covered.
        low, high: bounds of the 95 % interval, None where none can be given.
        n: rows that the number covers.
        of: rows that it should have covered (all expected rows of the checkpoint).
        unit: ``""`` for shares, else e.g. ``m``.
        method: how the interval was made, e.g. ``wilson``, ``bootstrap``.
        higher_is_better: for tables and charts.
    """

    name: str
    value: float | None
    low: float | None
    high: float | None
    n: int
    of: int
    unit: str = ""
    method: str = ""
    higher_is_better: bool = True


@dataclass(frozen=True, slots=True)
class Confusion:
    """Counts of target (rows) against prediction (columns) for one field; unparsable answers are not in it."""

    field: str
    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """What a checkpoint scored. `headline` names the metric shown first in tables and charts."""

    headline: str
    metrics: tuple[Metric, ...]
    confusions: tuple[Confusion, ...] = field(default=())


class Task(Protocol):
    """What is asked and how it is marked. Instances are picklable."""

    @property
    def columns(self) -> Mapping[str, pa.DataType]:
        """Typed columns that the task adds to every record (predictions, targets, scores)."""

    def prompt(self, sample: Sample) -> Prompt:
        """The chat messages for `sample`, with one `ImagePart` for each of its images."""

    def target(self, sample: Sample) -> Any:
        """What the answer is marked against, as a JSON-able value; None when the row has none."""

    def parse(self, text: str) -> Any:
        """Reads an answer.

        Raises:
            ParseError: the answer does not have the asked-for form.
        """

    def score(self, parsed: Any, target: Any) -> Scores:
        """Marks a parsed answer. A `target` of None (the row has none) fills the columns of the prediction only."""

    def summary(self, records: duckdb.DuckDBPyRelation, expected: int) -> Summary:
        """Adds up one checkpoint's records (schema `proctor.rows.records.record_schema(self.columns)`).

        Only rows with an answer that parsed are scored; `expected` is how many rows there should be.
        """
