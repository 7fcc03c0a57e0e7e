"""Another checkpoint for an engine: into the process that runs, or by a new one."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Literal

from proctor.engines.base import EngineConfig


@dataclass(frozen=True, slots=True)
class Succeeded:
    """What came of it.

    Attributes:
        how: ``swapped``: the process answers with the new checkpoint, which nobody has proven yet; ``refused``: it
            cannot, and answers with the old one as before; ``failed``: it came to its end over it, and a new process
            is being started with the new checkpoint; ``cold``: a new process is being started, as asked.
        reason: why it was refused or has failed.
        seconds: how long the process took.
    """

    how: Literal["swapped", "refused", "failed", "cold"]
    reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Succession:
    """Asked of the supervisor's own thread, while no row is under way.

    Attributes:
        config: the engine's configuration with the new checkpoint.
        weights: path of its published weights; empty: the engine reads the checkpoint's files.
        cold: end the process and start a new one.
        done: gets the outcome.
    """

    config: EngineConfig
    weights: str = ""
    cold: bool = False
    done: Future[Succeeded] = field(default_factory=Future)
