"""Checksums of shard files: every algorithm of `hashlib` with a fixed length, and the xxHash family."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable
from typing import Protocol

import xxhash

_CHUNK = 4 << 20


class _Hasher(Protocol):
    def update(self, data: memoryview, /) -> None: ...
    def hexdigest(self) -> str: ...


@functools.cache
def hash_names() -> frozenset[str]:
    """Names of the algorithms that this machine can compute."""
    fixed = {name for name in hashlib.algorithms_available if not name.startswith("shake_")}
    return frozenset(fixed | set(xxhash.algorithms_available))


def hexdigests(names: Iterable[str], data: bytes | memoryview) -> dict[str, str]:
    """Hex digests of `data` by algorithm, in one pass of 4 MB steps (so that a mapped file is walked once)."""
    hashers = {name: _new_hasher(name) for name in names}
    view = memoryview(data)
    for start in range(0, len(view) if hashers else 0, _CHUNK):
        for hasher in hashers.values():
            hasher.update(view[start : start + _CHUNK])
    return {name: hasher.hexdigest() for name, hasher in hashers.items()}


def _new_hasher(name: str) -> _Hasher:
    if name in xxhash.algorithms_available:
        make: Callable[[], _Hasher] = getattr(xxhash, name)
        return make()
    return hashlib.new(name, usedforsecurity=False)
