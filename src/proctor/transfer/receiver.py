"""The receiving side: takes epoch after epoch, and shows nothing that is not complete."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, final

from typing_extensions import override

from proctor.rows import UserError
from proctor.transfer.closing import Closing
from proctor.transfer.control import PUBLISHER, Address, Channel, listen
from proctor.transfer.destinations import Destination, Form, InPlace, OwnArena
from proctor.transfer.devices.base import DEADLINE_SECONDS, Device
from proctor.transfer.devices.cpu import CpuDevice
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.links.base import Link
from proctor.transfer.links.opening import TRANSPORTS, check_transport, inlet
from proctor.transfer.manifest import Manifest
from proctor.transfer.reception import Reception
from proctor.transfer.staging import Staging
from proctor.transfer.wire import Abort, Hello, ToReceiver

if TYPE_CHECKING:
    import torch

BLAME_SECONDS = 5.0
"""How long the control channel may take to say what happened, when the transport broke first."""
ABORT_SECONDS = 1.0
"""How long an abort is offered to a publisher that does not read."""


class State(StrEnum):
    """Where the newest epoch is."""

    IDLE = "idle"
    """There was none yet."""
    PREPARING = "preparing"
    """What is announced is compared, and room is made."""
    RECEIVING = "receiving"
    COMMITTED = "committed"
    """All sides have all of it."""
    FAILED = "failed"


class Received(NamedTuple):
    """A complete epoch.

    Attributes:
        epoch: the publisher's number of it.
        tensors: every name, ties share one tensor.
        manifest: how they were announced.
    """

    epoch: int
    tensors: dict[str, torch.Tensor]
    manifest: Manifest


@final
class Receiver(Closing):
    """One receiver, for one publisher at a time. It is used by one thread.

    Args:
        address: where to listen: ``unix:PATH``, or ``tcp:HOST:PORT`` with port 0 for a free one. Nobody proves who he
            is: listen where only those can connect who may replace the weights.
        rank: its name, by which errors call it.
        into: tensors that are written to in place; None makes new ones, in an arena for each epoch.
        expects: type and shape of every name that has to come, when there is no `into`; None takes any.
        transports: those that are taken; None is all.
        allocate: gives the memory of arenas, uint8; None takes the device's.
        deadline: seconds that any one wait takes at most; None waits half as long again as the publisher, and a
            second, so that the publisher, who sees all sides, is the first to name one that is late.
        device: where arenas and slots lie; None is the CPU.

    Attributes:
        address: with the port that the system chose.
        state: see `State`.
    """

    def __init__(
        self,
        address: str,
        *,
        rank: str,
        into: Mapping[str, torch.Tensor] | None = None,
        expects: Mapping[str, Form] | None = None,
        transports: Sequence[str] | None = None,
        allocate: Callable[[int], torch.Tensor] | None = None,
        deadline: float | None = None,
        device: Device | None = None,
    ) -> None:
        for transport in transports or ():
            check_transport(transport)
        device = device or CpuDevice()
        if not rank or rank == PUBLISHER:
            raise UserError(f"a receiver cannot be called {rank!r}", fix="give it a name of its own")
        self._rank, self._transports, self._deadline = rank, tuple(transports or TRANSPORTS), deadline
        self._destination: Destination = OwnArena(device, expects, allocate) if into is None else InPlace(device, into)
        self._staging = Staging(device)
        self._listener, self._address = listen(Address.parse(address))
        self._awake, self._wake = socket.socketpair()
        self._awake.setblocking(False)
        self._channel: Channel | None = None
        self._link: Link | None = None
        self._ticket: tuple[str, bytes] | None = None
        self._current: Received | None = None
        self._last = 0
        self.state = State.IDLE

    @property
    def address(self) -> str:
        """Where it listens."""
        return str(self._address)

    @property
    def current(self) -> Received | None:
        """The newest epoch that is readable. With `into` there is none from the first byte of an epoch to its end."""
        return None if self._destination.torn else self._current

    def receive(self, wait: float = DEADLINE_SECONDS) -> Received:
        """Takes the next epoch. One that had failed already when this was called is passed over.

        Args:
            wait: seconds until it has to begin.

        Raises:
            TransferError: ``LATE`` if none began; else why it failed, on all sides. `state` is then ``failed``, and the
                next call takes a new epoch.
        """
        with self._aborting():
            self._pass_over()
            hello = self._hello(time.monotonic() + wait)
        if hello is None:
            raise TransferError(Reason.LATE, f"no epoch began within {wait:g} s", rank=PUBLISHER)
        with self._aborting(hello):
            return self._received(hello)

    def cancel(self) -> None:
        """Ends the call of `receive` that waits or works in another thread; it raises ``CANCELLED``."""
        self._wake.send(b"\0")

    @override
    def close(self) -> None:
        """Stops listening. What was received stays readable."""
        self._hang_up()
        for sock in (self._listener, self._awake, self._wake):
            sock.close()
        if self._address.family == socket.AF_UNIX:
            Path(self._address.place).unlink(missing_ok=True)

    def _received(self, hello: Hello) -> Received:
        assert self._channel is not None
        self.state = State.PREPARING
        patience = hello.patience * 1.5 + 1.0 if self._deadline is None else self._deadline
        reception = Reception(hello, self._channel, self._rank, self._destination, self._staging, patience)
        manifest = reception.accept(self._transports, self._last)
        self._last = hello.epoch
        self.state = State.RECEIVING
        reception.take(manifest, lambda: self._joined(hello, patience))
        self._current = Received(hello.epoch, reception.commit(), manifest)
        self.state = State.COMMITTED
        try:
            reception.confirm()
        except TransferError:
            self._hang_up()
        return self._current

    def _joined(self, hello: Hello, patience: float) -> Link:
        """The transport's end: the one of the epoch before, if its ticket is the same."""
        assert self._channel is not None
        ticket = (hello.parameters.transport, hello.ticket)
        if self._link is None or self._ticket != ticket:
            if self._link is not None:
                self._link.close()
            self._ticket, self._link = ticket, inlet(*ticket, self._channel, patience)
        return self._link

    def _hello(self, deadline: float) -> Hello | None:
        """The next greeting; None at the deadline. Connections that end before theirs are passed over, and one that
        has said a part of it gives way to the next, so that nobody who stops there keeps a publisher out."""
        while (channel := self._readable(deadline)) is not None:
            try:
                message = channel.heard()
            except TransferError as error:
                if error.reason is Reason.DEAD or error.epoch is not None:
                    self._hang_up()
                    continue
                raise
            if message is not None:
                if not isinstance(message, Hello):
                    raise TransferError(Reason.MISMATCH, f"{type(message).__name__} came where Hello was due")
                return message
        return None

    def _pass_over(self) -> None:
        """Drops epochs that were over before anybody asked for them here."""
        calls = select.poll()
        calls.register(self._listener, select.POLLIN)
        while self._channel is not None or calls.poll(0):
            if self._channel is None:
                self._answer()
                continue
            try:
                self._channel.watch()
                return
            except TransferError as error:
                if error.reason is not Reason.DEAD and error.epoch is None:
                    raise
                self._hang_up()

    def _readable(self, deadline: float) -> Channel | None:
        """The connection when there is something to read on it; None at the deadline."""
        while True:
            if self._channel is not None and self._channel.has_message:
                return self._channel
            poll = select.poll()
            sockets = [self._listener, self._awake] + ([self._channel.socket] if self._channel else [])
            for sock in sockets:
                poll.register(sock, select.POLLIN)
            ready = {fd for fd, _ in poll.poll(max(0.0, (deadline - time.monotonic()) * 1000))}
            if self._awake.fileno() in ready:
                self._awake.recv(4096)
                raise TransferError(Reason.CANCELLED, "cancelled by the receiver")
            if self._channel is not None and self._channel.socket.fileno() in ready:
                return self._channel
            if not ready:
                return None
            self._answer()

    def _answer(self) -> None:
        """Takes a new connection: its publisher has given the last one up, or is another one."""
        self._hang_up()
        with contextlib.suppress(OSError):
            sock, _ = self._listener.accept()
            self._channel, self._last = Channel(sock, ToReceiver, PUBLISHER, cancelled=self._awake), 0

    @contextlib.contextmanager
    def _aborting(self, hello: Hello | None = None) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            told = self._told(error, hello.epoch if hello else None)
            self.state = State.FAILED
            self._destination.drop()
            if self._channel is not None:
                abort = Abort(told.epoch or 0, told.rank, told.reason, told.message)
                with contextlib.suppress(TransferError):
                    self._channel.send(abort, time.monotonic() + ABORT_SECONDS)
            self._hang_up()
            if told is error or not isinstance(error, Exception):
                raise
            raise told from error

    def _told(self, error: BaseException, epoch: int | None) -> TransferError:
        """The error as all sides get it: with the epoch, and with the rank at fault."""
        if not isinstance(error, TransferError):
            cancelled = not isinstance(error, Exception)
            reason = Reason.CANCELLED if cancelled else Reason.EXCEPTION
            return TransferError(reason, f"{type(error).__name__}: {error}", rank=self._rank, epoch=epoch)
        error = self._blamed(error)
        if error.epoch is None:
            error.epoch = epoch
        return error

    def _blamed(self, error: TransferError) -> TransferError:
        """With the side that is at fault. A transport knows no names: what broke it is told on the control channel, at
        once or a moment later."""
        if not error.rank:
            error.rank = PUBLISHER if error.reason in (Reason.DEAD, Reason.LATE) else self._rank
        if error.reason is not Reason.DEAD or error.epoch is not None or self._channel is None:
            return error  # with an epoch it is what an abort said
        try:
            self._channel.last_words(time.monotonic() + BLAME_SECONDS)
        except TransferError as told:
            return told if told.reason is not Reason.LATE else error

    def _hang_up(self) -> None:
        # The connection first: its end is what tells the others, while closing a link may have to wait.
        if self._channel is not None:
            self._channel.close()
        if self._link is not None:
            self._link.close()
        self._channel, self._link, self._ticket = None, None, None
