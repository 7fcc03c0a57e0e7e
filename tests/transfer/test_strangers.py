"""Whoever connects and is no publisher: he keeps nobody out, and what he says is refused by name."""

from __future__ import annotations

import socket
import struct
import time

import pytest
import torch

from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.weights import Publisher, Receiver
from tests.transfer.weights_support import Side, home, receivers, same

TENSORS = {"w": torch.arange(1000.0)}
GIANT = struct.pack(">IQ", (1 << 31) - 1, 0)


def stranger(receiver: Receiver, says: bytes) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(receiver.address.removeprefix("unix:"))
    sock.sendall(says)
    return sock


@pytest.mark.parametrize("says", [b"", b"\0", struct.pack(">IQ", 500, 7), struct.pack(">IQ", 500, 7) + b"x" * 499])
@pytest.mark.parametrize("early", [True, False])
def test_who_stops_in_his_greeting_keeps_nobody_out(says: bytes, early: bool) -> None:
    with receivers() as [receiver]:
        if early:
            with stranger(receiver, says), Publisher([receiver.address], deadline=20) as publisher:
                side = Side(receiver)
                publisher.publish(TENSORS)
                same(side.received().tensors, TENSORS)
            return
        side = Side(receiver)
        with stranger(receiver, says), Publisher([receiver.address], deadline=20) as publisher:
            time.sleep(0.1)  # what he says is read
            publisher.publish(TENSORS)
            same(side.received().tensors, TENSORS)


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: me\r\n\r\n", Reason.CORRUPT),
        (GIANT, Reason.CORRUPT),
        (struct.pack(">IQ", 1 << 30, 0), Reason.CORRUPT),
        (struct.pack(">IQ", 4, 0) + b"\x93\x01\x02\x03", Reason.CORRUPT),
        (b"\xff" * 64, Reason.CORRUPT),
    ],
)
def test_what_is_no_greeting_is_refused_and_the_next_epoch_comes(says: bytes, reason: Reason) -> None:
    with receivers() as [receiver]:
        side = Side(receiver)
        with stranger(receiver, says):
            outcome = side.outcome(20)
        assert isinstance(outcome, TransferError)
        assert outcome.reason is reason
        side = Side(receiver)
        with Publisher([receiver.address], deadline=20) as publisher:
            publisher.publish(TENSORS)
        same(side.received().tensors, TENSORS)


def test_a_stranger_who_stops_does_not_lengthen_the_wait() -> None:
    with home() as place, Receiver(f"unix:{place}/r", rank="r") as receiver:
        side = Side(receiver, wait=0.5)
        with stranger(receiver, b"\0\0"):
            outcome = side.outcome(20)
        assert isinstance(outcome, TransferError)
        assert (outcome.reason, outcome.rank) == (Reason.LATE, "publisher")
