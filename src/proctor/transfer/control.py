"""The control channel: addresses, and a socket that speaks in messages and never waits longer than it was told."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, final

import msgspec

from proctor.rows import UserError
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.framing import PIECE_BYTES, Incoming, Outgoing
from proctor.transfer.wire import Abort

PUBLISHER = "publisher"
"""The rank of the publishing side."""
RETRY_SECONDS = 0.02
"""Between two tries to connect to somebody who does not listen yet."""


class Address(NamedTuple):
    """Where a receiver listens: ``unix:PATH`` or ``tcp:HOST:PORT`` (port 0 lets the system choose)."""

    family: socket.AddressFamily
    place: Any

    @classmethod
    def parse(cls, text: str) -> Address:
        """Reads one.

        Raises:
            UserError: it is none.
        """
        kind, _, rest = text.partition(":")
        if kind == "unix" and rest:
            if len(rest.encode()) > _LONGEST_PATH:
                raise UserError(
                    f"a socket's path has at most {_LONGEST_PATH} bytes", where=text, fix="take a shorter one"
                )
            return cls(socket.AF_UNIX, rest)
        host, _, port = rest.rpartition(":")
        if kind == "tcp" and host and port.isascii() and port.isdigit() and int(port) < 1 << 16:
            return cls(socket.AF_INET, (host, int(port)))
        raise UserError("not an address", where=text, fix="give unix:/path/to/socket or tcp:127.0.0.1:PORT")

    def __str__(self) -> str:
        return f"unix:{self.place}" if self.family == socket.AF_UNIX else f"tcp:{self.place[0]}:{self.place[1]}"


_LONGEST_PATH = 107
"""Of a Unix socket: sun_path has 108 bytes, the last one is 0."""


def listen(address: Address) -> tuple[socket.socket, Address]:
    """A socket that listens, and its address with the port that the system chose.

    A Unix socket that a dead process left behind is replaced.

    Raises:
        UserError: the address is taken, or not one of this machine.
    """
    sock = socket.socket(address.family)
    try:
        if address.family == socket.AF_UNIX:
            _remove_left_over(address.place)
        else:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address.place)
        sock.listen(8)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise UserError(
            f"cannot listen: {error.strerror or error}",
            where=str(address),
            fix="take an address of this machine that is free",
        ) from None
    name = sock.getsockname()
    return sock, address if address.family == socket.AF_UNIX else address._replace(place=(name[0], name[1]))


def connect(address: Address, deadline: float) -> socket.socket:
    """Connects, and tries again while nobody listens there yet.

    Raises:
        TransferError: ``LATE``: nobody did until the deadline (of `time.monotonic`).
    """
    while True:
        sock = socket.socket(address.family)
        try:
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            sock.connect(address.place)
            sock.setblocking(False)
            if address.family == socket.AF_INET:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        except OSError as error:
            sock.close()
            if time.monotonic() >= deadline:
                message = f"nobody listens at the deadline: {error.strerror or error}"
                raise TransferError(Reason.LATE, message, rank=str(address)) from None
        time.sleep(RETRY_SECONDS)


def closed(sock: socket.socket) -> None:
    """Closes a socket; what was sent still arrives."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()


def gone(sock: socket.socket) -> bool:
    """Whether a connection on which nothing should come has ended, or something came nevertheless."""
    try:
        sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


@final
class Channel:
    """One connection, for a side that does one thing after another.

    Args:
        sock: connected; it is closed with the channel.
        messages: the union of messages that may come.
        rank: the other side, for errors.
        cancelled: a socket that becomes readable when waiting is to end.
    """

    def __init__(self, sock: socket.socket, messages: Any, rank: str, *, cancelled: socket.socket) -> None:
        sock.setblocking(False)
        self._sock, self._rank, self._cancelled = sock, rank, cancelled
        self._incoming, self._outgoing = Incoming(sock, messages), Outgoing(sock)
        self._early: deque[Any] = deque()

    @property
    def socket(self) -> socket.socket:
        """To be waited for together with others."""
        return self._sock

    @property
    def has_message(self) -> bool:
        """Whether `watch` has read one that `receive` has not taken yet."""
        return bool(self._early)

    def receive(self, deadline: float) -> Any:
        """The next message.

        Raises:
            TransferError: ``LATE``, ``DEAD``, ``CORRUPT``, ``MISMATCH``; or what an `Abort` said.
        """
        while (message := self.heard()) is None:
            self._wait(select.POLLIN, deadline, "nothing came until the deadline")
        return message

    def heard(self) -> Any | None:
        """The next message, if all of it is here.

        Raises:
            TransferError: see `receive`, but for ``LATE``.
        """
        message = self._early.popleft() if self._early else self._read()
        if message is None and self._incoming.next_is_bytes:
            raise self._error(Reason.MISMATCH, "bytes came where a message was due")
        return self._opened(message)

    def receive_bytes(self, target: memoryview, deadline: float) -> None:
        """Bytes of a bucket, all that `target` takes.

        Raises:
            TransferError: see `receive`.
        """
        while len(target):
            got = self._take(target)
            target = target[got:]
            if not got:
                message = None if self._incoming.next_is_bytes else self._read()
                if message is not None:
                    self._opened(message)
                    raise self._error(Reason.MISMATCH, f"{type(message).__name__} came within the bytes of a bucket")
                self._wait(select.POLLIN, deadline, f"{len(target)} bytes of a bucket did not come until the deadline")

    def send(self, message: msgspec.Struct, deadline: float) -> None:
        """Sends a message whole.

        Raises:
            TransferError: ``LATE``, ``DEAD``.
        """
        self._outgoing.message(message)
        while True:
            try:
                self._outgoing.send()
            except TransferError as error:
                raise self._error(error.reason, error.message) from None
            if self._outgoing.empty:
                return
            self._wait(select.POLLOUT, deadline, "took no message until the deadline")

    def watch(self) -> None:
        """Looks at what has come while something else is waited for; messages stay for `receive`.

        Raises:
            TransferError: the other side is dead or has aborted, or waiting is cancelled.
        """
        self._stop_if_cancelled()
        while (message := self._read()) is not None:
            if isinstance(message, Abort):
                self._opened(message)
            self._early.append(message)

    def last_words(self, deadline: float) -> NoReturn:
        """Reads on for the reason why an epoch has ended; what else comes is dropped.

        Raises:
            TransferError: what an `Abort` said; ``DEAD`` if none came; ``LATE`` if nothing did.
        """
        dropped = memoryview(bytearray(PIECE_BYTES))
        while True:
            self.watch()
            if not (self._incoming.next_is_bytes and self._take(dropped)):
                self._wait(select.POLLIN, deadline, "nothing came until the deadline")

    def close(self) -> None:
        """Closes the connection."""
        closed(self._sock)

    def _read(self) -> Any | None:
        try:
            return self._incoming.message()
        except TransferError as error:
            raise self._error(error.reason, error.message) from None

    def _take(self, target: memoryview) -> int:
        try:
            return self._incoming.bytes(target)
        except TransferError as error:
            raise self._error(error.reason, error.message) from None

    def _opened(self, message: Any) -> Any:
        if isinstance(message, Abort):
            raise TransferError(message.reason, message.message, rank=message.rank, epoch=message.epoch)
        return message

    def _wait(self, events: int, deadline: float, late: str) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise self._error(Reason.LATE, late)
        poll = select.poll()
        poll.register(self._sock, events)
        poll.register(self._cancelled, select.POLLIN)
        poll.poll(max(1, left * 1000))
        self._stop_if_cancelled()

    def _stop_if_cancelled(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._cancelled.recv(4096)
            raise TransferError(Reason.CANCELLED, "cancelled by the receiver")

    def _error(self, reason: Reason, message: str) -> TransferError:
        return TransferError(reason, message, rank=self._rank)


def _remove_left_over(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as trial:
        try:
            trial.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink(missing_ok=True)
        except OSError:
            return
