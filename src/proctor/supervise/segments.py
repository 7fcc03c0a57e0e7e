"""Shared memory that a killed group leaves behind: `multiprocessing` names it, maps it, and nobody unlinks it."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

_SEGMENT = re.compile(r" (/dev/shm/(?:psm_|sem\.mp-)\S+)$", re.MULTILINE)


def mapped_segments(pids: Iterable[int]) -> set[Path]:
    """Segments of `multiprocessing` that these processes have mapped."""
    found: set[Path] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
            found.update(Path(name) for name in _SEGMENT.findall(maps))
    return found


def remove_segments(segments: Iterable[Path]) -> list[Path]:
    """Removes those of `segments` that belong to this user and that no living process has mapped.

    Returns:
        What was removed.
    """
    left = {path for path in segments if path.exists()}
    if left:
        left -= mapped_segments(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    removed = []
    for path in sorted(left):
        with contextlib.suppress(OSError):
            if path.stat().st_uid == os.getuid():
                path.unlink()
                removed.append(path)
    return removed
