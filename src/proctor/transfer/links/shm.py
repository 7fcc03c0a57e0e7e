"""Buckets through a ring of slots in shared memory, from a publisher to all receivers of its node.

The memory is the publisher's: nobody else can map it for writing. Beside it goes one Unix socket for each receiver, of
which nothing is left when processes are killed: `Go` says which bucket lies in which slot, `Taken` that it has been
read. A socket tells at once that the other side is dead, and orders memory on any processor, which counters that are
polled would not.

A slot is written again when every receiver has said `Taken`. With each slot goes its generation: odd while it is
written, even then. A receiver looks at it before and after it reads, so a slot that was written too early, whatever the
reason, is an error to it and never data.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, final

import msgspec
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from proctor.transfer.arena import Arena
from proctor.transfer.devices.base import Event, deadline_of
from proctor.transfer.devices.cpu import HostEvent
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.links.callers import Callers, call
from proctor.transfer.links.ends import PublishingEnd, ReceivingEnd
from proctor.transfer.links.host import host_bytes
from proctor.transfer.links.mapped import Go, Taken, hear, say
from proctor.transfer.owner import Owner
from proctor.transfer.patience import patiently
from proctor.transfer.slots import Held

PAGE = 4096
"""Slots begin at multiples of it; the generations are in the first one."""
SLOTS = 2
"""One is filled while the other is read. More of them gain nothing: see `slots.Ring`."""


class _Place(msgspec.Struct, frozen=True):
    """Where a ring lies: `Go.shared`, with its first bucket."""

    path: str
    stride: int


@final
class _Memory:
    """A ring as one side sees it."""

    def __init__(self, arena: Arena, stride: int) -> None:
        self.arena, self.stride = arena, stride
        self._bytes = np.frombuffer(arena.buffer, np.uint8)
        self.generations: NDArray[np.uint64] = self._bytes[: 8 * SLOTS].view(np.uint64)

    def slot(self, index: int, nbytes: int) -> NDArray[np.uint8]:
        start = PAGE + index * self.stride
        return self._bytes[start : start + nbytes]


class _Order(NamedTuple):
    data: memoryview
    packed: Event
    over: HostEvent
    deadline: float


@final
class ShmRing:
    """The publisher's ring, for many epochs. A thread of its own copies buckets into it.

    The memory is made with the first bucket, and made anew for one that is longer than any before.

    Args:
        receivers: their names, for errors.
        seconds: how long one bucket may take.
    """

    def __init__(self, receivers: Sequence[str], seconds: float = 60.0) -> None:
        self._seconds = seconds
        self._callers = Callers(receivers)
        self._taken = [0] * len(receivers)
        self._memory: _Memory | None = None
        self._number, self._busy = 0, 0.0
        self._failed: TransferError | None = None
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="proctor-ring", daemon=True)
        self._thread.start()

    def tickets(self) -> list[bytes]:
        """What the receivers need to join, in their order: see `ShmInlet`."""
        return self._callers.tickets

    def rename(self, names: Sequence[str]) -> None:
        """Other names for the same receivers, for errors."""
        self._callers.names = tuple(names)

    def put(self, data: memoryview, packed: Event, over: HostEvent) -> None:
        """Gives a bucket to the thread.

        Args:
            data: its bytes; they are read when `packed` is over.
            packed: see there.
            over: set when they have been copied, or failed.

        Raises:
            TransferError: the ring has failed before.
        """
        if self._failed is not None:
            raise self._failed
        self._orders.put(_Order(data, packed, over, time.monotonic() + self._seconds))

    def busy_seconds(self) -> float:
        """See `proctor.transfer.pipeline.Timed`."""
        return self._busy

    def close(self) -> None:
        """Fails what still waits, hangs up and ends the thread. What receivers have been told of stays readable."""
        self._failed = self._failed or TransferError(Reason.CANCELLED, "the link through shared memory is closed")
        self._orders.put(None)
        self._callers.hang_up()
        if threading.current_thread() is not self._thread:
            self._thread.join(self._seconds)
        self._callers.close()
        if self._memory is not None:
            self._memory.arena.close()
            self._memory = None

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            begun = time.perf_counter()
            try:
                if self._failed is not None:
                    raise self._failed
                self._one(order)
            except Exception as error:
                if not isinstance(error, TransferError):
                    error = TransferError(Reason.EXCEPTION, f"{type(error).__name__}: {error}")
                self._failed = failed = self._failed or error
                order.over.fail(failed)
            self._busy += time.perf_counter() - begun

    def _one(self, order: _Order) -> None:
        order.packed.wait(order.deadline)
        lines = self._callers.all(order.deadline)
        number, nbytes, shared = self._number, order.data.nbytes, b""
        if self._memory is None or nbytes > self._memory.stride:
            self._until_taken(number, order.deadline)  # the ring that is there has been read to its end
            shared = self._make(nbytes)
        self._until_taken(number - SLOTS + 1, order.deadline)
        self._number += 1
        memory, slot = self._memory, number % SLOTS
        assert memory is not None
        memory.generations[slot] = 2 * number + 1
        np.copyto(memory.slot(slot, nbytes), np.frombuffer(order.data, np.uint8))
        memory.generations[slot] = 2 * number + 2
        order.over.set()
        for name, line in lines:
            say(line, Go(number, slot, nbytes, shared), name, order.deadline)

    def _until_taken(self, count: int, deadline: float) -> None:
        """Waits until every receiver has taken the first `count` buckets."""
        for index, (name, line) in enumerate(self._callers.all(deadline)):
            while self._taken[index] < count:
                self._callers.wait(line, deadline)
                taken = hear(line, Taken, name, deadline)
                if taken.number != self._taken[index]:
                    told = f"took bucket {taken.number}, not {self._taken[index]}"
                    raise TransferError(Reason.MISMATCH, told, rank=name)
                self._taken[index] += 1

    def _make(self, nbytes: int) -> bytes:
        """A new ring; what the receivers have to know of it."""
        stride = -(-nbytes // PAGE) * PAGE
        # Its pages are made at once: else every first use of one would take three times as long as all others.
        arena = Arena.create(PAGE + SLOTS * stride, name="proctor-ring", prefault=True)
        arena.keep_to_myself()
        if self._memory is not None:
            self._memory.arena.close()
        self._memory = _Memory(arena, stride)
        return msgspec.msgpack.encode(_Place(arena.path, stride))


@final
class ShmOutlet(PublishingEnd):
    """The publisher's end, for one epoch. A bucket's buffer is free when it has been copied into the ring.

    Args:
        ring: that of all epochs.
        names: what the receivers call themselves, in their order, for errors; empty leaves those of the ring.
    """

    def __init__(self, ring: ShmRing, names: Sequence[str] = ()) -> None:
        self._ring, self._owner = ring, Owner("the link through shared memory")
        if names:
            ring.rename(names)

    @override
    def send(self, held: Held, nbytes: int) -> Event:
        self._owner.check()
        over = HostEvent(f"slot {held.index} on its way")
        self._ring.put(host_bytes(held.part(nbytes)), held.stream.record(), over)
        held.until(over)
        return over

    def busy_seconds(self) -> float:
        """See `ShmRing.busy_seconds`."""
        return self._ring.busy_seconds()

    @override
    def close(self) -> None:
        self._ring.close()


@final
class ShmInlet(ReceivingEnd):
    """A receiver's end, for many epochs.

    Args:
        ticket: of this receiver: see `ShmRing.tickets`.
        watch: called again and again while a bucket is waited for; raises if none will come.
        deadline: of `time.monotonic`, for joining; None is 60 s from now.

    Raises:
        UserError: the publisher belongs to another user.
        TransferError: ``DEAD``: it is not there any more; ``MISMATCH``: this is no ticket.
    """

    def __init__(self, ticket: bytes, watch: Callable[[], None] = lambda: None, deadline: float | None = None) -> None:
        self._line = call(ticket, deadline_of(deadline))
        self._watch = watch
        self._memory: _Memory | None = None
        self._owner = Owner("the link through shared memory")
        self._number = 0

    @override
    def receive(self, held: Held, nbytes: int, deadline: float | None = None) -> None:
        """As `Link.receive`. ``EXPIRED``: the slot was written again before it had been read."""
        self._owner.check()
        until = deadline_of(deadline)
        target = np.frombuffer(host_bytes(held.part(nbytes)), np.uint8)
        held.stream.record().wait(until)  # what still reads the bytes before
        go = patiently(lambda step: hear(self._line, Go, "publisher", step), until, self._watch)
        if (go.number, go.nbytes, go.slot) != (self._number, nbytes, self._number % SLOTS):
            told = f"bucket {go.number} of {go.nbytes} bytes comes, and {self._number} of {nbytes} was announced"
            raise TransferError(Reason.MISMATCH, told, rank="publisher")
        memory = self._opened(go)
        _check(memory, go)
        np.copyto(target, memory.slot(go.slot, nbytes))
        _check(memory, go)
        self._number += 1
        # The bucket is here, whatever the time is: a caller that asked again would wait for one that never comes.
        say(self._line, Taken(go.number), "publisher", max(until, time.monotonic() + 1.0))

    @override
    def close(self) -> None:
        """Hangs up."""
        self._line.close()
        if self._memory is not None:
            self._memory.arena.close()
            self._memory = None

    def _opened(self, go: Go) -> _Memory:
        if go.shared:
            try:
                place = msgspec.msgpack.decode(go.shared, type=_Place)
            except msgspec.DecodeError as error:
                raise TransferError(Reason.MISMATCH, f"not a ring: {error}", rank="publisher") from None
            arena = Arena.attach(place.path, "read")
            if self._memory is not None:
                self._memory.arena.close()
            self._memory = _Memory(arena, place.stride)
        memory = self._memory
        if memory is None or not 0 < go.nbytes <= memory.stride or memory.arena.nbytes < PAGE + SLOTS * memory.stride:
            raise TransferError(Reason.MISMATCH, f"bucket {go.number} lies in no ring that was told", rank="publisher")
        return memory


def _check(memory: _Memory, go: Go) -> None:
    generation = int(memory.generations[go.slot])
    if generation != 2 * go.number + 2:
        told = f"slot {go.slot} was written again before bucket {go.number} had been read (generation {generation})"
        raise TransferError(Reason.EXPIRED, told, rank="publisher")
