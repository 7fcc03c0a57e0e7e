"""Rows and a task for whole runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from proctor.rows import Message, TextPart
from proctor.spec import RunSpec
from proctor.tasks import Summary

MakeSpec = Callable[..., RunSpec]


def write_rows(path: Path, count: int) -> Path:
    """`count` rows of JSON lines whose target is what the scripted engine answers by default."""
    with path.open("w") as file:
        for i in range(count):
            file.write(json.dumps({"key": f"k{i}", "question": f"what is {i}?", "target": f"answer {i}"}) + "\n")
    return path


class Fussy:
    """A user's task that raises on some rows."""

    columns: ClassVar[dict[str, Any]] = {}

    def prompt(self, sample: Any) -> Any:
        if sample.row_id == 3:
            raise KeyError("no such field")
        return (Message("user", (TextPart("?"),)),)

    def target(self, sample: Any) -> Any:
        return None

    def parse(self, text: str) -> Any:
        if text.endswith(" 5"):
            raise RuntimeError("five is right out")
        return text

    def score(self, parsed: Any, target: Any) -> dict[str, Any]:
        return {}

    def summary(self, records: Any, expected: int) -> Any:
        return Summary("nothing", ())
