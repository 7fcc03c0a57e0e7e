"""Memory that processes of one node share: reserved at once, sealed when it is complete, gone with its last user.

The maker creates an arena, writes, seals it, and hands on its `path`; readers attach and look at the bytes where they
are. Needs no torch.

Lifetime: nobody ever unmaps. `Arena.close` closes the descriptor and lets go of the mapping, and the interpreter
unmaps it when the last view of it (memoryview, numpy array, tensor) is gone. So a view that outlives `close`, the
arena, its maker, or all of them reads what it always read, never freed memory.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Iterator, Sequence
from typing import Literal, Self, final

import numpy as np
from typing_extensions import override

from proctor.transfer import memory
from proctor.transfer.closing import Closing
from proctor.transfer.errors import Reason, TransferError

Access = Literal["sealed", "read", "write"]
"""How an arena is attached to.

``sealed``: only one that is sealed; whoever writes to its view writes to a copy of the page of its own.
``read``: one that its maker may still write to; what is read may change at any time. Views are read-only.
``write``: as its maker.
"""

_MOST_PARTS = 1024
"""As many as one system call takes (IOV_MAX)."""


@final
class Arena(Closing):
    """A range of shared memory. Made by `create` or `attach`.

    Attributes:
        nbytes: its length.
    """

    def __init__(self, fd: int, nbytes: int, access: Access, mapping: mmap.mmap | None = None) -> None:
        self.nbytes = nbytes
        self._fd, self._access = fd, access
        self._mapped_only = mapping is not None
        self._map = mapping
        self._shut = weakref.finalize(self, os.close, fd)

    @classmethod
    def create(cls, nbytes: int, *, name: str = "proctor", prefault: bool = False) -> Self:
        """Reserves memory, filled with zeros. It is for writing until it is sealed.

        Args:
            nbytes: its length, at least 1; it cannot change later.
            name: what ``/proc`` shows beside its descriptor.
            prefault: make every page now, which takes as long as writing them twice; `write` is then as fast as a
                memory copy can be. For an arena that is made ahead of its use, or used again and again.

        Raises:
            UserError: there is no room.
        """
        fd = memory.make(nbytes, name)
        try:
            mapping = memory.populated(fd, nbytes) if prefault else None
        except BaseException:
            os.close(fd)
            raise
        return cls(fd, nbytes, "write", mapping)

    @classmethod
    def attach(cls, path: str, access: Access = "sealed") -> Self:
        """Opens the arena of another process (or of this one) by its `path`; a millisecond, whatever its length.

        Raises:
            UserError: the path is none of an arena, or belongs to another user.
            TransferError: ``DEAD``: it is gone; ``MISMATCH``: there is something else, or it is not sealed yet.
        """
        needed = memory.FROZEN if access == "sealed" else memory.SIZED
        fd = memory.find(path, needed=needed, writable=access == "write")
        return cls(fd, os.fstat(fd).st_size, access)

    @property
    def path(self) -> str:
        """By which processes of the same user attach, as long as this arena is open here."""
        self._check_open()
        return memory.path_of(self._fd)

    @property
    def sealed(self) -> bool:
        """Whether nobody can write to it any more."""
        self._check_open()
        return memory.seals(self._fd) & memory.FROZEN == memory.FROZEN

    @property
    def buffer(self) -> memoryview:
        """All its bytes, where they are. Of an arena that is sealed: writable, but every page that is written to
        becomes this process's own (torch warns about views that are not writable)."""
        return memoryview(self._mapping())

    def write(self, offset: int, parts: Sequence[memoryview]) -> None:
        """Writes parts one behind the other, from `offset` on. Threads may write to different places at once.

        Through the descriptor, unless the pages are there already: that is more than twice as fast as through a
        mapping of pages that are not.

        Raises:
            ValueError: it does not fit.
            TransferError: the arena is sealed.
        """
        self._check_open()
        nbytes = sum(part.nbytes for part in parts)
        if offset < 0 or offset + nbytes > self.nbytes:
            raise ValueError(f"bytes {offset} .. {offset + nbytes} are not in an arena of {self.nbytes}")
        if self._access != "write":
            raise TransferError(Reason.EXCEPTION, "the arena is not open for writing")
        if self._mapped_only:
            self._copy(offset, parts)
        else:
            try:
                _write_all(self._fd, offset, [part.cast("B") for part in parts if part.nbytes])
            except PermissionError:
                raise TransferError(Reason.EXCEPTION, "another process has sealed the arena") from None

    def seal(self) -> None:
        """Makes it final, for this process, too. What is sealed stays as it is while anybody has it.

        Raises:
            TransferError: it is mapped for writing: by a view that somebody here still has, or in another process.
        """
        self._check_open()
        self._map = None
        memory.freeze(self._fd)
        self._access, self._mapped_only = "sealed", False

    def keep_to_myself(self) -> None:
        """From now on nobody else opens or maps it for writing; this object still writes, through its mapping.

        Raises:
            TransferError: it is sealed, or not open for writing.
        """
        if self._access != "write" or self.sealed:
            raise TransferError(Reason.EXCEPTION, "the arena is not open for writing")
        self._mapping()
        memory.forbid_others(self._fd)
        self._mapped_only = True

    def prefetch(self) -> None:
        """Makes all pages known to this process now, not at their first touch."""
        mapping = self._mapping()
        try:
            mapping.madvise(_MADV_POPULATE_READ)
        except OSError:  # Linux before 5.14
            np.frombuffer(mapping, np.uint8)[:: mmap.PAGESIZE].max()

    @override
    def close(self) -> None:
        """Lets go of it. Views stay what they are; see above."""
        self._map = None
        self._shut()

    def _mapping(self) -> mmap.mmap:
        self._check_open()
        if self._map is None:
            self._map = _mapped(self._fd, self.nbytes, self._access)
        return self._map

    def _copy(self, offset: int, parts: Sequence[memoryview]) -> None:
        target = np.frombuffer(self.buffer, np.uint8)
        for part in parts:
            # numpy lets other threads run meanwhile, and a memoryview does not.
            np.copyto(target[offset : offset + part.nbytes], np.frombuffer(part, np.uint8))
            offset += part.nbytes

    def _check_open(self) -> None:
        if not self._shut.alive:
            raise ValueError("the arena is closed")


_MADV_POPULATE_READ = 22
"""Of the kernel's interface; Python has no name for it."""


def _mapped(fd: int, nbytes: int, access: Access) -> mmap.mmap:
    if access == "sealed":
        return mmap.mmap(fd, nbytes, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    prot = mmap.PROT_READ | (mmap.PROT_WRITE if access == "write" else 0)
    return mmap.mmap(fd, nbytes, flags=mmap.MAP_SHARED, prot=prot)


def _write_all(fd: int, offset: int, parts: list[memoryview]) -> None:
    for batch in _batches(parts):
        while batch:
            written = os.pwritev(fd, batch, offset)
            offset += written
            while batch and written >= batch[0].nbytes:
                written -= batch.pop(0).nbytes
            if written:
                batch[0] = batch[0][written:]


def _batches(parts: list[memoryview]) -> Iterator[list[memoryview]]:
    for start in range(0, len(parts), _MOST_PARTS):
        yield parts[start : start + _MOST_PARTS]
