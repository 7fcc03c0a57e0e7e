"""Names of cells and units: safe as names of directories, and the same whenever the fleet is expanded again."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import xxhash

_BETWEEN = "--"
_SAFE = re.compile(r"[A-Za-z0-9._=+@-]+")
_LONGEST = 200
"""Characters of a name; file systems take 255 bytes, and files beside a directory add suffixes to its name."""
_LONGEST_VALUE = 24
_DIGITS = re.compile(r"(\d+)")


def cell_name(checkpoint: str, task: str, choice: Mapping[str, Any], keys: Sequence[str]) -> str:
    """``checkpoint--task--key=value``, keys in order; a task without a name is left out.

    Args:
        checkpoint: its name, or what stands for several.
        task: its name in the matrix, empty if the matrix names none.
        choice: value by dotted key.
        keys: all keys of the matrix, of which each is called by as few of its last parts as tell it from the others.
    """
    parts = [
        checkpoint,
        *([task] if task else []),
        *(f"{_short(key, keys)}={_told(choice[key])}" for key in sorted(choice)),
    ]
    name = _BETWEEN.join(parts)
    return shortened(name, _LONGEST)


def shortened(name: str, longest: int) -> str:
    """`name`, or where it is too long its beginning with a digest of the whole."""
    return name if len(name) <= longest else f"{name[: longest - 17]}-{_digest(name)}"


def several(names: Sequence[str]) -> str:
    """What stands for checkpoints that share a unit: the first one's name, and how many more there are."""
    return names[0] if len(names) == 1 else f"{names[0]}+{len(names) - 1}"


def by_number(text: str) -> list[tuple[bool, int, str]]:
    """A key that sorts ``step-200`` before ``step-1000``."""
    return [(not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in _DIGITS.split(text) if part]


def _short(key: str, keys: Sequence[str]) -> str:
    parts = key.split(".")
    for count in range(1, len(parts) + 1):
        tail = ".".join(parts[-count:])
        if sum(other == tail or other.endswith(f".{tail}") for other in keys) == 1:
            return _safe(tail)
    return _safe(key)


def _told(value: Any) -> str:
    """A value as part of a name: as it is written, or a digest of it where that is no name or too long."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text if len(text) <= _LONGEST_VALUE and _SAFE.fullmatch(text) else _digest(text)


def _safe(key: str) -> str:
    """A key as part of a name: those of free blocks, such as the names of variables, may hold anything."""
    return key if _SAFE.fullmatch(key) else _digest(key)


def _digest(text: str) -> str:
    return xxhash.xxh3_64_hexdigest(text.encode())
