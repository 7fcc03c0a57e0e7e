"""How messages and bytes lie on a socket: a header of 12 bytes, then what it announces.

The header is a length (4 bytes, big-endian; its top bit says: bytes of a bucket, no message) and the XXH3-64 of the
message (8 bytes; 0 for bytes, whose bucket has a checksum of its own). A bucket goes in pieces of at most
`PIECE_BYTES`, so that an abort can overtake what is left of it.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, final

import msgspec
import xxhash

from proctor.transfer.errors import Reason, TransferError

PIECE_BYTES = 1 << 20
MOST_BYTES = 256 << 20
"""Longest message: a manifest of more than a million tensors."""

_HEADER = struct.Struct(">IQ")
_BYTES = 1 << 31
_encoder = msgspec.msgpack.Encoder()


class _Header(NamedTuple):
    nbytes: int
    checksum: int
    is_bytes: bool


@final
class Incoming:
    """Takes the stream of a socket apart, as far as it has come. Reads never further than what it was asked for.

    Args:
        sock: not blocking.
        messages: the union of the messages that may come.
    """

    def __init__(self, sock: socket.socket, messages: Any) -> None:
        self._sock = sock
        self._decoder = msgspec.msgpack.Decoder(messages)
        self._header: _Header | None = None
        self._part = bytearray(_HEADER.size)
        self._filled = 0

    def message(self) -> Any | None:
        """The next message; None if it is not here yet, or if bytes come first.

        Raises:
            TransferError: ``DEAD``: the other side hung up; ``CORRUPT``: something else came than was sent;
                ``MISMATCH``: it is no message of this protocol.
        """
        header = self._announced()
        if header is None or header.is_bytes or not self._fill_part():
            return None
        data = bytes(self._part)
        self._expect(None)
        if xxhash.xxh3_64_intdigest(data) != header.checksum:
            raise TransferError(Reason.CORRUPT, "a message has another checksum than it was sent with")
        try:
            return self._decoder.decode(data)
        except (msgspec.DecodeError, ValueError) as error:
            raise TransferError(Reason.MISMATCH, f"not a message of this protocol: {error}") from None

    def bytes(self, target: memoryview) -> int:
        """Takes bytes of a bucket into `target`; how many. 0 if none are here yet, or if a message comes first.

        Raises:
            TransferError: see `message`; ``CORRUPT`` also where more bytes are announced than `target` takes.
        """
        header = self._announced()
        if header is None or not header.is_bytes:
            return 0
        if header.nbytes > len(target):
            raise TransferError(Reason.CORRUPT, f"{header.nbytes} bytes come where {len(target)} were left to come")
        got = self._receive(target[: header.nbytes])
        left = header.nbytes - got
        self._expect(header._replace(nbytes=left) if left else None)
        return got

    @property
    def next_is_bytes(self) -> bool:
        """Whether the rest of a piece comes next, as far as is known."""
        return self._header is not None and self._header.is_bytes

    def _announced(self) -> _Header | None:
        if self._header is None and self._fill_part():
            length, checksum = _HEADER.unpack(self._part)
            header = _Header(length & ~_BYTES, checksum, bool(length & _BYTES))
            most = PIECE_BYTES if header.is_bytes else MOST_BYTES
            if not 0 < header.nbytes <= most or (header.is_bytes and checksum):
                raise TransferError(Reason.CORRUPT, f"{header.nbytes:,} bytes are announced by a header that is none")
            self._expect(header)
        return self._header

    def _expect(self, header: _Header | None) -> None:
        self._header, self._filled = header, 0
        if header is None:
            self._part = bytearray(_HEADER.size)
        elif not header.is_bytes:
            self._part = bytearray(header.nbytes)

    def _fill_part(self) -> bool:
        while self._filled < len(self._part):
            got = self._receive(memoryview(self._part)[self._filled :])
            if not got:
                return False
            self._filled += got
        return True

    def _receive(self, target: memoryview) -> int:
        try:
            got = self._sock.recv_into(target)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise _broken(error) from None
        if not got:
            raise TransferError(Reason.DEAD, "hung up")
        return got


class _Unit:
    """What must not be torn: a message, or a piece of a bucket with its header."""

    def __init__(self, parts: list[memoryview], sent: Callable[[], None] | None = None) -> None:
        self.parts, self.sent, self.begun = parts, sent, False


@final
class Outgoing:
    """What waits to be sent on a socket.

    Args:
        sock: not blocking.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._units: deque[_Unit] = deque()

    @property
    def empty(self) -> bool:
        """Whether the system has everything."""
        return not self._units

    def message(self, message: msgspec.Struct) -> None:
        """Behind what waits already.

        Raises:
            TransferError: ``MISMATCH``: it is longer than `MOST_BYTES`.
        """
        data = _encoder.encode(message)
        if len(data) > MOST_BYTES:
            raise TransferError(Reason.MISMATCH, f"a message of {len(data):,} bytes is too long: too many tensors")
        header = _HEADER.pack(len(data), xxhash.xxh3_64_intdigest(data))
        self._units.append(_Unit([memoryview(header + data)]))

    def bytes(self, data: memoryview, sent: Callable[[], None]) -> None:
        """Bytes of a bucket, behind what waits already; `sent` is called when they may change again."""
        for start in range(0, len(data), PIECE_BYTES):
            piece = data[start : start + PIECE_BYTES]
            last = start + PIECE_BYTES >= len(data)
            header = memoryview(_HEADER.pack(len(piece) | _BYTES, 0))
            self._units.append(_Unit([header, piece], sent if last else None))

    def forget(self) -> None:
        """Drops what waits, but for the rest of what has begun: so what is sent next stays legible."""
        self._units = deque(unit for unit in self._units if unit.begun)

    def send(self) -> None:
        """As much as the system takes now.

        Raises:
            TransferError: ``DEAD``.
        """
        while self._units:
            unit = self._units[0]
            try:
                sent = self._sock.sendmsg(unit.parts)
            except BlockingIOError:
                return
            except OSError as error:
                raise _broken(error) from None
            unit.begun = True
            while unit.parts and sent >= len(unit.parts[0]):
                sent -= len(unit.parts.pop(0))
            if unit.parts:
                unit.parts[0] = unit.parts[0][sent:]
            else:
                self._units.popleft()
                if unit.sent:
                    unit.sent()


def _broken(error: OSError) -> TransferError:
    return TransferError(Reason.DEAD, f"the connection broke: {error.strerror or error}")
