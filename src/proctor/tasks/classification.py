"""Task ``classification``: one label out of a closed list.

An answer counts when it names exactly one of the labels as a whole word, wherever it stands; naming one twice is still
one. Of labels that contain each other the longest is meant ("traffic light" is not also "light"). The answer is not
understood beyond that: "not wet" names ``wet``. A target is turned into text (`proctor.tasks.values.value_text`) and
must be a label.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from proctor.rows import Prompt, Sample, UserError
from proctor.spec.source import ColumnsSpec
from proctor.spec.task import ClassificationTaskSpec
from proctor.tasks import summaries
from proctor.tasks.base import ParseError, Scores, Summary
from proctor.tasks.prompting import Prompting
from proctor.tasks.targets import column_target
from proctor.tasks.values import value_text

if TYPE_CHECKING:
    import duckdb

_COLUMNS: dict[str, pa.DataType] = {"label": pa.string(), "label_target": pa.string(), "label_correct": pa.bool_()}


@dataclass(frozen=True, slots=True)
class ClassificationTask:
    """See the module's text.

    Attributes:
        labels: the labels, stripped, in the order of the spec.
        longest_first: the labels in the order of the pattern's groups.
        pattern: finds labels in an answer as whole words; at each place the longest that fits.
        spellings: from a label as it is compared to the label as it is written.
    """

    prompting: Prompting
    labels: tuple[str, ...]
    longest_first: tuple[str, ...]
    pattern: re.Pattern[str]
    spellings: Mapping[str, str]
    ignore_case: bool
    target_column: str | None

    @classmethod
    def of(cls, spec: ClassificationTaskSpec, columns: ColumnsSpec) -> ClassificationTask:
        """The task that `spec` describes.

        Raises:
            UserError: a label is blank or there twice.
        """
        labels = tuple(label.strip() for label in spec.labels)
        folded = [_folded(label, spec.ignore_case) for label in labels]
        if not all(labels):
            raise UserError("a label is blank", where="task.labels")
        twice = sorted({label for label in folded if folded.count(label) > 1})
        if twice:
            raise UserError(f"there more than once: {', '.join(twice)}", where="task.labels")
        braced = ", ".join(labels).replace("{", "{{").replace("}", "}}")
        question = f"Answer with exactly one of these labels: {braced}."
        longest_first = tuple(sorted(labels, key=len, reverse=True))
        return cls(
            prompting=Prompting.of(spec, columns, question),
            labels=labels,
            longest_first=longest_first,
            pattern=_pattern(longest_first, spec.ignore_case),
            spellings=dict(zip(folded, labels, strict=True)),
            ignore_case=spec.ignore_case,
            target_column=columns.target,
        )

    @property
    def columns(self) -> Mapping[str, pa.DataType]:
        """``label``, ``label_target``, ``label_correct``."""
        return _COLUMNS

    def prompt(self, sample: Sample) -> Prompt:
        """The row's images, then the question."""
        return self.prompting.prompt(sample)

    def target(self, sample: Sample) -> Any:
        """The row's label as text."""
        value = column_target(sample, self.target_column)
        return None if value is None else value_text(value)

    def parse(self, text: str) -> str:
        """The one label that `text` names.

        Raises:
            ParseError: it names none, or more than one.
        """
        groups = {match.lastindex for match in self.pattern.finditer(text)}
        named = sorted(self.longest_first[group - 1] for group in groups if group is not None)
        if len(named) != 1:
            raise ParseError(f"names {len(named)} labels: {', '.join(named)}" if named else "names none of the labels")
        return named[0]

    def score(self, parsed: str, target: str | None) -> Scores:
        """Compares two labels.

        Raises:
            ValueError: the target is not a label.
        """
        if target is None:
            return {"label": parsed}
        truth = self.spellings.get(_folded(target.strip(), self.ignore_case))
        if truth is None:
            raise ValueError(f"the target {target!r} is not one of the labels")
        return {"label": parsed, "label_target": truth, "label_correct": parsed == truth}

    def summary(self, records: duckdb.DuckDBPyRelation, expected: int) -> Summary:
        """Accuracy and macro-F1."""
        confusion = summaries.confusion_of(records, "label", self.labels)
        metrics = (*summaries.agreement(confusion, expected), *summaries.coverage(records, expected))
        return Summary("accuracy", metrics, (confusion,))


def _folded(label: str, ignore_case: bool) -> str:
    return label.casefold() if ignore_case else label


def _pattern(labels: tuple[str, ...], ignore_case: bool) -> re.Pattern[str]:
    choices = "|".join(f"({re.escape(label)})" for label in labels)
    return re.compile(rf"(?<!\w)(?:{choices})(?!\w)", re.IGNORECASE if ignore_case else re.NOFLAG)
