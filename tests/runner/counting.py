"""A task that leaves a file for each row that is prepared, and may kill the worker that first marks row 20."""

from __future__ import annotations

import os
import signal
import uuid
from pathlib import Path
from typing import Any, ClassVar

from proctor.rows import Message, TextPart
from proctor.tasks import Summary


class Counting:
    columns: ClassVar[dict[str, Any]] = {}

    def __init__(self, folder: str, kill: bool = False) -> None:
        self._folder, self._kill = Path(folder), kill

    def prompt(self, sample: Any) -> Any:
        (self._folder / f"{sample.row_id}-{uuid.uuid4().hex}").touch()
        return (Message("user", (TextPart("?"),)),)

    def target(self, sample: Any) -> Any:
        return None

    def parse(self, text: str) -> Any:
        if self._kill and text == "answer 20":
            try:
                (self._folder / "0-killed").touch(exist_ok=False)
            except FileExistsError:
                return text
            os.kill(os.getpid(), signal.SIGKILL)
        return text

    def score(self, parsed: Any, target: Any) -> dict[str, Any]:
        return {}

    def summary(self, records: Any, expected: int) -> Any:
        return Summary("nothing", ())
