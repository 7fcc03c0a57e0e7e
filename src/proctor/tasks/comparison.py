"""What ``exact`` and ``regex`` share: one text, compared with one target text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from proctor.rows import Prompt, Sample
from proctor.tasks import summaries
from proctor.tasks.base import Scores, Summary
from proctor.tasks.prompting import Prompting
from proctor.tasks.targets import column_target
from proctor.tasks.values import value_text

if TYPE_CHECKING:
    import duckdb

_COLUMNS: dict[str, pa.DataType] = {"prediction": pa.large_string(), "correct": pa.bool_()}


class TextComparison:
    """A task whose parsed answer is a text. A target is turned into text by `proctor.tasks.values.value_text`."""

    prompting: Prompting
    target_column: str | None
    ignore_case: bool

    @property
    def columns(self) -> Mapping[str, pa.DataType]:
        """``prediction`` is what was compared, ``correct`` the mark."""
        return _COLUMNS

    def prompt(self, sample: Sample) -> Prompt:
        """The row's images, then the question."""
        return self.prompting.prompt(sample)

    def target(self, sample: Sample) -> Any:
        """The row's target as text."""
        value = column_target(sample, self.target_column)
        return None if value is None else value_text(value)

    def score(self, parsed: str, target: str | None) -> Scores:
        """Whether both texts are equal."""
        if target is None:
            return {"prediction": parsed}
        return {"prediction": parsed, "correct": self._comparable(parsed) == self._comparable(target)}

    def summary(self, records: duckdb.DuckDBPyRelation, expected: int) -> Summary:
        """Accuracy."""
        accuracy = summaries.share_of(records, "accuracy", "correct", expected)
        return Summary("accuracy", (accuracy, *summaries.coverage(records, expected)))

    def _comparable(self, text: str) -> str:
        return text.casefold() if self.ignore_case else text
