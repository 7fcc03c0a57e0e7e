"""Who holds which slots, and until when. Moves no byte and reads no clock but its own, so tests can turn it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final


@dataclass(slots=True)
class Lease:
    """Slots that hold one block.

    Attributes:
        request: the block's request.
        number: of the lease, from 1; never used again.
        slots: the slots, in the order of the block's pieces.
        generations: which generation each slot is in.
        until: end on the ledger's clock, seconds.
        owner: the receiver it was offered to; empty before.
    """

    request: str
    number: int
    slots: tuple[int, ...]
    generations: tuple[int, ...]
    until: float
    owner: bytes = b""


@final
class Ledger:
    """Leases of slots.

    Args:
        slots: how many there are.
        seconds: length of a lease; a heartbeat makes it last so long from then on (30 s in NIXL).
        clock: monotonic seconds.

    Attributes:
        late: notifications about leases that were over (expired or ended) when they came.
    """

    def __init__(self, slots: int, seconds: float, clock: Callable[[], float]) -> None:
        self.slots, self.seconds = slots, seconds
        self._clock = clock
        self._free = list(range(slots - 1, -1, -1))
        self._generations = [0] * slots
        self._leases: dict[str, Lease] = {}
        self._number = 0
        self.late = 0

    @property
    def free(self) -> int:
        """How many slots nobody holds."""
        return len(self._free)

    @property
    def held(self) -> int:
        """How many leases there are."""
        return len(self._leases)

    @property
    def next_end(self) -> float | None:
        """When the next lease ends; None without leases."""
        return min((lease.until for lease in self._leases.values()), default=None)

    def grant(self, request: str, count: int) -> Lease | None:
        """Takes `count` slots for a new block, all or none; None if so many are not free.

        Raises:
            ValueError: the request has a lease.
        """
        if request in self._leases:
            raise ValueError(f"{request} has a lease")
        if count > len(self._free):
            return None
        slots = tuple(self._free.pop() for _ in range(count))
        for slot in slots:
            self._generations[slot] += 1
        self._number += 1
        lease = Lease(
            request, self._number, slots, tuple(self._generations[slot] for slot in slots), self._clock() + self.seconds
        )
        self._leases[request] = lease
        return lease

    def find(self, request: str) -> Lease | None:
        """The request's lease if it holds now."""
        lease = self._leases.get(request)
        return lease if lease is not None and self._clock() < lease.until else None

    def beat(self, request: str, owner: bytes) -> None:
        """Extends a lease that holds and is the owner's; one that is over stays over."""
        lease = self.find(request)
        if lease is not None and lease.owner == owner:
            lease.until = self._clock() + self.seconds

    def finish(self, request: str, number: int, owner: bytes) -> Lease | None:
        """The owner has copied the block: ends the lease if it holds now, else counts a late notification.

        Returns:
            The lease, or None if it was over: what was copied must not be used then.
        """
        lease = self.find(request)
        if lease is None or lease.number != number or lease.owner != owner:
            self.late += 1
            return None
        return self.end(request)

    def end(self, request: str) -> Lease | None:
        """Ends a lease, whatever its state; None if there is none."""
        lease = self._leases.pop(request, None)
        if lease is not None:
            self._free.extend(lease.slots)
        return lease

    def expired(self) -> list[Lease]:
        """Ends the leases whose time is over, and returns them."""
        now = self._clock()
        over = [lease for lease in self._leases.values() if now >= lease.until]
        for lease in over:
            self.end(lease.request)
        return over

    def of(self, owner: bytes) -> list[Lease]:
        """The leases of one receiver."""
        return [lease for lease in self._leases.values() if lease.owner == owner]
