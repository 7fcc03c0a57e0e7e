"""Unix sockets between a publisher and its receivers that leave nothing behind, for processes of one user."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import socket
import struct
from collections.abc import Sequence
from typing import final

import msgspec

from proctor.rows import UserError
from proctor.transfer.devices.base import seconds_left
from proctor.transfer.errors import Reason, TransferError

_SECRET_BYTES = 16
_CREDENTIALS = struct.Struct("3i")


class _Ticket(msgspec.Struct, frozen=True):
    """The address without the zero in front, which makes it abstract; and by what the receiver says who it is."""

    address: str
    secret: bytes


@final
class Callers:
    """The publisher's end: one connection with each receiver.

    Sockets have names in the abstract namespace, which no file stands for, and keep messages apart.

    Args:
        names: of the receivers, for errors.

    Attributes:
        names: may be replaced by as many others.
        tickets: what each of them needs to `call`, in their order.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._secrets = tuple(secrets.token_bytes(_SECRET_BYTES) for _ in names)
        address = f"proctor-{secrets.token_hex(16)}"
        self.tickets = [msgspec.msgpack.encode(_Ticket(address, secret)) for secret in self._secrets]
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(b"\0" + address.encode())
        self._listener.listen(max(8, len(names)))
        self._lines: dict[bytes, socket.socket] = {}
        # Shutting a Unix socket down wakes the other side, and nobody who waits on this one.
        self._ended = os.eventfd(0)

    def all(self, deadline: float) -> list[tuple[str, socket.socket]]:
        """Name and connection of every receiver, in their order; waits for those who have not called yet.

        Raises:
            TransferError: ``LATE``, with the first one who did not call until `deadline` (of `time.monotonic`);
                ``CANCELLED``: `hang_up` was called.
        """
        while len(self._lines) < len(self._secrets):
            self._answer(deadline)
        return [(name, self._lines[secret]) for name, secret in zip(self.names, self._secrets, strict=True)]

    def wait(self, sock: socket.socket, deadline: float) -> None:
        """Waits until something comes on `sock`, or until `deadline`.

        Raises:
            TransferError: ``CANCELLED``: `hang_up` was called.
        """
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        poll.register(self._ended, select.POLLIN)
        ready = poll.poll(1000 * seconds_left(deadline))
        if any(fd == self._ended for fd, _ in ready):
            raise TransferError(Reason.CANCELLED, "hung up while something was waited for")

    def hang_up(self) -> None:
        """Ends whatever another thread waits for, here and on the other side."""
        os.eventfd_write(self._ended, 1)
        for sock in (self._listener, *self._lines.values()):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes all."""
        for sock in (self._listener, *self._lines.values()):
            sock.close()
        os.close(self._ended)

    def _answer(self, deadline: float) -> None:
        self.wait(self._listener, deadline)
        try:
            self._listener.settimeout(1e-3)
            line, _ = self._listener.accept()
        except TimeoutError:
            missing = next(
                name for name, secret in zip(self.names, self._secrets, strict=True) if secret not in self._lines
            )
            raise TransferError(Reason.LATE, "did not join the ring", rank=missing) from None
        try:
            line.settimeout(max(seconds_left(deadline), 1e-3))
            secret = line.recv(_SECRET_BYTES + 1) if _user_of(line) == os.getuid() else b""
        except OSError:
            secret = b""
        if secret in self._secrets and secret not in self._lines:
            self._lines[secret] = line
        else:  # somebody else, or nobody any more: who is missing is told at the deadline
            line.close()


def call(ticket: bytes, deadline: float) -> socket.socket:
    """A receiver's end.

    Args:
        ticket: of this receiver: see `Callers.tickets`.
        deadline: of `time.monotonic`, seconds.

    Raises:
        UserError: the publisher belongs to another user.
        TransferError: ``DEAD``: nobody is there; ``MISMATCH``: this is no ticket.
    """
    try:
        told = msgspec.msgpack.decode(ticket, type=_Ticket)
    except msgspec.DecodeError as error:
        raise TransferError(Reason.MISMATCH, f"not a ticket: {error}", rank="publisher") from None
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.settimeout(max(seconds_left(deadline), 1e-3))
        sock.connect(b"\0" + told.address.encode())
        if _user_of(sock) != os.getuid():
            raise UserError("the publisher belongs to another user", fix="run both processes as one user")
        sock.send(told.secret)
    except (OSError, UserError) as error:
        sock.close()
        if isinstance(error, UserError):
            raise
        raise TransferError(Reason.DEAD, f"nobody at the ring: {error.strerror or error}", rank="publisher") from None
    return sock


def _user_of(sock: socket.socket) -> int:
    """The user of the process at the other end."""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1])
