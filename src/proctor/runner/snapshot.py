"""How a run goes, as plain numbers for whoever shows them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class CheckpointProgress:
    """One checkpoint so far.

    Attributes:
        total: rows to answer.
        before: rows that earlier runs had done.
        done: rows with a final record, `before` included.
        answered: rows answered by this run.
        errors: final errors of this run, by kind.
        retries: retryable errors of this run, by kind.
        output_tokens: tokens decoded by this run.
    """

    total: int
    before: int = 0
    done: int = 0
    answered: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """A snapshot of a run.

    Attributes:
        seconds: since the run began.
        active: checkpoint and sweep that are under way, None between them.
        rate: rows a second over the last half minute or so.
        eta_seconds: until every row of every checkpoint is done, None while unknown.
        events: events so far, by kind.
        note: what goes on beside the sweeps, such as an audit.
    """

    checkpoints: dict[str, CheckpointProgress]
    seconds: float = 0.0
    active: tuple[str, int] | None = None
    rate: float = 0.0
    eta_seconds: float | None = None
    events: dict[str, int] = field(default_factory=dict)
    note: str = ""


Observer = Callable[[Progress], None]
"""Is handed a snapshot about twice a second, from a thread of its own."""


def quiet(progress: Progress) -> None:
    """An observer that shows nothing."""


def status_json(progress: Progress, state: str) -> dict[str, Any]:
    """Plain data for ``status.json``."""
    return {
        "state": state,
        "time": time.time(),
        "seconds": round(progress.seconds, 1),
        "active": progress.active,
        "rate": round(progress.rate, 2),
        "eta_seconds": None if progress.eta_seconds is None else round(progress.eta_seconds),
        "events": progress.events,
        "checkpoints": {
            name: {
                "total": x.total,
                "before": x.before,
                "done": x.done,
                "answered": x.answered,
                "errors": x.errors,
                "retries": x.retries,
                "output_tokens": x.output_tokens,
            }
            for name, x in progress.checkpoints.items()
        },
    }
