"""The task of every cell, for all systems: ask the row's question, take the answer as it is, mark it against the truth.

Options make it crash or raise at chosen rows, as a decoder or a parser written in C may do.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from proctor.rows import ImagePart, Message, Prompt, Sample, TextPart
from proctor.tasks import Metric, Summary

if TYPE_CHECKING:
    import duckdb


class Echo:
    """Asks for the question back."""

    columns: ClassVar[dict[str, pa.DataType]] = {"correct": pa.bool_()}

    def __init__(
        self,
        prompt_crash: Sequence[int] = (),
        prompt_raise: Sequence[int] = (),
        parse_crash: Sequence[int] = (),
        parse_raise: Sequence[int] = (),
        prompt_ms: float = 0.0,
    ) -> None:
        self._prompt = (frozenset(prompt_crash), frozenset(prompt_raise))
        self._parse = (frozenset(parse_crash), frozenset(parse_raise))
        self._pause = prompt_ms / 1000

    def prompt(self, sample: Sample) -> Prompt:
        """The row's image and question."""
        time.sleep(self._pause)
        _strike(sample.row_id, *self._prompt)
        return (Message("user", (ImagePart(), TextPart(sample.fields["question"]))),)

    def target(self, sample: Sample) -> str:
        """The right answer."""
        return str(sample.fields["question"])

    def parse(self, text: str) -> str:
        """The answer as it is."""
        number = text.rpartition(" ")[2]
        _strike(int(number) if number.isdecimal() else -1, *self._parse)
        return text

    def score(self, parsed: str, target: str) -> dict[str, Any]:
        """Whether it is right."""
        return {"correct": parsed == target}

    def summary(self, records: duckdb.DuckDBPyRelation, expected: int) -> Summary:
        """The share of right answers."""
        ((right, count),) = records.aggregate("sum(correct::int), count(correct)").fetchall()
        return Summary("accuracy", (Metric("accuracy", (right or 0) / max(count, 1), None, None, count, expected),))


def _strike(row: int, crash: frozenset[int], fail: frozenset[int]) -> None:
    if row in crash:
        os.kill(os.getpid(), signal.SIGSEGV)
    if row in fail:
        raise RuntimeError(f"planted fault: raise at row {row}")
