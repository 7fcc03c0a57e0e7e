"""Greetings, frames and answers that do not fit, said by hand by one side."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import Any

import msgspec
import pytest

from proctor.transfer.control import Address, Channel, connect
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.manifest import ALIGN, Manifest
from proctor.transfer.tensors import plan
from proctor.transfer.weights import Publisher, Receiver
from proctor.transfer.wire import (
    PROTOCOL,
    Ack,
    Began,
    Commit,
    Frame,
    Hello,
    Parameters,
    Release,
    ToPublisher,
    ToReceiver,
    Welcome,
)
from tests.transfer.test_weights_errors import LONG, TENSORS, failed, told
from tests.transfer.weights_support import Side, home, in_thread, receivers, same


class ByHand:
    """A publisher that says what it is told."""

    def __init__(self, receiver: Receiver, **changes: Any) -> None:
        self._never, self._other = socket.socketpair()
        self._never.setblocking(False)
        until = time.monotonic() + 5
        self.channel = Channel(
            connect(Address.parse(receiver.address), until), ToPublisher, "r0", cancelled=self._never
        )
        self.manifest = plan(TENSORS).manifest
        hello = Hello(
            PROTOCOL, 5, self.manifest.digest, self.manifest.to_bytes(), Parameters(1024, 2, ALIGN, "stream"), LONG
        )
        self.say(msgspec.structs.replace(hello, **changes))

    def say(self, message: msgspec.Struct) -> None:
        self.channel.send(message, time.monotonic() + 5)

    def hear(self) -> Any:
        return self.channel.receive(time.monotonic() + 5)

    def refused(self) -> TransferError:
        try:
            while True:
                self.hear()
        except TransferError as error:
            return error

    def close(self) -> None:
        for sock in (self.channel, self._never, self._other):
            sock.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"protocol": 2}, "protocol 2"),
        ({"epoch": 0}, "epoch 0 after epoch 0"),
        ({"manifest_sha256": "0" * 64}, "another SHA-256"),
        ({"manifest": b"\x00"}, "not a manifest"),
        ({"parameters": Parameters(1000, 2, ALIGN, "stream")}, "wire parameters"),
        ({"parameters": Parameters(0, 2, ALIGN, "stream")}, "wire parameters"),
        ({"parameters": Parameters(1024, 0, ALIGN, "stream")}, "wire parameters"),
        ({"parameters": Parameters(1024, 2, 64, "stream")}, "wire parameters"),
        ({"parameters": Parameters(1024, 2, ALIGN, "pigeon")}, "transport pigeon"),
    ],
)
def test_a_greeting_that_does_not_fit(changes: dict[str, Any], message: str) -> None:
    with receivers() as [receiver]:
        side, publisher = Side(receiver), ByHand(receiver, **changes)
        error = publisher.refused()
        assert (error.reason, error.rank) == (Reason.MISMATCH, "r0")
        assert message in error.message
        assert told(side).reason is Reason.MISMATCH
        publisher.close()


def frame(manifest: Manifest, number: int, **changes: Any) -> Frame:
    bucket = manifest.buckets(1024)[number]
    made = Frame(5, bucket.sequence, bucket.start, bucket.nbytes, bucket.first, bucket.count, 0)
    return msgspec.structs.replace(made, **changes)


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ({"epoch": 4}, "Frame of epoch 4, which is another one"),
        ({"sequence": 1}, "bucket 1 came where 0 was due"),
        ({"nbytes": 512}, "bucket 0 came where 0 was due"),
        ({"nbytes": 4096}, "bucket 0 came where 0 was due"),
        ({"start": 256}, "bucket 0 came where 0 was due"),
        ({"count": 2}, "bucket 0 came where 0 was due"),
    ],
)
def test_a_frame_of_another_epoch_or_place_is_refused(first: dict[str, Any], message: str) -> None:
    with receivers() as [receiver]:
        side, publisher = Side(receiver), ByHand(receiver)
        assert isinstance(publisher.hear(), Welcome)
        publisher.say(frame(publisher.manifest, 0, **first))
        assert message in publisher.refused().message
        assert told(side).reason is Reason.MISMATCH
        publisher.close()


@pytest.mark.parametrize("message", [Commit(5, 3, 0), Release(5), frame(plan(TENSORS).manifest, 1)])
def test_a_message_out_of_turn_is_refused(message: msgspec.Struct) -> None:
    with receivers() as [receiver]:
        side, publisher = Side(receiver), ByHand(receiver)
        publisher.hear()
        publisher.say(message)
        assert publisher.refused().reason is Reason.MISMATCH
        assert told(side).rank == "r0"
        publisher.close()


def test_a_connection_that_says_nothing_holds_nobody_up() -> None:
    with receivers() as [receiver], Publisher([receiver.address]) as publisher:
        with contextlib.closing(connect(Address.parse(receiver.address), time.monotonic() + 5)):
            side = Side(receiver)
            time.sleep(0.05)
            publisher.publish(TENSORS)
        same(side.received().tensors, TENSORS)


@pytest.mark.parametrize(
    ("answers", "reason", "message"),
    [
        ([Welcome("w", 1, 1, "0" * 64, Parameters(1024, 2, ALIGN, "stream"))], Reason.MISMATCH, "understood another"),
        ([Ack(1, "w", "prepared")], Reason.MISMATCH, "answered with Ack, not Welcome"),
        ([Began(7, 0)], Reason.MISMATCH, "answered for epoch 7"),
        ([], Reason.DEAD, "hung up"),
    ],
)
def test_answers_that_do_not_fit(answers: list[msgspec.Struct], reason: Reason, message: str) -> None:
    with home() as place, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{place}/s")
        listener.listen(1)

        def answer() -> None:
            never, other = socket.socketpair()
            never.setblocking(False)
            with never, other:
                channel = Channel(listener.accept()[0], ToReceiver, "publisher", cancelled=never)
                channel.receive(time.monotonic() + 5)
                for made in answers:
                    channel.send(made, time.monotonic() + 5)
                with contextlib.suppress(TransferError):
                    if answers:
                        channel.receive(time.monotonic() + 5)
                channel.close()

        thread = in_thread(answer)
        with Publisher([f"unix:{place}/s"], bucket_bytes=1024, deadline=5) as publisher:
            error = failed(publisher)
        thread.join(10)
        assert (error.reason, error.epoch) == (reason, 1)
        assert message in error.message
