"""The loop, the stream on Ray Data, progress and events."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'proctor.runner' has no attribute {name!r}")
    return getattr(import_module(f"proctor.runner.{home}"), name)
