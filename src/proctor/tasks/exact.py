"""Task ``exact``: the answer must equal the target."""

from __future__ import annotations

from dataclasses import dataclass

from proctor.spec.source import ColumnsSpec
from proctor.spec.task import ExactTaskSpec
from proctor.tasks.comparison import TextComparison
from proctor.tasks.prompting import Prompting


@dataclass(frozen=True)
class ExactTask(TextComparison):
    """Compares whole texts; with `strip`, white space around both is cut off."""

    prompting: Prompting
    target_column: str | None = None
    ignore_case: bool = False
    strip: bool = True

    @classmethod
    def of(cls, spec: ExactTaskSpec, columns: ColumnsSpec) -> ExactTask:
        """The task that `spec` describes."""
        return cls(Prompting.of(spec, columns), columns.target, spec.ignore_case, spec.strip)

    def parse(self, text: str) -> str:
        """The answer itself: any text that is not blank has the form this task asks for."""
        return text.strip() if self.strip else text

    def _comparable(self, text: str) -> str:
        return super()._comparable(text.strip() if self.strip else text)
