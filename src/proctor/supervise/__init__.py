"""Keeps an engine at work: child process, deadline, restart, quarantine, breaker.

The names load on first use: the child's side of this package runs where only the standard library, msgspec and the
engine's own library may be installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor._lazy import lazy

if TYPE_CHECKING:
    from proctor.supervise.engine_check import preflight
    from proctor.supervise.settings import Settings
    from proctor.supervise.supervisor import Supervisor

_HOMES = {
    "Settings": "settings",
    "Supervisor": "supervisor",
    "preflight": "engine_check",
}

__all__ = ["Settings", "Supervisor", "preflight"]

__getattr__, __dir__ = lazy(__name__, _HOMES)
