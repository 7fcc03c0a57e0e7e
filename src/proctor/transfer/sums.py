"""Checksums of what is transferred: one of each bucket, and one over all of them with their places."""

from __future__ import annotations

from collections.abc import Iterable

import xxhash


def rolling(manifest_sha256: str, sums: Iterable[int]) -> int:
    """XXH3-64 over a manifest's digest and every bucket's number and XXH3-64, in order (`wire.Commit.rolling`).

    Numbers go in as 8 bytes, little-endian; the digest as the 32 bytes that its hexadecimal stands for.
    """
    state = xxhash.xxh3_64(bytes.fromhex(manifest_sha256))
    for sequence, checksum in enumerate(sums):
        state.update(sequence.to_bytes(8, "little") + checksum.to_bytes(8, "little"))
    return state.intdigest()
