from __future__ import annotations

import socket

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.engines import EngineConfig, Fault
from proctor.rows import Response
from proctor.supervise import wire
from proctor.supervise.line import Line
from tests.supervise.helpers import ask

MESSAGES: list[wire.ToChild] = [
    wire.Start(EngineConfig("vllm", "models/a", options={"nested": {"list": [1, 2.5, None]}}, faults=(Fault("exit"),))),
    wire.Work(ask(1, images=2)),
    wire.Work(ask(2**40)),
]


@given(st.lists(st.integers(1, 200), max_size=30))
def test_frames_survive_any_cutting(cuts: list[int]) -> None:
    stream = b"".join(wire.pack(message) for message in MESSAGES)
    unpacker: wire.Unpacker[wire.ToChild] = wire.Unpacker(wire.ToChild)
    received, start = [], 0
    for cut in [*cuts, len(stream)]:
        received += unpacker.feed(stream[start : start + cut])
        start += cut
    assert received == MESSAGES


@pytest.mark.parametrize(
    "body", [b"\xc1", msgspec.msgpack.encode({"type": "answer"}), msgspec.msgpack.encode({"type": "other"}), b""]
)
def test_what_is_no_message_is_refused(body: bytes) -> None:
    unpacker: wire.Unpacker[wire.FromChild] = wire.Unpacker(wire.FromChild)
    with pytest.raises(wire.ProtocolError):
        unpacker.feed(len(body).to_bytes(4, "big") + body)


def test_a_length_that_cannot_be_is_refused_before_it_is_waited_for() -> None:
    unpacker: wire.Unpacker[wire.FromChild] = wire.Unpacker(wire.FromChild)
    with pytest.raises(wire.ProtocolError, match="a frame of"):
        unpacker.feed(b"Traceback (most recent call last)")


def test_a_line_sends_what_is_larger_than_the_kernel_takes_at_once() -> None:
    ours, theirs = socket.socketpair()
    line = Line(ours)
    with theirs:
        request = msgspec.structs.replace(ask(1, images=1), images=(b"\xff" * 5_000_000,))
        line.send(wire.Work(request))
        line.flush()
        assert line.wants_to_send
        messages = wire.receive(theirs)
        theirs.settimeout(5)
        unpacker: wire.Unpacker[wire.ToChild] = wire.Unpacker(wire.ToChild)
        received: list[wire.ToChild] = []
        while not received:
            line.flush()
            received += unpacker.feed(theirs.recv(1 << 20))
        assert received == [wire.Work(request)]
        line.end_feed()
        assert list(messages) == []
        theirs.sendall(wire.pack(wire.Answer(Response(1, text="yes"), at=2.5, tokens=3)))
    assert line.receive() == [wire.Answer(Response(1, text="yes"), at=2.5, tokens=3)]
    assert line.receive() == []
    assert line.ended
    line.send(MESSAGES[1])
    line.flush()
    assert not line.wants_to_send
    line.close()
