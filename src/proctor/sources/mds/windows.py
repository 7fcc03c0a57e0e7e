"""The bytes of a shard as decoding needs them: for each block of rows, a window that holds the rows of that block."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from proctor.rows import ErrorKind
from proctor.sources.mds.cells import Bytes, Ints
from proctor.sources.mds.layout import ShardError

if TYPE_CHECKING:
    from proctor.storage.ahead import Job
    from proctor.storage.remote import Remote, RemoteError, Stat
    from proctor.storage.scratch import Sink

_GAP = 256 << 10
"""Bytes that come along with what is wanted about as fast as another request would be answered."""


class Window(NamedTuple):
    """Bytes that hold some rows, and where each row starts in them (0 for a row without bytes)."""

    data: Bytes
    starts: Ints


class ShardData(Protocol):
    """The uncompressed bytes of a shard file."""

    @property
    def size(self) -> int:
        """How many there are."""

    @property
    def gap(self) -> int:
        """Most bytes between two wanted rows that are taken along with them."""

    def windows(self, blocks: Sequence[tuple[Ints, Ints]]) -> Iterator[Window]:
        """A window for each block of rows, which is given by its rows' starts and ends in the file.

        Raises:
            ShardError: the bytes cannot be had. Windows before that are sound.
        """


@dataclass(frozen=True, slots=True)
class MappedData:
    """A file mapped into memory: a window is a part of the map, and is not read before it is looked at."""

    data: Bytes

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return len(self.data)

    @property
    def gap(self) -> int:
        """Nothing is taken along: what lies between rows is never touched."""
        return 0

    def windows(self, blocks: Sequence[tuple[Ints, Ints]]) -> Iterator[Window]:
        """Parts of the map. Rows may lie in any order, and over one another."""
        for starts, ends in blocks:
            wide = np.flatnonzero(ends > starts)
            low = int(starts[wide].min()) if len(wide) else 0
            high = int(ends[wide].max()) if len(wide) else 0
            yield Window(self.data[low:high], np.where(ends > starts, starts - low, 0))


@dataclass(frozen=True, slots=True)
class RangedData:
    """A file below a URL, of which only the rows that are wanted are fetched, straight into the windows.

    A window is made of stretches: rows with small gaps between them. Each takes one request, or several if it is larger
    than a request may be. While a window is decoded, what comes after it is on its way. All requests are for the file
    in the state `seen`: another one that takes its place is noticed.
    """

    remote: Remote
    name: str
    seen: Stat

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.seen.size

    @property
    def gap(self) -> int:
        """Small gaps are fetched."""
        return _GAP

    def head(self, size: int) -> Bytes:
        """The first `size` bytes.

        Raises:
            ShardError: they cannot be had.
        """
        (window,) = self.windows([(np.array([0]), np.array([size]))])
        return window.data

    def copy(self, to: Sink) -> None:
        """Writes the whole file, request by request.

        Raises:
            ShardError: it cannot be had.
        """
        from proctor.storage.remote import PIECE_BYTES

        cuts = np.append(np.arange(0, self.size, PIECE_BYTES), self.size)
        for window in self.windows([(cuts[n : n + 1], cuts[n + 1 : n + 2]) for n in range(len(cuts) - 1)]):
            to.write(window.data.data)

    def windows(self, blocks: Sequence[tuple[Ints, Ints]]) -> Iterator[Window]:
        """Windows that are fetched. Rows must be in order, without overlap."""
        from proctor.storage.ahead import ahead

        plans = [_plan(starts, ends) for starts, ends in blocks]
        with closing(ahead(self._jobs(plans))) as arrivals:
            for plan in plans:
                data = np.zeros(0, np.uint8)
                for _ in plan.requests:
                    data = next(arrivals)
                yield Window(data, plan.starts)
                del data

    def _jobs(self, plans: Sequence[_Plan]) -> Iterator[Job[Bytes]]:
        from proctor.storage.ahead import Job

        for plan in plans:
            window = np.empty(plan.size, np.uint8)
            for request in plan.requests:
                yield Job(request.size, partial(self._receive, window, request))
            del window  # what was fetched is held by its job

    def _receive(self, window: Bytes, request: _Request, given_up: threading.Event) -> Bytes:
        from proctor.storage.remote import RemoteError

        target = window.data[request.place : request.place + request.size]
        try:
            self.remote.read_into(self.name, request.start, target, self.seen.tag, given_up)
        except RemoteError as error:
            raise shard_error(error) from None
        return window


class _Request(NamedTuple):
    """A range of the file, and where it goes in the window."""

    start: int
    size: int
    place: int


class _Plan(NamedTuple):
    """How a window is fetched."""

    requests: list[_Request]
    size: int
    starts: Ints


def _plan(starts: Ints, ends: Ints) -> _Plan:
    from proctor.storage.remote import PIECE_BYTES

    wide = np.flatnonzero(ends > starts)
    if len(wide) == 0:
        return _Plan([], 0, np.zeros(len(starts), np.int64))
    first, last = starts[wide], ends[wide]
    breaks = np.flatnonzero(first[1:] - last[:-1] > _GAP)
    heads, tails = first[np.append(0, breaks + 1)], last[np.append(breaks, len(last) - 1)]
    places = np.cumsum(tails - heads) - (tails - heads)
    moved = np.zeros(len(starts), np.int64)
    stretch = np.searchsorted(heads, first, side="right") - 1
    moved[wide] = first - heads[stretch] + places[stretch]
    requests = [
        _Request(at, min(PIECE_BYTES, tail - at), place + at - head)
        for head, tail, place in zip(heads.tolist(), tails.tolist(), places.tolist(), strict=True)
        for at in range(head, tail, PIECE_BYTES)
    ]
    return _Plan(requests, int((tails - heads).sum()), moved)


def shard_error(error: RemoteError) -> ShardError:
    """What a file that cannot be had means for its rows."""
    # Who is denied may be granted access later: that is the infrastructure's fault and not the row's.
    kind = ErrorKind.READ_MISSING if error.reason == "missing" else ErrorKind.READ_FAILED
    return ShardError(kind, error.message)
