"""What a supervisor has seen so far, in numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Numbers of one supervisor; written by its own thread, read by any.

    Attributes:
        starts: processes of the engine that were started.
        restarts: those that followed a failure.
        crashes: processes that came to their end by themselves, or by an exception out of the engine.
        stalls: processes that were ended because they made no progress.
        tokens: tokens that the engine reported.
        answered: rows that got an answer.
        strays: responses that nobody waited for.
        peak_bytes: memory of its last processes at their highest, added up; 0 unless they closed in good order.
            Pages that several share count for each.
        fallbacks: things that were to run as compiled code and run eagerly since a limit was hit.
    """

    starts: int = 0
    restarts: int = 0
    crashes: int = 0
    stalls: int = 0
    tokens: int = 0
    answered: int = 0
    strays: int = 0
    peak_bytes: int = 0
    fallbacks: int = 0
