"""TensorBoard's event files, by tensorboardX, which needs no TensorFlow."""

from __future__ import annotations

import json
from typing import Any

from proctor.trackers.backends.base import Backend
from proctor.trackers.entries import Entry, numbers, texts
from proctor.trackers.messages import Open


def opened(message: Open) -> Backend:
    """Starts an event file in the run's directory."""
    from tensorboardX import SummaryWriter

    assert message.directory is not None
    return _Run(SummaryWriter(message.directory))


class _Run:
    """Event files in a directory; TensorBoard reads all of them as one run."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def send(self, entries: list[Entry]) -> bool:
        for entry in entries:
            if entry.kind == "params":
                text = "    " + json.dumps(entry.values, indent=2, ensure_ascii=False).replace("\n", "\n    ")
                self._writer.add_text("params", text, entry.step, walltime=entry.time)
                continue
            for name, value in numbers(entry).items():
                self._writer.add_scalar(name, value, entry.step, walltime=entry.time)
            for name, text in texts(entry).items():
                self._writer.add_text(name, text, entry.step, walltime=entry.time)
        self._writer.flush()
        return True

    def finish(self, ok: bool | None) -> None:  # noqa: ARG002 (a directory has no state)
        self._writer.close()
