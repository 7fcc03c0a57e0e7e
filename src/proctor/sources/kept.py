"""What a process keeps open between blocks, so that the next block of a file goes on where the one before stopped."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar


class Closable(Protocol):
    """Something open."""

    def close(self) -> object:
        """Ends it."""


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Closable)


class Kept(Generic[K, V]):
    """The few things that were put back last, by their keys. Whoever takes one has it alone. Safe with threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._things: dict[K, V] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._things)

    def take(self, key: K) -> V | None:
        """What was put back under `key`; None if there is nothing."""
        with self._lock:
            return self._things.pop(key, None)

    def put_back(self, key: K, thing: V) -> None:
        """Keeps `thing`, and closes what was put back longest ago."""
        with self._lock:
            spare = [self._things.pop(key, None)]
            self._things[key] = thing
            spare += [self._things.pop(next(iter(self._things))) for _ in range(len(self._things) - self._most)]
        for other in spare:
            if other is not None:
                other.close()
