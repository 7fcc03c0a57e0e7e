"""Keeps an engine at work: child process, deadline, restart, quarantine, breaker.

The names load on first use: the child's side of this package runs where only the standard library, msgspec and the
engine's own library may be installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proctor.supervise.engine_check import preflight
    from proctor.supervise.settings import Settings
    from proctor.supervise.supervisor import Supervisor

_HOMES = {
    "Settings": "proctor.supervise.settings",
    "Supervisor": "proctor.supervise.supervisor",
    "preflight": "proctor.supervise.engine_check",
}

__all__ = ["Settings", "Supervisor", "preflight"]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'proctor.supervise' has no attribute {name!r}")
    return getattr(import_module(home), name)
