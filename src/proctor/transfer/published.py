"""Weights of one checkpoint in sealed shared memory, which any process of the node attaches to without a copy.

Layout: ``prefix | head | gap | data``. The data begins at a page, and a tensor lies where the manifest says. The prefix
(magic, version, where head and data are, XXH3-64 of the head) is written last, and then the memory is sealed; nothing
that lacks either is readable, so nothing half-written ever is. A sealed arena cannot change, not even by its maker.

Needs no torch, but for `Published.tensors` and for `proctor.transfer.publishing`.
"""

from __future__ import annotations

import mmap
import struct
from array import array
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Self, final

import msgspec
import numpy as np
import xxhash
from typing_extensions import override

from proctor.transfer.arena import Arena
from proctor.transfer.closing import Closing
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.identity import content_id
from proctor.transfer.manifest import ALIGN, Bucket, Manifest
from proctor.transfer.sums import rolling

if TYPE_CHECKING:
    import torch

BUCKET_BYTES = 16 << 20
"""What one checksum covers, and what is read or written at once."""
VERSION = 1
_MAGIC = b"PROCTORW"
_PREFIX = struct.Struct("<8sQQQQ")
_CHUNK = 1 << 20
"""Bytes that are summed and then written while they are still in the processor's cache."""


class Label(NamedTuple):
    """Which checkpoint it is.

    Attributes:
        name: what people call it; for messages.
        content: see `identity.content_id`.
    """

    name: str
    content: str


class _Head(msgspec.Struct, frozen=True, array_like=True):
    """Its length depends on name and manifest only, so that there is room for it before the sums are known."""

    name: str
    content: bytes
    bucket_bytes: int
    manifest: bytes
    sums: bytes
    rolling: bytes


@final
class Draft:
    """Weights on their way into shared memory, bucket by bucket, in any order and from several threads.

    Args:
        manifest: the tensors and their places, in the order of their names (see `identity.content_id`).
        name: what people call the checkpoint.
        files: content of the files that belong to it, by name; only the content id depends on them.
        prefault: see `Arena.create`: worth it for a draft that is made ahead.

    Attributes:
        buckets: what has to be `put`, each of them once.

    Raises:
        UserError: there is no room for it.
    """

    def __init__(
        self, manifest: Manifest, *, name: str = "", files: Mapping[str, bytes] = {}, prefault: bool = False
    ) -> None:
        self.manifest = manifest
        self.name = name.encode(errors="replace").decode()  # names of files may be no text
        self.buckets = manifest.buckets(BUCKET_BYTES)
        self._files = dict(files)
        self._sums: list[int | None] = [None] * len(self.buckets)
        self._head_bytes = len(self._head([0] * len(self.buckets)))
        self._start = -(-(_PREFIX.size + self._head_bytes) // mmap.PAGESIZE) * mmap.PAGESIZE
        self._arena = Arena.create(self._start + manifest.nbytes, name="proctor-weights", prefault=prefault)

    def put(self, bucket: Bucket, parts: Sequence[memoryview]) -> None:
        """Writes a bucket: its bytes in several parts, one behind the other, gaps included as zeros.

        Raises:
            ValueError: the parts are not as long as the bucket.
        """
        if sum(part.nbytes for part in parts) != bucket.nbytes:
            raise ValueError(f"bucket {bucket.sequence} has {bucket.nbytes} bytes, and these parts have others")
        state, offset = xxhash.xxh3_64(), self._start + bucket.start
        group: list[memoryview] = []
        waiting = 0
        for part in parts:
            for at in range(0, part.nbytes, _CHUNK):
                chunk = part[at : at + _CHUNK]
                state.update(chunk)
                group.append(chunk)
                waiting += chunk.nbytes
                if waiting >= _CHUNK:
                    self._arena.write(offset, group)
                    offset, group, waiting = offset + waiting, [], 0
        self._arena.write(offset, group)
        self._sums[bucket.sequence] = state.intdigest()

    def finish(self) -> Published:
        """Writes the head, seals, and so makes it readable. The draft is used up.

        Raises:
            RuntimeError: a bucket is missing.
        """
        sums = [checksum for checksum in self._sums if checksum is not None]
        if len(sums) != len(self._sums):
            raise RuntimeError(f"{len(self._sums) - len(sums)} of {len(self._sums)} buckets were never put")
        head = self._head(sums)
        prefix = _PREFIX.pack(_MAGIC, VERSION, len(head), self._start, xxhash.xxh3_64_intdigest(head))
        self._arena.write(_PREFIX.size, [memoryview(head)])
        self._arena.write(0, [memoryview(prefix)])
        self._arena.seal()
        return Published(self._arena)

    def close(self) -> None:
        """Gives the memory back: for a draft that will not be finished."""
        self._arena.close()

    def _head(self, sums: list[int]) -> bytes:
        content = content_id(self.manifest, BUCKET_BYTES, sums, self._files).encode()
        whole = rolling(self.manifest.digest, sums).to_bytes(8, "little")
        packed = b"".join(checksum.to_bytes(8, "little") for checksum in sums)
        head = _Head(self.name, content, BUCKET_BYTES, self.manifest.to_bytes(), packed, whole)
        return msgspec.msgpack.encode(head)


@final
class Published(Closing):
    """Weights that are complete. As a context manager it is closed at the end.

    Views outlive `close`: see `proctor.transfer.arena`. Whoever made it keeps it open as long as others are to attach.

    Args:
        arena: sealed, with a head in it.

    Attributes:
        manifest: tensors, places and ties.
        label: which checkpoint it is.
        rolling: see `sums.rolling`; equal for equal tensors at equal places.

    Raises:
        TransferError: ``MISMATCH``: no weights, or of another version of this layout; ``CORRUPT``: the head is damaged.
    """

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._start, head = _read_head(arena.buffer)
        self.manifest = Manifest.from_bytes(head.manifest)
        self.label = Label(head.name, head.content.decode("ascii", "replace"))
        self.rolling = int.from_bytes(head.rolling, "little")
        self._sums = array("Q", head.sums) if len(head.sums) % 8 == 0 else array("Q")
        if head.bucket_bytes < ALIGN or head.bucket_bytes % ALIGN:
            raise TransferError(Reason.CORRUPT, f"the head tells buckets of {head.bucket_bytes} bytes")
        self.buckets = self.manifest.buckets(head.bucket_bytes)
        fits = self._start + self.manifest.nbytes <= arena.nbytes and not self._start % ALIGN
        if (
            not fits
            or len(self._sums) != len(self.buckets)
            or rolling(self.manifest.digest, self._sums) != self.rolling
        ):
            raise TransferError(Reason.CORRUPT, "the head does not fit the manifest in it")

    @classmethod
    def attach(cls, path: str, *, verify: bool = True) -> Self:
        """Opens weights by the path that their publisher told.

        Args:
            path: `Published.path`, as it was in the publisher's process.
            verify: read all the bytes and compare their checksums, too (several GB/s); the head is always checked.

        Raises:
            UserError: the path is none of shared memory, or it belongs to another user.
            TransferError: it is gone, not complete, no weights, or damaged.
        """
        arena = Arena.attach(path)
        try:
            published = cls(arena)
            if verify:
                published.verify()
        except BaseException:
            arena.close()
            raise
        return published

    @property
    def path(self) -> str:
        """By which processes of this user attach, as long as this object is open."""
        return self._arena.path

    @property
    def nbytes(self) -> int:
        """Length of the data, gaps included."""
        return self.manifest.nbytes

    @property
    def data(self) -> memoryview:
        """All tensors at the places of the manifest. Writing to it changes this process's own copy of the page."""
        return self._arena.buffer[self._start : self._start + self.nbytes]

    def tensors(self) -> dict[str, torch.Tensor]:
        """Every tensor by name, as views: no copy. Ties share one tensor object.

        They can be written to, and then only this process sees it, in every view it has of this object.
        """
        import torch

        from proctor.transfer.tensors import views

        # Over numpy: a tensor made of the mapping itself would not keep it from being unmapped.
        flat = (
            torch.from_numpy(np.frombuffer(self.data, np.uint8)) if self.nbytes else torch.empty(0, dtype=torch.uint8)
        )
        return views(flat, self.manifest)

    def verify(self) -> None:
        """Compares every bucket, as this process sees it, with its checksum.

        Raises:
            TransferError: ``CORRUPT``, with the tensors that lie there.
        """
        data = self.data
        for bucket, told in zip(self.buckets, self._sums, strict=True):
            if xxhash.xxh3_64_intdigest(data[bucket.start : bucket.stop]) != told:
                inside = self.manifest.entries[bucket.first : bucket.first + bucket.count]
                names = ", ".join(entry.name for entry in inside[:3]) + (" ..." if len(inside) > 3 else "")
                raise TransferError(Reason.CORRUPT, f"{self.label.name or 'weights'}: checksum differs at {names}")

    def prefetch(self) -> None:
        """See `Arena.prefetch`."""
        self._arena.prefetch()

    @override
    def close(self) -> None:
        """Lets go of it. The memory is free when nobody has it open and no view is left, in any process."""
        self._arena.close()


def _read_head(buffer: memoryview) -> tuple[int, _Head]:
    """Start of the data, and the head."""
    if buffer.nbytes < _PREFIX.size:
        raise TransferError(Reason.MISMATCH, "no published weights")
    magic, version, length, start, told = _PREFIX.unpack_from(buffer)
    if magic != _MAGIC:
        raise TransferError(Reason.MISMATCH, "no published weights")
    if version != VERSION:
        raise TransferError(Reason.MISMATCH, f"weights of layout {version}, and this is layout {VERSION}")
    head = buffer[_PREFIX.size : _PREFIX.size + length]
    if _PREFIX.size + length > start or start > buffer.nbytes or xxhash.xxh3_64_intdigest(head) != told:
        raise TransferError(Reason.CORRUPT, "the head is damaged")
    try:
        return start, msgspec.msgpack.decode(head, type=_Head)
    except msgspec.DecodeError as error:
        raise TransferError(Reason.CORRUPT, f"the head cannot be read: {error}") from None
