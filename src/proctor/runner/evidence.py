"""What supervisors leave on their machine's disk (stack dumps, engine logs), and how it gets into the run directory."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path

from proctor.rows import Event
from proctor.storage.folder import Folder

_SECONDS = 5.0
"""Longest wait for the storage: an engine must not wait for its own log."""


class Evidence:
    """The ``stalls/`` of a run, as seen from a machine that has engines."""

    def __init__(self, run: Folder) -> None:
        self.directory: Path = run.workspace("stalls")
        self._run, self._since = run.hasty(_SECONDS), time.time()
        self._one_at_a_time = threading.Lock()

    def heed(self, event: Event) -> None:
        """Takes over what there is when something has happened to an engine. Its last word waits for that."""
        if event.kind == "engine.closed":
            self._take_over()
        elif event.kind.startswith(("engine.", "breaker.")):
            threading.Thread(target=self._take_over, name="proctor-evidence", daemon=True).start()

    def _take_over(self) -> None:
        with self._one_at_a_time, contextlib.suppress(OSError):  # the run goes on without its logs
            self._run.upload("stalls", self._since)
