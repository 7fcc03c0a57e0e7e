"""Task ``regex``: a pattern picks the part of the answer that must equal the target."""

from __future__ import annotations

import re
from dataclasses import dataclass

from proctor.spec.source import ColumnsSpec
from proctor.spec.task import RegexTaskSpec
from proctor.tasks.base import ParseError
from proctor.tasks.comparison import TextComparison
from proctor.tasks.prompting import Prompting


@dataclass(frozen=True)
class RegexTask(TextComparison):
    """Compares the first group of the first match (or the whole match, without groups) with the target as it is."""

    prompting: Prompting
    pattern: re.Pattern[str]
    target_column: str | None = None
    ignore_case: bool = False

    @classmethod
    def of(cls, spec: RegexTaskSpec, columns: ColumnsSpec) -> RegexTask:
        """The task that `spec` describes."""
        pattern = re.compile(spec.pattern, re.IGNORECASE if spec.ignore_case else re.NOFLAG)
        return cls(Prompting.of(spec, columns), pattern, columns.target, spec.ignore_case)

    def parse(self, text: str) -> str:
        """The part of `text` that counts.

        Raises:
            ParseError: the pattern is not found, or what it picks is empty.
        """
        match = self.pattern.search(text)
        if match is None:
            raise ParseError("the pattern is not found")
        picked: str | None = match[1] if self.pattern.groups else match[0]
        if not picked:
            raise ParseError("the pattern picks nothing")
        return picked
