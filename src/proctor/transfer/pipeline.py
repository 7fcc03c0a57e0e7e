"""The loop of the publisher: pack a bucket while the one before is on its way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol, final, runtime_checkable

from proctor.transfer.links.base import Link
from proctor.transfer.manifest import Bucket
from proctor.transfer.patience import patiently
from proctor.transfer.slots import Held, Ring


@runtime_checkable
class Timed(Protocol):
    """A link that knows how long it has been busy since it was made."""

    def busy_seconds(self) -> float:
        """Seconds in which at least one bucket was on its way."""


class Timing(NamedTuple):
    """What the loop took, in seconds.

    Attributes:
        seconds: from the first bucket to the end of the last one.
        pack: packing and checksums.
        send: in which the link was busy; None if the link does not know.
    """

    seconds: float
    pack: float
    send: float | None

    @property
    def hidden(self) -> float | None:
        """Share of the shorter one, of packing and sending, that took no time of its own: 0 with one buffer, near 1
        with two. None if it is not known, or there was nothing."""
        if self.send is None or min(self.pack, self.send) <= 0:
            return None
        return (self.pack + self.send - self.seconds) / min(self.pack, self.send)


@final
class Pipeline:
    """One epoch's loop.

    Args:
        ring: the slots.
        link: carries them.
        pack: fills a slot with a bucket, and waits until it is full; returns its checksum.
        announce: tells all sides of the next bucket and its checksum.
        watch: raises if the epoch has failed elsewhere.
        patience: seconds that one wait takes at most.
        clock: seconds; another one in tests.
    """

    def __init__(
        self,
        ring: Ring,
        link: Link,
        *,
        pack: Callable[[Bucket, Held], int],
        announce: Callable[[Bucket, int], None],
        watch: Callable[[], None],
        patience: float,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._ring, self._link = ring, link
        self._pack, self._announce, self._watch = pack, announce, watch
        self._patience, self._clock = patience, clock

    def run(self, buckets: Iterable[Bucket]) -> Timing:
        """Sends all of them; when this returns nothing is on its way any more.

        Raises:
            TransferError: the epoch has failed.
        """
        begun, packing, busy = self._clock(), 0.0, self._busy()
        for bucket in buckets:
            with patiently(self._ring.next, time.monotonic() + self._patience, self._watch) as held:
                start = self._clock()
                checksum = self._pack(bucket, held)
                packing += self._clock() - start
                self._announce(bucket, checksum)
                self._link.send(held, bucket.nbytes)
        patiently(self._ring.drain, time.monotonic() + self._patience, self._watch)
        after = self._busy()
        send = after - busy if busy is not None and after is not None else None
        return Timing(self._clock() - begun, packing, send)

    def _busy(self) -> float | None:
        return self._link.busy_seconds() if isinstance(self._link, Timed) else None
