"""Proctor: batch evaluation of vision-language models that accounts for every row.

The public names load on first use, so that ``import proctor`` stays light (no ray, torch or pandas).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor._lazy import lazy

if TYPE_CHECKING:
    from proctor.api import run
    from proctor.rows import ErrorKind, UserError
    from proctor.runner import RunOutcome
    from proctor.spec import RunSpec, load_spec

__version__ = "0.1.0"

_HOMES = {
    "ErrorKind": "rows",
    "RunOutcome": "runner",
    "RunSpec": "spec",
    "UserError": "rows",
    "load_spec": "spec",
    "run": "api",
}

__all__ = ["ErrorKind", "RunOutcome", "RunSpec", "UserError", "__version__", "load_spec", "run"]

__getattr__, __dir__ = lazy(__name__, _HOMES)
