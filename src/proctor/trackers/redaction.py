"""Keeps secrets out of what is said about a tracker."""

from __future__ import annotations

import os
import re

from proctor.spec.store import is_secret, masked

_LONGEST = 300
_SHORTEST_SECRET = 6
_PLACES = frozenset({"PWD", "OLDPWD"})
"""Named like a password, and what every shell sets to its directory."""
_AUTHORIZATION = re.compile(r"(?i)\b(bearer|basic)\s+\S+")


def redacted(text: str) -> str:
    """One line of `text`, without values of the environment's secrets and without credentials of URLs."""
    line = " ".join(text.split())
    for name, value in os.environ.items():
        if len(value) >= _SHORTEST_SECRET and is_secret(name) and name not in _PLACES:
            line = line.replace(value, "***")
    line = _AUTHORIZATION.sub(r"\1 ***", str(masked(line)))
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
