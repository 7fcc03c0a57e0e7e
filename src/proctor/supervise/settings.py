"""How an engine is supervised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits and places for one supervised engine.

    Attributes:
        stall_seconds: longest time without a finished row or a decoded token while rows are with the engine.
        load_seconds: longest time that a start may take, and that an engine at work may compile without a word.
        init_attempts: starts that may fail one after another before the breaker opens.
        window: most requests handed to the child at once; twice the engine's batch keeps it from waiting.
        stalls_dir: local directory for stack dumps and the child's log.
        python: interpreter for the child; None is the one that runs the supervisor.
        env: environment variables for the child, on top of the supervisor's own.
        backoff_seconds: wait before the first restart; doubles with every restart that brought no answer.
        hold_seconds: how long the first rows are held that an open breaker sends back; doubles with every release.
        close_seconds: how long an engine may take to close that another is to replace.
        probe_seconds: wait before an open breaker tries the engine again; doubles with every probe that fails.
    """

    stall_seconds: float
    load_seconds: float
    init_attempts: int
    window: int
    stalls_dir: Path
    python: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    backoff_seconds: float = 0.5
    hold_seconds: float = 1.0
    probe_seconds: float = 30.0
    close_seconds: float = 5.0

    def silence(self, *, compiling: bool) -> float:
        """Seconds that an engine at work may show no progress."""
        return max(self.stall_seconds, self.load_seconds) if compiling else self.stall_seconds
