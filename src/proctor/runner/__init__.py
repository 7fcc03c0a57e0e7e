"""The loop, the stream on Ray Data, progress and events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor._lazy import lazy

if TYPE_CHECKING:
    from proctor.runner.loop import run
    from proctor.runner.outcome import RunOutcome
    from proctor.runner.plan import Plan, make_plan
    from proctor.runner.snapshot import Observer, Progress
    from proctor.runner.status import RunStatus, read_status

_HOMES = {
    "Observer": "snapshot",
    "Plan": "plan",
    "Progress": "snapshot",
    "RunOutcome": "outcome",
    "RunStatus": "status",
    "make_plan": "plan",
    "read_status": "status",
    "run": "loop",
}

__all__ = ["Observer", "Plan", "Progress", "RunOutcome", "RunStatus", "make_plan", "read_status", "run"]

__getattr__, __dir__ = lazy(__name__, _HOMES)
