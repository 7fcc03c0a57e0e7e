"""What is shipped for one request, cut into pieces that fill slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import xxhash

from proctor.transfer.devices.base import Stream
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.manifest import Bucket, Manifest
from proctor.transfer.tensors import Plan, as_bytes, views


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Everything that a request's continuation needs.

    Attributes:
        request: its id.
        tokens: token ids of the prompt, row by row.
        position: positions that the cache holds.
        tensors: ``layer.N.key`` and ``layer.N.value`` of every layer, and whatever else belongs to the request
            (its name must not begin with ``layer.``).
    """

    request: str
    tokens: tuple[int, ...]
    position: int
    tensors: Mapping[str, torch.Tensor]


class Cut(NamedTuple):
    """A block's bytes and where they are cut: every piece fills a slot, the last one as far as it goes."""

    manifest: Manifest
    flat: tuple[torch.Tensor, ...]
    pieces: tuple[Bucket, ...]


def cut(plan: Plan, slot_bytes: int) -> Cut:
    """Cuts a block into pieces of at most `slot_bytes`."""
    flat = tuple(as_bytes(source) for source in plan.sources)
    return Cut(plan.manifest, flat, plan.manifest.buckets(slot_bytes))


def write(block: Cut, piece: Bucket, room: torch.Tensor, stream: Stream) -> int:
    """Copies a piece into `room` (uint8, at least as long) and waits for it.

    Returns:
        XXH3-64 of its bytes as they lie in `room`; gaps between tensors are zero.
    """
    at = piece.start
    inside = range(piece.first, piece.first + piece.count)
    for index in inside:
        entry = block.manifest.entries[index]
        start, stop = max(entry.offset, piece.start), min(entry.end, piece.stop)
        if start >= stop:
            continue
        room[at - piece.start : start - piece.start].zero_()
        source = block.flat[index][start - entry.offset : stop - entry.offset]
        stream.copy(room[start - piece.start : stop - piece.start], source)
        at = stop
    room[at - piece.start : piece.nbytes].zero_()
    stream.record().wait()
    return xxhash.xxh3_64_intdigest(memoryview(room[: piece.nbytes].numpy()))


def rebuilt(manifest: Manifest, arena: torch.Tensor, sums: Sequence[tuple[int, int]]) -> dict[str, torch.Tensor]:
    """The tensors of a block as views of `arena` (uint8, flat), once its bytes are proven.

    Args:
        manifest: the block's.
        arena: its bytes.
        sums: length and XXH3-64 of every piece, in order.

    Raises:
        TransferError: ``CORRUPT``: the pieces are not as long as the manifest says, or a checksum differs.
    """
    if sum(nbytes for nbytes, _ in sums) != manifest.nbytes:
        raise TransferError(Reason.CORRUPT, "the pieces of the block are not as long as its manifest says")
    seen, start = memoryview(arena.numpy()), 0
    for number, (nbytes, xxh3) in enumerate(sums):
        if xxhash.xxh3_64_intdigest(seen[start : start + nbytes]) != xxh3:
            raise TransferError(
                Reason.CORRUPT, f"piece {number} of the block is not what was sent: its checksum differs"
            )
        start += nbytes
    return views(arena, manifest)
