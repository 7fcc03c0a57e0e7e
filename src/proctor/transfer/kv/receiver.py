"""The decode side: blocks by request id."""

from __future__ import annotations

import os
import time
from typing import Literal, final

import msgspec
import zmq
from typing_extensions import override

from proctor.rows import UserError
from proctor.transfer.closing import Closing
from proctor.transfer.devices.base import deadline_of
from proctor.transfer.devices.cpu import HostEvent
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.kv import wire
from proctor.transfer.kv.inbox import Inbox, Open, Received
from proctor.transfer.kv.layout import Layout
from proctor.transfer.kv.loop import Loop
from proctor.transfer.kv.memory import Attached
from proctor.transfer.kv.peers import check_address, this_host, watch

Way = Literal["any", "memory", "beside"]
"""How bytes come: ``memory`` through the sender's shared memory, ``beside`` beside the messages, ``any`` the first if
it can be reached and else the second."""
SILENCE_SECONDS = 10.0


@final
class Receiver(Closing):
    """Fetches blocks from one sender.

    Args:
        address: the sender's.
        layout: of the caches that this side takes.
        rank: this side's name in errors.
        way: see `Way`.
        silence_seconds: a sender that says nothing for so long is dead. One on this machine whose process ends is
            noticed at once.
        deadline: of `time.monotonic`, seconds, for the sender's welcome; None is 60 s from now.

    Attributes:
        way: the way that was found, ``memory`` or ``beside``.

    Raises:
        UserError: the address is open to other machines.
        TransferError: ``MISMATCH``: the two sides do not agree, with what they differ in; ``LATE``, ``DEAD``.
    """

    def __init__(
        self,
        address: str,
        layout: Layout,
        *,
        rank: str = "decode",
        way: Way = "any",
        silence_seconds: float = SILENCE_SECONDS,
        deadline: float | None = None,
    ) -> None:
        check_address(address, where="address")
        self._layout, self._rank, self._wanted_way, self._silence = layout, rank, way, silence_seconds
        self.way: Way = way
        self._memory: Attached | None = None
        self._inbox = Inbox(layout, self._say)
        self._decoder = msgspec.msgpack.Decoder(wire.ToReceiver)
        self._welcome = HostEvent(f"{address}: no welcome has come")
        self._dead: TransferError | None = None
        self._heard = self._beaten = time.monotonic()
        self._beat_seconds = silence_seconds / 3
        socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.connect(address)
        self._loop = Loop(socket, f"kv receiver {rank}")
        self._loop.start(self)
        self._loop.call(self._greet)
        try:
            self._welcome.wait(deadline)
        except BaseException:
            self.close()
            raise

    def ask(self, request: str) -> Open:
        """Begins to fetch a block; `result` waits for it. So several can be on their way."""
        wanted = Open(request, self._inbox.rank)
        if not self._loop.call(lambda: self._ask(wanted)):
            wanted.over.fail(self._dead or TransferError(Reason.CANCELLED, "the receiver is closed"))
        return wanted

    def result(self, wanted: Open, deadline: float | None = None) -> Received:
        """Waits for a block that was asked for.

        Args:
            wanted: what `ask` gave.
            deadline: of `time.monotonic`, seconds; None is 60 s from now. At the deadline the request is given up.

        Raises:
            TransferError: how the request failed.
        """
        try:
            wanted.over.wait(deadline_of(deadline))
        except TransferError as error:
            if error.reason is Reason.LATE:
                self.cancel(wanted.request, Reason.LATE, "it did not come within the deadline")
            raise
        except BaseException:
            self.cancel(wanted.request, message="the receiver was interrupted")
            raise
        if wanted.block is None:
            raise RuntimeError(f"{wanted.request} is over without a block")
        return wanted.block

    def receive(self, request: str, deadline: float | None = None) -> Received:
        """`ask` and `result`."""
        return self.result(self.ask(request), deadline)

    def cancel(
        self, request: str, reason: Reason = Reason.CANCELLED, message: str = "cancelled by the receiver"
    ) -> None:
        """Gives a request up, wherever it is. Returns at once; whoever waits for it gets the error."""
        self._loop.call(lambda: self._inbox.give_up(request, reason, message))

    @override
    def close(self) -> None:
        """Fails what is open, tells the sender, and lets the memory go."""
        self._loop.close()

    # What follows runs in the thread only.

    def heard(self, frames: list[bytes]) -> None:
        """A message has come (`Work`)."""
        try:
            message = wire.opened(frames, self._decoder)
        except TransferError as error:
            self._lost(error.reason, error.message)
            return
        self._heard = time.monotonic()
        match message:
            case wire.Welcome():
                self._welcomed(message)
            case wire.Offer():
                self._inbox.offered(message, frames[2:])
            case wire.Freed():
                self._inbox.freed(message)
            case wire.Gone():
                self._inbox.gone(message)
            case wire.Refusal() | wire.Bye():
                self._lost(message.reason, message.message)
            case wire.Alive():
                pass

    def turn(self) -> None:
        """After every wait (`Work`)."""
        now = time.monotonic()
        if not self._welcome.done() or self._dead is not None:
            return
        if now - self._heard > self._silence:
            self._lost(Reason.DEAD, f"the sender has said nothing for {self._silence:g} s")
        elif now - self._beaten > self._beat_seconds:
            self._beaten = now
            self._say(wire.Beat(self._inbox.requests))

    def ended(self, error: Exception | None) -> None:
        """The thread ends (`Work`)."""
        why = TransferError(Reason.CANCELLED, "the receiver is closed", rank=self._rank)
        if error is not None:
            why = TransferError(Reason.EXCEPTION, f"the receiving thread failed: {error!r}", rank=self._rank)
        self._dead = self._dead or why
        self._inbox.fail_all(self._dead)
        if not self._welcome.done():
            self._welcome.fail(self._dead)
        self._say(wire.Leave())
        if self._memory is not None:
            self._memory.close()

    def _greet(self) -> None:
        self._say(wire.Greet(wire.PROTOCOL, self._layout, self._layout.digest, self._rank, this_host(), os.getpid()))

    def _welcomed(self, said: wire.Welcome) -> None:
        if self._welcome.done():
            return
        if said.layout_sha256 != self._layout.digest:
            self._lost(Reason.MISMATCH, "the sender welcomes another layout")
            return
        self._inbox.rank = said.rank
        self._beat_seconds = min(self._beat_seconds, said.lease_seconds / 3)
        try:
            process = watch(said.host, said.pid)
            self._memory = self._attached(said)
        except (ProcessLookupError, UserError, TransferError) as error:
            self._lost(Reason.DEAD if isinstance(error, ProcessLookupError) else Reason.MISMATCH, str(error))
            return
        if process is not None:
            self._loop.watch(process, lambda: self._lost(Reason.DEAD, "the sender's process is gone"))
        self.way = "beside" if self._memory is None else "memory"
        self._inbox.attach(self._memory)
        self._welcome.set()

    def _attached(self, said: wire.Welcome) -> Attached | None:
        if self._wanted_way == "beside" or (self._wanted_way == "any" and said.host != this_host()):
            return None
        try:
            return Attached(said.region)
        except (UserError, TransferError):
            if self._wanted_way == "memory":
                raise
            return None

    def _ask(self, wanted: Open) -> None:
        if self._dead is not None:
            wanted.over.fail(self._dead)
        else:
            self._inbox.ask(wanted)

    def _lost(self, reason: Reason, message: str) -> None:
        """Nothing will come from this sender any more."""
        self._dead = self._dead or TransferError(reason, message, rank=self._inbox.rank)
        self._inbox.fail_all(self._dead)
        if not self._welcome.done():
            self._welcome.fail(self._dead)

    def _say(self, message: wire.ToSender) -> bool:
        return self._loop.send(wire.sealed(message))
