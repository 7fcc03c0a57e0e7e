"""What is transferred, laid out: every tensor has its place in one flat range of bytes, its arena.

Both sides hold the same manifest before the first byte travels, and only its places say what a byte belongs to: nobody
iterates over a model on the receiving side. Needs no torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod

import msgspec

from proctor.transfer.errors import Reason, TransferError

ALIGN = 256
"""Bytes. A tensor at an odd place cannot be viewed as wider elements (vllm #57665); 256 is what checkpoint-engine and
CUDA's own allocator use, and costs 0.03 % with 10,000 small tensors."""
ITEM_BYTES: Mapping[str, int] = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1, "F8_E8M0": 1,
    "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4,
    "U64": 8, "I64": 8, "F64": 8, "C64": 8, "C128": 16,
}  # fmt: skip
"""Bytes of one element, by the format's names for types (safetensors, plus C128)."""


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One tensor: row-major elements at ``arena[offset : offset + nbytes]``.

    Attributes:
        name: its key in the state dict.
        dtype: a key of `ITEM_BYTES`.
        shape: empty for a 0-dim tensor; a 0 in it makes it empty.
        offset: place in the arena, bytes; a multiple of `ALIGN`.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return prod(self.shape) * ITEM_BYTES[self.dtype]

    @property
    def end(self) -> int:
        """First byte behind it."""
        return self.offset + self.nbytes


class Bucket(msgspec.Struct, frozen=True, array_like=True):
    """A range of the arena that travels as one frame.

    Attributes:
        sequence: its number in the epoch, from 0.
        start: first byte in the arena; a multiple of `ALIGN`.
        stop: first byte behind it.
        first: index of the first entry that has bytes in it.
        count: how many entries have; a large tensor lies in several buckets.
    """

    sequence: int
    start: int
    stop: int
    first: int
    count: int

    @property
    def nbytes(self) -> int:
        """Length of the frame."""
        return self.stop - self.start


class Manifest(msgspec.Struct, frozen=True):
    """The tensors of one state dict in the order of their places.

    Attributes:
        entries: see `Entry`.
        aliases: further names of tied tensors: each is the name of an entry that holds the same bytes.
    """

    entries: tuple[Entry, ...]
    aliases: dict[str, str] = {}

    @property
    def nbytes(self) -> int:
        """Length of the arena, gaps included."""
        return aligned(max((entry.end for entry in self.entries), default=0))

    @property
    def names(self) -> set[str]:
        """Every name, tied ones included."""
        return {*(entry.name for entry in self.entries), *self.aliases}

    def to_bytes(self) -> bytes:
        """As it travels."""
        return msgspec.msgpack.encode(self, order="deterministic")

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Reads and checks one that came in.

        Raises:
            TransferError: it is none, or its places overlap, are not aligned, or a tied name leads nowhere.
        """
        try:
            manifest = msgspec.msgpack.decode(data, type=cls)
        except msgspec.DecodeError as error:
            raise TransferError(Reason.MISMATCH, f"not a manifest: {error}") from None
        manifest.check()
        return manifest

    @property
    def digest(self) -> str:
        """SHA-256 of `to_bytes`: of names, types, shapes, places and ties."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def check(self) -> None:
        """Raises: TransferError: see `from_bytes`."""
        end, seen = 0, set[str]()
        for entry in self.entries:
            if entry.dtype not in ITEM_BYTES or any(size < 0 for size in entry.shape):
                raise TransferError(Reason.MISMATCH, f"{entry.name}: {entry.dtype}{list(entry.shape)} is no tensor")
            if entry.offset % ALIGN or entry.offset < end:
                raise TransferError(
                    Reason.MISMATCH, f"{entry.name}: its place {entry.offset} is not free or not aligned"
                )
            if entry.name in seen:
                raise TransferError(Reason.MISMATCH, f"{entry.name} is there twice")
            end = entry.end
            seen.add(entry.name)
        for alias, name in self.aliases.items():
            if name not in seen or alias in seen:
                raise TransferError(Reason.MISMATCH, f"{alias} is tied to {name}, which is no other tensor here")

    def buckets(self, nbytes: int) -> tuple[Bucket, ...]:
        """Cuts the arena into frames of at most `nbytes`, which has to be a multiple of `ALIGN`.

        A tensor that is larger than a frame goes in several; empty tensors are in none and need no bytes.
        """
        if nbytes < ALIGN or nbytes % ALIGN:
            raise ValueError(f"a bucket has a multiple of {ALIGN} bytes, not {nbytes}")
        filled = [(index, entry) for index, entry in enumerate(self.entries) if entry.nbytes]
        found, at, whole = [], 0, self.nbytes
        for sequence, start in enumerate(range(0, whole, nbytes)):
            stop = min(start + nbytes, whole)
            while at < len(filled) and filled[at][1].end <= start:
                at += 1
            inside = [index for index, _ in _until(filled, at, stop)]
            first, count = (inside[0], inside[-1] - inside[0] + 1) if inside else (0, 0)
            found.append(Bucket(sequence, start, stop, first, count))
        return tuple(found)


def _until(filled: Sequence[tuple[int, Entry]], at: int, stop: int) -> Iterator[tuple[int, Entry]]:
    """From `at` on, those that begin before `stop`."""
    while at < len(filled) and filled[at][1].offset < stop:
        yield filled[at]
        at += 1


def aligned(nbytes: int) -> int:
    """The next multiple of `ALIGN`."""
    return -(-nbytes // ALIGN) * ALIGN


def lay_out(tensors: Iterable[tuple[str, str, tuple[int, ...]]], aliases: Mapping[str, str] = {}) -> Manifest:
    """Gives every tensor its place, in the given order.

    Args:
        tensors: name, type (a key of `ITEM_BYTES`) and shape of each.
        aliases: see `Manifest`.
    """
    entries, offset = [], 0
    for name, dtype, shape in tensors:
        entry = Entry(name, dtype, shape, offset)
        entries.append(entry)
        offset = aligned(entry.end)
    manifest = Manifest(tuple(entries), dict(aliases))
    manifest.check()
    return manifest
