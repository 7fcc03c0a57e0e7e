"""What the sender's thread knows and decides: which block is where, who wants it, and how each request ends.

Every request ends exactly once, as delivered or with a reason, and its slots are free then. One id is one try: a block
under an id that has ended is refused, so a message about an old try can never meet a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import msgspec
import torch

from proctor.transfer.devices.base import Event, Stream
from proctor.transfer.devices.cpu import HostEvent
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.kv import wire
from proctor.transfer.kv.block import Cut, write
from proctor.transfer.kv.ledger import Lease, Ledger
from proctor.transfer.kv.memory import Memory
from proctor.transfer.kv.outbox import Outbox

Say = Callable[[bytes, wire.ToReceiver, Sequence[memoryview]], bool]
"""Sends a message and what goes beside it to a receiver; False if that one is gone."""


@dataclass(slots=True)
class Parcel:
    """A block that waits for its slots.

    Attributes:
        ready: over when the block's tensors are written.
        ended: set when it is delivered, failed with the reason otherwise.
    """

    request: str
    tokens: tuple[int, ...]
    position: int
    cut: Cut
    ready: Event
    ended: HostEvent


class _Shelved(NamedTuple):
    """A block in its slots: the offer that will be made for it, but for whether the pieces go beside it."""

    offer: wire.Offer
    ended: HostEvent


@dataclass(slots=True)
class _Wish:
    owner: bytes
    beside: bool
    until: float


class _Ending(NamedTuple):
    until: float
    reason: Reason
    message: str
    rank: str


@final
class Desk:
    """Belongs to one thread.

    Args:
        ledger: who holds which slots; its clock is the desk's.
        memory: the slots.
        outbox: blocks that come in.
        stream: copies go over it.
        say: sends a message.
        rank: the sender's name.
    """

    def __init__(
        self,
        ledger: Ledger,
        memory: Memory,
        outbox: Outbox[Parcel],
        stream: Stream,
        say: Say,
        *,
        rank: str,
        clock: Callable[[], float],
    ) -> None:
        self._ledger, self._memory, self._outbox, self._stream = ledger, memory, outbox, stream
        self._say, self._rank, self._clock = say, rank, clock
        self._shelf: dict[str, _Shelved] = {}
        self._wishes: dict[str, _Wish] = {}
        self._over: dict[str, _Ending] = {}
        self.counts = {"delivered": 0, "expired": 0, "aborted": 0, "sent_bytes": 0}

    @property
    def waiting(self) -> int:
        """Wishes for blocks that are not there yet."""
        return len(self._wishes)

    def fetch(self, owner: bytes, asked: wire.Fetch) -> None:
        """A receiver wants a block."""
        self.expire()
        request = asked.request
        other = self._owner(request)
        if request in self._over:
            self._repeat(owner, request)
        elif other and other != owner:
            self._say(owner, self._gone(request, 0, Reason.MISMATCH, "another receiver has asked for it"), ())
        elif request in self._shelf:
            self._offer(request, owner, beside=asked.beside)
        else:
            self._wishes[request] = _Wish(owner, asked.beside, self._clock() + self._ledger.seconds)

    def done(self, owner: bytes, said: wire.Done) -> None:
        """A receiver has copied a block; whether it may use it depends on the lease."""
        self.expire()
        lease = self._ledger.finish(said.request, said.lease, owner)
        if lease is None:
            self._repeat(owner, said.request, said.lease)
            return
        self._retire(lease)
        shelved = self._shelf.pop(said.request)
        self._note(said.request, Reason.MISMATCH, "it has been delivered", "")
        self.counts["delivered"] += 1
        shelved.ended.set()
        self._say(owner, wire.Freed(said.request, said.lease), ())

    def beat(self, owner: bytes, said: wire.Beat) -> None:
        """A receiver lives: what it wants holds on; what has ended meanwhile it is told again."""
        self.expire()
        for request in said.requests:
            self._ledger.beat(request, owner)
            wish = self._wishes.get(request)
            if wish is not None and wish.owner == owner:
                wish.until = self._clock() + self._ledger.seconds
            if request in self._over:
                self._repeat(owner, request)
        self._say(owner, wire.Alive(), ())

    def cancel(self, owner: bytes, said: wire.Cancel, rank: str) -> None:
        """A receiver does not want a block any more, or could not use it; also before it is there."""
        self.expire()
        lease, other = self._ledger.find(said.request), self._owner(said.request)
        stale = said.request in self._over or (said.lease and (lease is None or lease.number != said.lease))
        if stale or other not in (b"", owner):
            self._ledger.late += 1
            return
        self._end(said.request, said.reason, said.message, rank, tell=False)

    def drop(self, owner: bytes, reason: Reason, message: str, rank: str) -> None:
        """A receiver is gone, and with it all that it wanted."""
        for lease in self._ledger.of(owner):
            self._end(lease.request, reason, message, rank, tell=False)
        for request in [request for request, wish in self._wishes.items() if wish.owner == owner]:
            del self._wishes[request]

    def cancel_here(self, request: str, message: str = "cancelled by the sender") -> None:
        """The sender's side gives a request up, wherever it is."""
        if request not in self._over:
            self._end(request, Reason.CANCELLED, message, self._rank)

    def expire(self) -> None:
        """Ends what has run out."""
        for lease in self._ledger.expired():
            self._retire(lease)
            self._end(lease.request, Reason.EXPIRED, self._ran_out(), self._rank, owner=lease.owner)
        now = self._clock()
        for request in [request for request, wish in self._wishes.items() if now >= wish.until]:
            self._end(request, Reason.EXPIRED, self._ran_out(), self._rank)
        for request in [request for request, ending in self._over.items() if now >= ending.until]:
            del self._over[request]

    def admit(self) -> bool:
        """Moves blocks from the queue into slots, in order, while there is room.

        Returns:
            Whether the first block only waits for its tensors to be written, of which nobody will tell.
        """
        while (parcel := self._outbox.first()) is not None:
            ending = self._over.get(parcel.request)
            if ending is not None or parcel.request in self._shelf:
                self._outbox.take(parcel.request)
                parcel.ended.fail(_refused(parcel.request, ending))
                continue
            if not parcel.ready.done():
                return True
            lease = self._ledger.grant(parcel.request, len(parcel.cut.pieces))
            if lease is None:
                return False
            self._shelve(parcel, lease)
        return False

    def close(self, error: TransferError) -> None:
        """Ends everything."""
        for parcel in self._outbox.end(error):
            parcel.ended.fail(error)
        for request in [*self._shelf, *self._wishes]:
            self._end(request, error.reason, error.message, self._rank)

    def _shelve(self, parcel: Parcel, lease: Lease) -> None:
        try:
            parcel.ready.wait()
            pieces = self._write(parcel.cut, lease)
        except Exception as error:  # a tensor that cannot be read fails its request, not the thread
            self._end(parcel.request, Reason.EXCEPTION, f"the block could not be read: {error!r}", self._rank)
            return
        manifest = parcel.cut.manifest
        offer = wire.Offer(
            request=parcel.request, lease=lease.number, manifest=manifest.to_bytes(), manifest_sha256=manifest.digest,
            tokens=parcel.tokens, position=parcel.position, pieces=pieces, beside=False,
        )  # fmt: skip
        self._shelf[parcel.request] = _Shelved(offer, parcel.ended)
        self._outbox.take(parcel.request)
        wish = self._wishes.pop(parcel.request, None)
        if wish is not None:
            self._offer(parcel.request, wish.owner, beside=wish.beside)

    def _write(self, block: Cut, lease: Lease) -> tuple[wire.Piece, ...]:
        pieces = []
        for piece, slot, generation in zip(block.pieces, lease.slots, lease.generations, strict=True):
            self._memory.begin(slot)
            room = torch.from_numpy(self._memory.room(slot))
            xxh3 = write(block, piece, room, self._stream)
            self._memory.commit(slot, generation)
            pieces.append(wire.Piece(slot, generation, piece.nbytes, xxh3))
        return tuple(pieces)

    def _offer(self, request: str, owner: bytes, *, beside: bool) -> None:
        lease = self._ledger.find(request)
        if lease is None:
            raise RuntimeError(f"{request} is on the shelf without a lease")
        lease.owner = owner
        self._ledger.beat(request, owner)
        offer = self._shelf[request].offer
        if not beside:
            told = self._say(owner, offer, ())
        else:
            rooms = [self._memory.room(piece.slot)[: piece.nbytes].data for piece in offer.pieces]
            told = self._say(owner, msgspec.structs.replace(offer, beside=True), rooms)
        if not told:
            self._end(request, Reason.DEAD, "the receiver is gone", "", tell=False)
            return
        self.counts["sent_bytes"] += sum(piece.nbytes for piece in offer.pieces)

    def _end(
        self, request: str, reason: Reason, message: str, rank: str, *, owner: bytes = b"", tell: bool = True
    ) -> None:
        """A request has failed: frees what it holds, and tells both sides. For one that is unknown yet, notes it."""
        owner = owner or self._owner(request)
        lease = self._ledger.end(request)
        number = lease.number if lease is not None else 0
        if lease is not None:
            self._retire(lease)
        self._wishes.pop(request, None)
        shelved, parcel = self._shelf.pop(request, None), self._outbox.take(request)
        self._note(request, reason, message, rank)
        self.counts["expired" if reason is Reason.EXPIRED else "aborted"] += 1
        error = TransferError(reason, f"{request}: {message}", rank=rank)
        for ended in [held.ended for held in (shelved, parcel) if held is not None]:
            ended.fail(error)
        if tell and owner:
            self._say(owner, self._gone(request, number, reason, message), ())

    def _retire(self, lease: Lease) -> None:
        for slot in lease.slots:
            self._memory.begin(slot)

    def _owner(self, request: str) -> bytes:
        lease, wish = self._ledger.find(request), self._wishes.get(request)
        return lease.owner if lease is not None else wish.owner if wish is not None else b""

    def _note(self, request: str, reason: Reason, message: str, rank: str) -> None:
        self._over[request] = _Ending(self._clock() + self._ledger.seconds, reason, message, rank)

    def _repeat(self, owner: bytes, request: str, lease: int = 0) -> None:
        ending = self._over.get(request) or _Ending(0, Reason.EXPIRED, "its lease is over", self._rank)
        self._say(owner, self._gone(request, lease, ending.reason, ending.message), ())

    def _gone(self, request: str, lease: int, reason: Reason, message: str) -> wire.Gone:
        return wire.Gone(request, lease, self._rank, reason, message)

    def _ran_out(self) -> str:
        return f"nobody came or gave a sign of life for {self._ledger.seconds:g} s"


def _refused(request: str, ending: _Ending | None) -> TransferError:
    if ending is None:
        return TransferError(Reason.MISMATCH, f"{request} is being sent: one id is one try")
    return TransferError(ending.reason, f"{request}: {ending.message}", rank=ending.rank)
