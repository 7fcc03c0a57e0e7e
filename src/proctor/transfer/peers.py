"""The publisher's end of all control channels: one thread that reads and writes, so that an abort or a death is seen
while everybody else packs, sends or waits.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar, final

import msgspec

from proctor.transfer.control import PUBLISHER, Address, closed, connect, gone
from proctor.transfer.devices.base import seconds_left
from proctor.transfer.devices.cpu import HostEvent
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.framing import Incoming, Outgoing
from proctor.transfer.wire import Abort, Ack, Began, ToPublisher, Welcome

if TYPE_CHECKING:
    from proctor.transfer.devices.base import Event

ABORT_SECONDS = 1.0
"""How long an abort is offered to a side that does not read."""
Answer = TypeVar("Answer", Welcome, Ack)


@final
class Peer:
    """One receiver, as long as its connection lasts.

    Attributes:
        address: where it listens.
        rank: its name; its address until it has told one.
        began: number of the bucket that it has begun to take; -1 before the first.
    """

    def __init__(self, address: Address, deadline: float) -> None:
        self.address, self.rank, self.began = address, str(address), -1
        self.sock = connect(address, deadline)
        self.incoming, self.outgoing = Incoming(self.sock, ToPublisher), Outgoing(self.sock)
        self.answers: deque[Welcome | Ack] = deque()

    @property
    def gone(self) -> bool:
        """Whether the connection has ended since the last epoch."""
        return gone(self.sock)

    @property
    def finished(self) -> bool:
        """Whether it has said its last word of an epoch: that what came is readable. It may hang up then."""
        last = self.answers[-1] if self.answers else None
        return isinstance(last, Ack) and last.state == "committed"


@final
class Peers:
    """All receivers of one epoch. `close` it, whatever happens.

    Args:
        peers: connected.
        epoch: its number.
    """

    def __init__(self, peers: Sequence[Peer], epoch: int) -> None:
        self._peers, self._epoch = peers, epoch
        self._failure: TransferError | None = None
        self._under_way: set[HostEvent] = set()
        self._busy, self._busy_since = 0.0, 0.0
        self._leave_at: float | None = None
        self._changed = threading.Condition()
        self._selector = selectors.DefaultSelector()
        self._waker, self._wake = socket.socketpair()
        self._wake.setblocking(False)
        self._selector.register(self._waker, selectors.EVENT_READ)
        for peer in peers:
            peer.began = -1
            peer.answers.clear()
            self._selector.register(peer.sock, selectors.EVENT_READ, peer)
        self._thread = threading.Thread(target=self._run, name=f"proctor-publish-{epoch}", daemon=True)
        self._thread.start()

    def send(self, messages: Iterable[msgspec.Struct]) -> None:
        """Sends every peer its message, in their order.

        Raises:
            TransferError: the epoch has failed.
        """
        with self._changed:
            self._raise()
            for peer, message in zip(self._peers, messages, strict=True):
                peer.outgoing.message(message)
        self._woken()

    def broadcast(self, message: msgspec.Struct) -> None:
        """Sends all peers the same message; see `send`."""
        self.send([message] * len(self._peers))

    def send_bytes(self, data: memoryview, what: str) -> Event:
        """Sends all peers the same bytes of a bucket.

        Returns:
            An event that is over when they may change again.
        """
        event = HostEvent(what)
        left = len(self._peers)

        def sent() -> None:
            nonlocal left
            left -= 1
            if not left:
                self._arrived(event)

        with self._changed:
            self._raise()
            if not self._under_way:
                self._busy_since = time.perf_counter()
            self._under_way.add(event)
            for peer in self._peers:
                peer.outgoing.bytes(data, sent)
        self._woken()
        return event

    def collect(self, kind: type[Answer], what: str, deadline: float) -> list[Answer]:
        """The next answer of every peer, in their order.

        Raises:
            TransferError: ``LATE`` with the ranks that did not answer, or why the epoch has failed.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._failure or all(peer.answers for peer in self._peers), seconds_left(deadline)
            )
            self._raise()
            silent = [peer.rank for peer in self._peers if not peer.answers]
            if silent:
                raise self._error(Reason.LATE, f"{what} did not come until the deadline", ", ".join(silent))
            return [self._answer(peer, kind) for peer in self._peers]

    def busy_seconds(self) -> float:
        """Seconds in which bytes were on their way, of those that have arrived."""
        return self._busy

    def check(self) -> None:
        """Raises: TransferError: the epoch has failed."""
        with self._changed:
            self._raise()

    def fail(self, error: TransferError) -> None:
        """Ends the epoch from another thread: whoever waits gets `error`."""
        with self._changed:
            self._fail(error)

    def blamed(self, error: TransferError, seconds: float) -> TransferError:
        """An error, with the side that is at fault: a transport knows no names, or only addresses.

        A transport breaks because somebody died, or gave up and hung up: why is told here, at once or a moment later.
        """
        with self._changed:
            if error.reason is Reason.DEAD:
                self._changed.wait_for(lambda: self._failure, seconds)
            if self._failure is not None:
                return self._failure
            ranks = {str(peer.address): peer.rank for peer in self._peers}
            rank = ranks.get(error.rank, error.rank) or ", ".join(self._behind())
            return self._error(error.reason, error.message, rank)

    def close(self, error: TransferError | None = None) -> None:
        """Ends the thread. Connections stay, unless there is an error: then all are told, and closed."""
        with self._changed:
            if error is not None:
                self._fail(error)
                for peer in self._peers:
                    peer.outgoing.forget()
                    peer.outgoing.message(_abort(error, self._epoch))
            self._leave_at = time.monotonic() + ABORT_SECONDS
        self._woken()
        self._thread.join()
        self._selector.close()
        self._waker.close()
        self._wake.close()
        if error is not None:
            for peer in self._peers:
                closed(peer.sock)

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:  # nobody would ever hear of it, and all would wait until their deadlines
            self.fail(self._error(Reason.EXCEPTION, f"the control thread: {error!r}", PUBLISHER))

    def _serve(self) -> None:
        lost: set[Peer] = set()
        while True:
            with self._changed:
                waiting = self._interests(lost)
                leave_at = self._leave_at
            if leave_at is not None and (not waiting or time.monotonic() >= leave_at):
                return
            ready = self._selector.select(None if leave_at is None else seconds_left(leave_at))
            with self._changed:
                for key, events in ready:
                    if key.data is None:
                        self._waker.recv(4096)
                    elif not self._served(key.data, events):
                        self._selector.unregister(key.data.sock)
                        lost.add(key.data)

    def _interests(self, lost: set[Peer]) -> bool:
        """Asks for what is needed of every socket; whether something waits to be sent."""
        waiting = False
        for peer in self._peers:
            if peer not in lost:
                writes = 0 if peer.outgoing.empty else selectors.EVENT_WRITE
                self._selector.modify(peer.sock, selectors.EVENT_READ | writes, peer)
                waiting = waiting or bool(writes)
        return waiting

    def _served(self, peer: Peer, events: int) -> bool:
        try:
            if events & selectors.EVENT_READ:
                self._read(peer)
            if events & selectors.EVENT_WRITE:
                peer.outgoing.send()
        except TransferError as error:
            if error.reason is not Reason.DEAD or not peer.finished:
                self._fail(self._error(error.reason, error.message, error.rank or peer.rank))
            return False
        return True

    def _read(self, peer: Peer) -> None:
        while (message := peer.incoming.message()) is not None:
            if isinstance(message, Abort):
                raise TransferError(message.reason, message.message, rank=message.rank)
            if message.epoch != self._epoch:
                raise TransferError(Reason.MISMATCH, f"answered for epoch {message.epoch}")
            if isinstance(message, Began):
                peer.began = max(peer.began, message.sequence)
            else:
                peer.answers.append(message)
                self._changed.notify_all()
        if peer.incoming.next_is_bytes:
            raise TransferError(Reason.MISMATCH, "bytes came where a message was due")

    def _answer(self, peer: Peer, kind: type[Answer]) -> Answer:
        answer = peer.answers.popleft()
        if not isinstance(answer, kind):
            raise self._error(Reason.MISMATCH, f"answered with {type(answer).__name__}, not {kind.__name__}", peer.rank)
        return answer

    def _arrived(self, event: HostEvent) -> None:
        self._under_way.discard(event)
        if not self._under_way:
            self._busy += time.perf_counter() - self._busy_since
        event.set()

    def _behind(self) -> list[str]:
        """Those without whom the others cannot go on."""
        slow = [peer for peer in self._peers if not peer.outgoing.empty] or self._peers
        least = min(peer.began for peer in slow)
        return [peer.rank for peer in slow if peer.began == least]

    def _fail(self, error: TransferError) -> None:
        if self._failure is None:
            self._failure = error
            for event in self._under_way:
                event.fail(error)
            self._under_way.clear()
            self._changed.notify_all()

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _error(self, reason: Reason, message: str, rank: str) -> TransferError:
        return TransferError(reason, message, rank=rank, epoch=self._epoch)

    def _woken(self) -> None:
        try:
            self._wake.send(b"\0")
        except BlockingIOError:  # it has more than enough to wake up for
            return


def _abort(error: TransferError, epoch: int) -> Abort:
    return Abort(epoch, error.rank or PUBLISHER, error.reason, error.message)
