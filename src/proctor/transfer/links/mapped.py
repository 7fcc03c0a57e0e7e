"""A link between processes on one node whose receivers read the publisher's buffers where they lie.

The publisher shares the buffer of a slot once. Then, for each bucket: it waits until the bucket is packed, says `Go`;
every receiver copies the bytes into its own slot, waits for its copy, and says `Taken`; only then is the buffer the
publisher's again. Without that answer for each bucket a buffer is written while it is still being read (what
``ipc_engine.py`` of vLLM had to mend), and no event of one process's streams orders the other's.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar, final

import msgspec
from typing_extensions import override

from proctor.transfer.devices.base import Event, deadline_of, seconds_left
from proctor.transfer.devices.cpu import HostEvent
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.links.ends import PublishingEnd, ReceivingEnd
from proctor.transfer.owner import Owner
from proctor.transfer.patience import patiently
from proctor.transfer.slots import Held

if TYPE_CHECKING:
    import torch

MOST_BYTES = 4096
"""Longest message: a handle of shared memory has some hundred bytes."""


class Sharing(Protocol):
    """How a buffer gets into another process."""

    def share(self, buffer: torch.Tensor) -> bytes:
        """What one other process needs to open `buffer` once."""

    def open(self, shared: bytes) -> torch.Tensor:
        """The buffer, in another process; it stays mapped as long as the tensor lives.

        Raises:
            TransferError: ``MISMATCH``: it cannot be reached from here.
        """


class Go(msgspec.Struct, frozen=True, tag="go"):
    """A bucket is there to be read.

    Attributes:
        number: counts buckets, from 0.
        slot: in which buffer.
        nbytes: how many.
        shared: see `Sharing.share`; the first time that the slot has this buffer, else empty.
    """

    number: int
    slot: int
    nbytes: int
    shared: bytes = b""


class Taken(msgspec.Struct, frozen=True, tag="taken"):
    """Bucket `number` has been read."""

    number: int


_M = TypeVar("_M", Go, Taken)


class _Order(NamedTuple):
    slot: int
    buffer: torch.Tensor
    nbytes: int
    packed: Event
    over: HostEvent
    deadline: float


@final
class MappedSender(PublishingEnd):
    """The publisher's end.

    Args:
        sharing: see `Sharing`.
        receivers: name and socket of each: Unix sockets that keep messages apart (``SOCK_SEQPACKET``).
        seconds: how long one bucket may take.
    """

    def __init__(self, sharing: Sharing, receivers: Sequence[tuple[str, socket.socket]], seconds: float = 60.0) -> None:
        self._sharing, self._receivers, self._seconds = sharing, tuple(receivers), seconds
        self._owner = Owner("the mapped link")
        self._shared: dict[int, torch.Tensor] = {}
        self._number = 0
        self._failed: TransferError | None = None
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="mapped-link", daemon=True)
        self._thread.start()

    @override
    def send(self, held: Held, nbytes: int) -> Event:
        self._owner.check()
        if self._failed is not None:
            raise self._failed
        over = HostEvent(f"slot {held.index} on its way")
        part = held.part(nbytes)  # also checks the number
        held.until(over)
        until = time.monotonic() + self._seconds
        self._orders.put(_Order(held.index, held.buffer, part.numel(), held.stream.record(), over, until))
        return over

    def hand_over(self) -> None:
        """The next thread that sends owns the link: for another epoch, when nothing is on its way."""
        self._owner = Owner("the mapped link")

    @override
    def close(self) -> None:
        """Fails what still waits, closes the sockets and ends the thread."""
        self._failed = self._failed or TransferError(Reason.CANCELLED, "the mapped link is closed")
        self._orders.put(None)
        for _, sock in self._receivers:
            _shut(sock)
        if threading.current_thread() is not self._thread:
            self._thread.join(self._seconds)
        for _, sock in self._receivers:
            sock.close()

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            try:
                if self._failed is not None:
                    raise self._failed
                self._one(order)
                order.over.set()
            except TransferError as error:
                self._failed = self._failed or error
                order.over.fail(self._failed)
            except Exception as error:
                self._failed = TransferError(Reason.EXCEPTION, f"{type(error).__name__}: {error}")
                order.over.fail(self._failed)

    def _one(self, order: _Order) -> None:
        order.packed.wait(order.deadline)
        number, self._number = self._number, self._number + 1
        # A new ring has other buffers in slots of the same index; they stay here, so that no address comes twice.
        first = self._shared.get(order.slot) is not order.buffer
        self._shared[order.slot] = order.buffer
        for name, sock in self._receivers:
            shared = self._sharing.share(order.buffer) if first else b""
            say(sock, Go(number, order.slot, order.nbytes, shared), name, order.deadline)
        for name, sock in self._receivers:
            taken = hear(sock, Taken, name, order.deadline)
            if taken.number != number:
                raise TransferError(Reason.MISMATCH, f"took bucket {taken.number}, not {number}", rank=name)


@final
class MappedReceiver(ReceivingEnd):
    """A receiver's end.

    Args:
        sharing: see `Sharing`.
        publisher: the socket to it.
        watch: called while something is waited for; raises if there is nothing to wait for any more.
    """

    def __init__(self, sharing: Sharing, publisher: socket.socket, watch: Callable[[], None] = lambda: None) -> None:
        self._sharing, self._publisher, self._watch = sharing, publisher, watch
        self._owner = Owner("the mapped link")
        self._mapped: dict[int, torch.Tensor] = {}
        self._number = 0

    @override
    def receive(self, held: Held, nbytes: int, deadline: float | None = None) -> None:
        self._owner.check()
        until = deadline_of(deadline)
        go = patiently(lambda step: hear(self._publisher, Go, "publisher", step), until, self._watch)
        if (go.number, go.nbytes) != (self._number, nbytes):
            raise TransferError(
                Reason.MISMATCH,
                f"bucket {go.number} of {go.nbytes} bytes comes, and {self._number} of {nbytes} was announced",
                rank="publisher",
            )
        self._number += 1
        held.stream.copy(held.part(nbytes), self._buffer(go)[:nbytes])
        patiently(held.stream.record().wait, until, self._watch)
        say(self._publisher, Taken(go.number), "publisher", until)

    def _buffer(self, go: Go) -> torch.Tensor:
        if go.shared:
            self._mapped[go.slot] = self._sharing.open(go.shared)
        if go.slot not in self._mapped:
            raise TransferError(Reason.MISMATCH, f"slot {go.slot} was never shared", rank="publisher")
        return self._mapped[go.slot]

    @override
    def close(self) -> None:
        """Closes the socket and forgets the publisher's buffers, which are then its own again."""
        _shut(self._publisher)
        self._publisher.close()
        self._mapped.clear()


def say(sock: socket.socket, message: Go | Taken, rank: str, deadline: float) -> None:
    """Sends one message.

    Raises:
        TransferError: ``LATE`` or ``DEAD``, at `rank`.
    """
    try:
        sock.settimeout(max(seconds_left(deadline), 1e-3))
        sock.send(msgspec.msgpack.encode(message))
    except TimeoutError:
        raise TransferError(Reason.LATE, "does not listen", rank=rank) from None
    except OSError as error:
        raise TransferError(Reason.DEAD, f"the connection broke: {error.strerror}", rank=rank) from None


def hear(sock: socket.socket, kind: type[_M], rank: str, deadline: float) -> _M:
    """The next message.

    Raises:
        TransferError: ``LATE``, ``DEAD`` or ``MISMATCH``, at `rank`.
    """
    try:
        sock.settimeout(max(seconds_left(deadline), 1e-3))
        data = sock.recv(MOST_BYTES)
    except TimeoutError:
        raise TransferError(Reason.LATE, "says nothing", rank=rank) from None
    except OSError as error:
        raise TransferError(Reason.DEAD, f"the connection broke: {error.strerror}", rank=rank) from None
    if not data:
        raise TransferError(Reason.DEAD, "hung up", rank=rank)
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise TransferError(Reason.MISMATCH, f"not a message of this link: {error}", rank=rank) from None


def _shut(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it was never connected, or the other side has closed it
