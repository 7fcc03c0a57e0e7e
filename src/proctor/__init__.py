"""Proctor: batch evaluation of vision-language models that accounts for every row.

The public names load on first use, so that ``import proctor`` stays light (no ray, torch or pandas).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proctor.api import run
    from proctor.rows import ErrorKind, UserError
    from proctor.runner import RunOutcome
    from proctor.spec import RunSpec, load_spec

__version__ = "0.1.0"

_HOMES = {
    "ErrorKind": "proctor.rows",
    "RunOutcome": "proctor.runner",
    "RunSpec": "proctor.spec",
    "UserError": "proctor.rows",
    "load_spec": "proctor.spec",
    "run": "proctor.api",
}

__all__ = ["ErrorKind", "RunOutcome", "RunSpec", "UserError", "__version__", "load_spec", "run"]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'proctor' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
