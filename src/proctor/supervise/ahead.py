"""Reads the checkpoint that comes next while the engine still works for the one before."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from proctor.engines.base import EngineConfig
from proctor.engines.weights import Weights
from proctor.rows import told

Read = Callable[[EngineConfig], Weights]
"""Reads a checkpoint. Raises OSError or UserError."""


class Ahead:
    """A checkpoint that is being read by a thread of its own."""

    def __init__(
        self, config: EngineConfig, read: Read, beside: Callable[[EngineConfig, Weights], None] | None = None
    ) -> None:
        self.config = config
        self.trouble = ""
        self._beside = beside
        self._read: Future[Weights | None] = Future()
        self._thread = threading.Thread(target=self._run, args=(read,), name="proctor-ahead", daemon=True)
        self._thread.start()

    def weights(self) -> Weights | None:
        """What was read, once it is; None if it could not be, and then `trouble` says why."""
        self._thread.join()
        return self._read.result()

    def close(self) -> None:
        """Lets go of it, as soon as it is read."""
        self._read.add_done_callback(_let_go)

    def _run(self, read: Read) -> None:
        weights = None
        try:
            weights = read(self.config)
            if self._beside is not None:
                self._beside(self.config, weights)
        except Exception as error:  # whatever keeps it from being read ahead, the engine may still be started with it
            self.trouble = told(error)
        self._read.set_result(weights)


def _let_go(read: Future[Weights | None]) -> None:
    weights = read.result()
    if weights is not None:
        weights.close()
