"""Is the engine's own library there? Asked first, so that the answer is a line and not a traceback."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from proctor.rows import UserError


def check_installed(*packages: str, extra: str) -> None:
    """Looks for `packages` without importing them.

    Args:
        packages: names as they are imported.
        extra: Proctor's extra that installs them.

    Raises:
        UserError: names what is missing, and where.
    """
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise UserError(
            f"{' and '.join(missing)} cannot be imported in {sys.prefix}",
            where="engine.python",
            fix=f"set it to the interpreter of an environment that has {missing[0]}, or install `proctor[{extra}]`",
        )
