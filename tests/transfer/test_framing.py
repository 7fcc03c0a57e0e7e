"""Messages and bytes on a socket: they come as they were sent, or it is an error that says what."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import msgspec
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.framing import MOST_BYTES, PIECE_BYTES, Incoming, Outgoing
from proctor.transfer.wire import Abort, Commit, Release, ToReceiver

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    with near, far:
        yield near, far


def header(length: int, checksum: int) -> bytes:
    return struct.pack(">IQ", length, checksum)


def test_messages_come_in_their_order(pair: Pair) -> None:
    out, incoming = Outgoing(pair[0]), Incoming(pair[1], ToReceiver)
    sent = [Release(1), Commit(1, 2, 3), Release(2)]
    for message in sent:
        out.message(message)
    out.send()
    assert out.empty
    assert [incoming.message() for _ in range(4)] == [*sent, None]


@given(st.binary(min_size=1, max_size=5000), st.data())
def test_a_stream_in_any_pieces_is_the_same_stream(payload: bytes, data: st.DataObject) -> None:
    near, far = socket.socketpair()
    with near, far:
        far.setblocking(False)
        encoded = msgspec.msgpack.encode(Release(7))
        whole = header(len(encoded), xxhash.xxh3_64_intdigest(encoded)) + encoded
        whole += header(len(payload) | 1 << 31, 0) + payload
        incoming, target, messages, filled = Incoming(far, ToReceiver), bytearray(len(payload)), [], 0
        while whole:
            cut = data.draw(st.integers(1, len(whole)))
            near.sendall(whole[:cut])
            whole = whole[cut:]
            if (message := incoming.message()) is not None:
                messages.append(message)
            filled += incoming.bytes(memoryview(target)[filled:]) if messages else 0
        while filled < len(payload):
            filled += incoming.bytes(memoryview(target)[filled:])
        assert (messages, bytes(target)) == ([Release(7)], payload)


def test_a_bucket_of_many_pieces(pair: Pair) -> None:
    out, incoming = Outgoing(pair[0]), Incoming(pair[1], ToReceiver)
    payload = bytes(range(256)) * (2 * PIECE_BYTES // 256 + 1)
    target, filled, sent = bytearray(len(payload)), 0, []
    out.bytes(memoryview(payload), lambda: sent.append(True))
    out.message(Release(1))
    while filled < len(payload):
        assert not sent or filled > 0
        out.send()
        filled += incoming.bytes(memoryview(target)[filled:])
    assert (bytes(target), sent, incoming.message()) == (payload, [True], Release(1))


def test_an_abort_overtakes_what_has_not_begun(pair: Pair) -> None:
    out, incoming = Outgoing(pair[0]), Incoming(pair[1], ToReceiver)
    out.bytes(memoryview(bytes(4 * PIECE_BYTES)), lambda: None)
    out.send()  # as much as the system takes: a part of the first piece
    out.forget()
    abort = Abort(1, "r", Reason.CANCELLED, "")
    out.message(abort)
    target, filled, message = bytearray(4 * PIECE_BYTES), 0, None
    while message is None:
        out.send()
        filled += incoming.bytes(memoryview(target)[filled:])
        message = incoming.message()
    assert message == abort
    assert filled == PIECE_BYTES


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (header(3, 0) + b"abc", Reason.CORRUPT),
        (header(3, xxhash.xxh3_64_intdigest(b"abc")) + b"abc", Reason.MISMATCH),
        (header(MOST_BYTES + 1, 0), Reason.CORRUPT),
        (header(0, 0), Reason.CORRUPT),
        (header(PIECE_BYTES + 1 | 1 << 31, 0), Reason.CORRUPT),
        (header(1 | 1 << 31, 1) + b"a", Reason.CORRUPT),
        (header(1 << 31, 0), Reason.CORRUPT),
    ],
)
def test_what_is_no_message(pair: Pair, data: bytes, reason: Reason) -> None:
    incoming = Incoming(pair[1], ToReceiver)
    pair[0].sendall(data)
    with pytest.raises(TransferError) as raised:
        incoming.message()
    assert raised.value.reason is reason


def test_more_bytes_than_were_due(pair: Pair) -> None:
    pair[0].sendall(header(4 | 1 << 31, 0) + b"abcd")
    with pytest.raises(TransferError, match="4 bytes come where 3"):
        Incoming(pair[1], ToReceiver).bytes(memoryview(bytearray(3)))


def test_the_other_side_hangs_up(pair: Pair) -> None:
    incoming, out = Incoming(pair[1], ToReceiver), Outgoing(pair[1])
    pair[0].close()
    with pytest.raises(TransferError, match="hung up") as raised:
        incoming.message()
    assert raised.value.reason is Reason.DEAD
    out.message(Release(1))
    with pytest.raises(TransferError, match="broke"):
        out.send()
