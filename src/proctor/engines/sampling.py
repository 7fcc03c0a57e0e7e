"""What every engine does alike with a row's sampling: its seed, and the cut at a stop text."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from proctor.rows import Request


def row_seed(request: Request) -> int:
    """Seed of this row's draws, 0 ... 2^63 - 1, from the run's seed and the row id: neighbours do not matter."""
    digest = hashlib.blake2b(f"{request.sampling.seed}:{request.id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def stop_position(text: str, stops: Iterable[str]) -> int:
    """Where the first stop text begins in `text`, -1 if none of `stops` is in it."""
    found = [position for stop in stops if (position := text.find(stop)) >= 0]
    return min(found, default=-1)


def cut_at_stop(text: str, stops: Iterable[str]) -> str:
    """`text` up to the first stop text, which is not part of an answer."""
    position = stop_position(text, stops)
    return text if position < 0 else text[:position]
