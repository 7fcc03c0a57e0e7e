"""A user's tasks that do what they should not."""

from __future__ import annotations

import os
import signal
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from proctor.rows import Message, TextPart
from proctor.tasks import Metric, Summary

QUESTION = (Message("user", (TextPart("?"),)),)


class Calm:
    """A task that does nothing wrong, for others to spoil."""

    columns: ClassVar[dict[str, Any]] = {"length": pa.int64()}

    def prompt(self, sample: Any) -> Any:
        return QUESTION

    def target(self, sample: Any) -> Any:
        return None

    def parse(self, text: str) -> Any:
        return text

    def score(self, parsed: Any, target: Any) -> Any:
        return {"length": len(parsed)}

    def summary(self, records: Any, expected: int) -> Any:
        ((count,),) = records.aggregate("count(length)").fetchall()
        return Summary("scored", (Metric("scored", np.float32(1.0), None, None, np.int64(count), expected),))


class JunkPrompts(Calm):
    """Prompts that are none, one row in two."""

    junk: ClassVar[list[Any]] = ["text", None, 5, (), [{"role": "user", "content": "?"}], (Message("user", ("?",)),)]

    def prompt(self, sample: Any) -> Any:
        return self.junk[sample.row_id // 2 % len(self.junk)] if sample.row_id % 2 else QUESTION


class Exits(Calm):
    """Leaves the process in every way that Python has, and with half a character for a reason."""

    def prompt(self, sample: Any) -> Any:
        if sample.row_id == 2:
            raise SystemExit(0)
        if sample.row_id == 3:
            raise ValueError("half a character: \ud83d")
        return QUESTION

    def parse(self, text: str) -> Any:
        if text.endswith(" 5"):
            raise SystemExit(0)
        return text


class KillsTheReader(Calm):
    """A decoder that crashes at one row, and a marker that crashes at another."""

    def prompt(self, sample: Any) -> Any:
        if sample.row_id == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return QUESTION

    def parse(self, text: str) -> Any:
        if text.endswith(" 9"):
            os.kill(os.getpid(), signal.SIGKILL)
        return text


class NoSummary(Calm):
    """The rows are right, adding them up is not."""

    def summary(self, records: Any, expected: int) -> Any:
        raise SystemExit(0)


class JunkSummary(Calm):
    """Adds up to something else."""

    def summary(self, records: Any, expected: int) -> Any:
        return {"accuracy": 1.0}
