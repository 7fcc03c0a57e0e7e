"""The sender's slots in shared memory, and how a receiver reads them.

A slot is `EDGE` bytes of head, its room, and `EDGE` bytes of tail. Head and tail hold the generation of what lies
between them; it is 0 while the slot is written and after it was given back. A reader compares both before and after
copying, so a slot that was used again meanwhile is seen, and its checksum, which came with the offer, proves the rest
(vllm #20263: without such marks the bytes of another request were taken).
"""

from __future__ import annotations

import mmap
import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, final

import numpy as np

from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.kv.wire import Region
from proctor.transfer.manifest import ALIGN
from proctor.transfer.memory import SIZED, find, forbid_others, make, path_of, populated

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]

EDGE = ALIGN
_MARK = 8
_NONCE = 16


def _place(slot: int, slot_bytes: int) -> int:
    return EDGE + slot * (slot_bytes + 2 * EDGE)


@final
class Memory:
    """Slots of one size in a memfd; its pages are there from the start.

    Args:
        slots: how many.
        slot_bytes: room of each, a multiple of `ALIGN`.

    Raises:
        UserError: there is not so much memory.
    """

    def __init__(self, slots: int, slot_bytes: int) -> None:
        self._slot_bytes = slot_bytes
        size = _place(slots, slot_bytes)
        self._file = make(size, "proctor-kv")
        self._map = populated(self._file, size)
        forbid_others(self._file)
        self._bytes: Bytes = np.frombuffer(self._map, np.uint8)
        nonce = secrets.token_bytes(_NONCE)
        self._map[:_NONCE] = nonce
        self.region = Region(path_of(self._file), nonce, slots, slot_bytes)

    def room(self, slot: int) -> Bytes:
        """The slot's bytes, to be written between `begin` and `commit`."""
        start = _place(slot, self._slot_bytes) + EDGE
        return self._bytes[start : start + self._slot_bytes]

    def begin(self, slot: int) -> None:
        """From now on nobody takes the slot's bytes for anything. Also what is done when it is given back."""
        self._mark(slot, 0)

    def commit(self, slot: int, generation: int) -> None:
        """The slot holds a piece."""
        self._mark(slot, generation)

    def _mark(self, slot: int, generation: int) -> None:
        mark = np.frombuffer(generation.to_bytes(_MARK, "little"), np.uint8)
        start = _place(slot, self._slot_bytes)
        for place in (start, start + EDGE + self._slot_bytes):
            self._bytes[place : place + _MARK] = mark

    def close(self) -> None:
        """Forgets it; a receiver that has it mapped keeps its pages until it forgets it too."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            del self._bytes
            _unmap(self._map)


@final
class Attached:
    """A sender's slots, read-only.

    Raises:
        UserError: it is another user's.
        TransferError: ``DEAD``: it cannot be reached from here; ``MISMATCH``: what lies there is another memory.
    """

    def __init__(self, region: Region) -> None:
        self._region = region
        size = _place(region.slots, region.slot_bytes)
        file = find(region.path, needed=SIZED)
        try:
            if os.fstat(file).st_size != size:
                raise TransferError(Reason.MISMATCH, f"{region.path} has another size than the sender says")
            self._map = mmap.mmap(file, size, prot=mmap.PROT_READ)
        finally:
            os.close(file)
        if self._map[:_NONCE] != region.nonce:
            self._map.close()
            raise TransferError(Reason.MISMATCH, f"{region.path} is not the sender's memory")
        self._bytes: Bytes = np.frombuffer(self._map, np.uint8)

    def read(self, slot: int, generation: int, target: Bytes) -> None:
        """Copies the first bytes of a slot.

        Raises:
            TransferError: ``EXPIRED``: the slot holds something else, or did before the copy was over; ``MISMATCH``:
                there is no such slot.
        """
        if not 0 <= slot < self._region.slots or len(target) > self._region.slot_bytes:
            raise TransferError(Reason.MISMATCH, f"slot {slot} with {len(target):,} bytes: there is none")
        start = _place(slot, self._region.slot_bytes) + EDGE
        self._check(slot, generation)
        np.copyto(target, self._bytes[start : start + len(target)])
        self._check(slot, generation)

    def _check(self, slot: int, generation: int) -> None:
        start = _place(slot, self._region.slot_bytes)
        for place in (start, start + EDGE + self._region.slot_bytes):
            found = int.from_bytes(self._map[place : place + _MARK], "little")
            if found != generation:
                raise TransferError(
                    Reason.EXPIRED, f"slot {slot} holds generation {found or 'none'}, {generation} was offered"
                )

    def close(self) -> None:
        """Unmaps it."""
        if hasattr(self, "_bytes"):
            del self._bytes
            _unmap(self._map)


def _unmap(mapped: mmap.mmap) -> None:
    with suppress(BufferError):  # somebody still looks at it: it goes when they do
        mapped.close()
