"""When which fault strikes: drawn from the seed alone, so that a soak can be repeated."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import NamedTuple

SMALL: Mapping[str, int] = {
    "engine.kill": 4,
    "engine.segv": 3,
    "engine.stop": 3,
    "helper.kill": 2,
    "actor.kill": 2,
    "worker.idle.kill": 1,
    "worker.reading.kill": 2,
    "worker.writing.kill": 2,
    "hub.kill": 1,
}
"""Faults that the driver outlives, and how often each is in a deck."""
LARGE: Mapping[str, int] = {
    "driver.kill": 2,
    "driver.term": 1,
    "driver.int": 1,
    "cut.part": 1,
    "cut.event": 1,
    "disk.full": 1,
    "actor.stop": 1,
}
"""Faults that end the driver, or cost a minute or more."""


class Strike(NamedTuple):
    """One fault to come.

    Attributes:
        at: seconds on the clock of the chaos, which runs while a driver is up: from its first actor to its end.
        kind: a key of `SMALL` or `LARGE`.
        draw: in [0, 1): picks the target among those that live then.
    """

    at: float
    kind: str
    draw: float


def schedule(seed: int, seconds: float, every: float, large_every: float) -> list[Strike]:
    """The strikes of the first `seconds`, in order.

    Args:
        every: mean seconds between two small faults; each gap is between half and one and a half of it.
        large_every: the same for large ones.
    """
    small = _stream(random.Random(f"{seed} small"), SMALL, every, seconds)
    large = _stream(random.Random(f"{seed} large"), LARGE, large_every, seconds)
    return sorted([*small, *large])


def _stream(rng: random.Random, kinds: Mapping[str, int], every: float, seconds: float) -> Iterator[Strike]:
    at = 0.0
    for kind in _decks(rng, kinds):
        at += every * rng.uniform(0.5, 1.5)
        if at >= seconds:
            return
        yield Strike(round(at, 2), kind, rng.random())


def _decks(rng: random.Random, kinds: Mapping[str, int]) -> Iterator[str]:
    """Kinds from decks that are shuffled one after another, so that each has its turn also in a short soak."""
    while True:
        deck = [kind for kind, times in kinds.items() for _ in range(times)]
        rng.shuffle(deck)
        yield from deck
