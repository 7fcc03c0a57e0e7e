"""The processes that an engine works with: when one of them ends the engine is dead, whether it notices or not.

vLLM's front end does not always: it may wait for ever for an engine core that was killed.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from proctor.supervise import wire

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

POLL_SECONDS = 0.2


class Companions:
    """The processes that the engine had started through `multiprocessing` when it was loaded."""

    def __init__(self) -> None:
        module = sys.modules.get("multiprocessing")
        self._processes: list[BaseProcess] = module.active_children() if module is not None else []
        self._released = threading.Event()

    def watch(self, tell: Callable[[wire.Fallen], None]) -> None:
        """Tells of the first one that ends, from a thread of its own, until `release`."""
        if self._processes:
            threading.Thread(target=self._keep_watch, args=(tell,), name="proctor-companions", daemon=True).start()

    def release(self) -> None:
        """From now on they may end."""
        self._released.set()

    def fallen(self, seconds: float) -> wire.Fallen | None:
        """The first one that has ended, or does so within so many seconds."""
        give_up = time.monotonic() + seconds
        while True:
            for process in self._processes:
                if process.exitcode is not None:
                    return wire.Fallen(process.name, process.pid or 0, process.exitcode)
            if not self._processes or time.monotonic() >= give_up:
                return None
            time.sleep(POLL_SECONDS / 4)

    def _keep_watch(self, tell: Callable[[wire.Fallen], None]) -> None:
        while not self._released.wait(POLL_SECONDS):
            fallen = self.fallen(0.0)
            if fallen is not None and not self._released.is_set():
                tell(fallen)
                return
