"""Whoever fails, all sides end within the deadline, know who it was, and can try again."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import torch

from proctor.rows import UserError
from proctor.transfer.control import Address, Channel, connect
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.manifest import ALIGN, Manifest
from proctor.transfer.peers import Peers
from proctor.transfer.tensors import plan
from proctor.transfer.weights import Publisher, Receiver, State
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
from tests.transfer.weights_support import Side, home, in_thread, receivers, same

TENSORS = {"a": torch.arange(600, dtype=torch.float32), "b": torch.ones(5)}
SHORT = 0.3
"""Seconds, where somebody has to be late; everywhere else nobody is, however busy the machine."""
LONG = 30.0


def failed(publisher: Publisher, tensors: Any = TENSORS, **options: Any) -> TransferError:
    with pytest.raises(TransferError) as raised:
        publisher.publish(tensors, **options)
    return raised.value


def told(side: Side) -> TransferError:
    outcome = side.outcome()
    assert isinstance(outcome, TransferError), outcome
    assert side.receiver.state is State.FAILED
    return outcome


@contextlib.contextmanager
def trio(
    transport: str = "stream", deadline: float = LONG, **second: Any
) -> Iterator[tuple[Publisher, Receiver, Receiver]]:
    """A publisher, a plain receiver r0, and r1 with other options."""
    with home() as place:
        first = Receiver(f"unix:{place}/0", rank="r0")
        other = Receiver(f"unix:{place}/1", rank="r1", **second)
        addresses = [first.address, other.address]
        with first, other, Publisher(addresses, bucket_bytes=512, deadline=deadline, transport=transport) as publisher:
            yield publisher, first, other


def works(publisher: Publisher, *made: Receiver) -> None:
    """The next epoch does."""
    publisher._deadline = LONG
    sides = [Side(receiver) for receiver in made]
    publisher.publish(TENSORS)
    for side in sides:
        same(side.received().tensors, TENSORS)


def test_who_does_not_come_is_named() -> None:
    with trio(deadline=SHORT) as (publisher, first, other):
        side = Side(first)
        error = failed(publisher)
        assert (error.reason, error.rank) == (Reason.LATE, other.address)
        assert (told(side).reason, told(side).rank) == (Reason.LATE, other.address)
        works(publisher, first, other)


def test_who_is_not_there_is_named() -> None:
    with home() as place, Publisher([f"unix:{place}/nobody"], deadline=SHORT) as publisher:
        error = failed(publisher)
        assert (error.reason, error.rank) == (Reason.LATE, f"unix:{place}/nobody")


@pytest.mark.parametrize("transport", ["stream", "shm", "gloo"])
def test_who_hangs_in_the_middle_is_named(transport: str) -> None:
    """trl #6796: a broadcast without a deadline hung until the limit of the job."""
    going = threading.Event()
    with trio(transport, SHORT) as (publisher, first, other):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(other._destination, "take", lambda bucket, held: going.wait(10))
            sides = [Side(first), Side(other)]
            error = failed(publisher)
            going.set()
            assert (error.reason, error.rank) == (Reason.LATE, "r1"), error
            assert (told(sides[0]).reason, told(sides[0]).rank) == (Reason.LATE, "r1")
            told(sides[1])
        works(publisher, first, other)


@pytest.mark.parametrize("transport", ["stream", "shm", "gloo"])
def test_an_exception_at_one_ends_the_epoch_at_all(transport: str) -> None:
    with trio(transport) as (publisher, first, other):
        with pytest.MonkeyPatch.context() as patch:

            def out_of_memory(bucket: object, held: object) -> None:
                raise MemoryError("no room for this bucket")

            patch.setattr(other._destination, "take", out_of_memory)
            sides = [Side(first), Side(other)]
            error = failed(publisher)
            assert (error.reason, error.rank, error.epoch) == (Reason.EXCEPTION, "r1", 1)
            assert "MemoryError: no room" in error.message
            assert (told(sides[0]).reason, told(sides[0]).rank) == (Reason.EXCEPTION, "r1")
            assert isinstance(told(sides[1]).__cause__, MemoryError)
        works(publisher, first, other)


@pytest.mark.parametrize("transport", ["stream", "shm", "gloo"])
def test_a_retry_is_a_new_epoch_and_not_the_rest_of_the_old_one(transport: str) -> None:
    """prime-rl #3361: a retry on a half-consumed stream read payload as a header."""

    def source() -> Iterator[tuple[str, torch.Tensor]]:
        yield "a", TENSORS["a"]
        raise OSError("disk on fire")

    with trio(transport) as (publisher, first, other):
        sides = [Side(first), Side(other)]
        error = failed(publisher, source(), manifest=plan(TENSORS).manifest)
        assert (error.reason, error.rank, error.epoch) == (Reason.EXCEPTION, "publisher", 1)
        for side in sides:
            assert (told(side).reason, told(side).rank) == (Reason.EXCEPTION, "publisher")
            assert "disk on fire" in told(side).message
        works(publisher, first, other)
        assert first.current is not None
        assert first.current.epoch == 2


def test_an_interrupt_ends_the_epoch_and_goes_on() -> None:
    def source() -> Iterator[tuple[str, torch.Tensor]]:
        yield "a", TENSORS["a"]
        raise KeyboardInterrupt

    with trio() as (publisher, first, other):
        sides = [Side(first), Side(other)]
        with pytest.raises(KeyboardInterrupt):
            publisher.publish(source(), manifest=plan(TENSORS).manifest)
        for side in sides:
            assert (told(side).reason, told(side).rank) == (Reason.CANCELLED, "publisher")
        works(publisher, first, other)


def test_no_room_for_an_arena_is_told_before_a_byte() -> None:
    """sglang #10597: the receiver ran out of memory in the middle, or was killed."""
    huge = {"a": torch.zeros(1).expand(1 << 44)}
    with receivers() as [receiver], Publisher([receiver.address]) as publisher:
        side = Side(receiver)
        error = failed(publisher, huge)
        assert (error.reason, error.rank) == (Reason.EXCEPTION, "r0")
        assert "no room for 70,368,744,177,664 bytes" in error.message
        told(side)
        works(publisher, receiver)


def test_other_parameters_are_told_before_the_first_byte() -> None:
    """SkyRL #2114: a flag that only one side had was a hang inside NCCL."""
    with trio(transports=["gloo"]) as (publisher, first, other), pytest.MonkeyPatch.context() as patch:
        sent = []
        patch.setattr(Peers, "send_bytes", lambda *arguments: sent.append(arguments))
        sides = [Side(first), Side(other)]
        error = failed(publisher)
        assert (error.reason, error.rank) == (Reason.MISMATCH, "r1")
        assert "only gloo is taken" in error.message
        assert told(sides[0]).rank == "r1"
        assert not sent


@pytest.mark.parametrize(
    ("into", "message"),
    [
        ({"a": torch.zeros(600)}, "not expected: b"),
        ({"a": torch.zeros(600), "b": torch.zeros(5), "c": torch.zeros(5)}, "missing: c"),
        ({"a": torch.zeros(600), "b": torch.zeros(5).half()}, r"b is F32[5], not F16[5]"),
        ({"a": torch.zeros(20, 30), "b": torch.zeros(5)}, r"a is F32[600], not F32[20, 30]"),
    ],
)
def test_another_model_is_refused_with_its_names(into: dict[str, torch.Tensor], message: str) -> None:
    with trio(into=into) as (publisher, first, other):
        sides = [Side(first), Side(other)]
        error = failed(publisher)
        assert (error.reason, error.rank) == (Reason.MISMATCH, "r1")
        assert message in error.message
        assert told(sides[0]).reason is Reason.MISMATCH
        assert not any(tensor.any() for tensor in into.values())


def test_names_that_are_wanted_in_an_arena() -> None:
    with trio(expects={"a": ("F32", (600,))}) as (publisher, first, other):
        Side(first), Side(other)
        assert "not expected: b" in failed(publisher).message


def test_tensors_in_place_are_not_readable_until_a_whole_epoch_came() -> None:
    into = {name: torch.zeros_like(tensor) for name, tensor in TENSORS.items()}

    def source() -> Iterator[tuple[str, torch.Tensor]]:
        yield "a", TENSORS["a"] + 1
        raise OSError("disk on fire")

    with receivers(into=into) as [receiver], Publisher([receiver.address], bucket_bytes=512) as publisher:
        works(publisher, receiver)
        assert receiver.current is not None
        side = Side(receiver)
        failed(publisher, source(), manifest=plan(TENSORS).manifest)
        told(side)
        assert receiver.current is None
        works(publisher, receiver)
        assert receiver.current is not None


def test_an_arena_stays_readable_when_the_next_epoch_fails() -> None:
    with receivers() as [receiver], Publisher([receiver.address], bucket_bytes=512) as publisher:
        works(publisher, receiver)
        side = Side(receiver)
        failed(publisher, iter([("a", TENSORS["a"] + 1)]), manifest=plan(TENSORS).manifest)
        told(side)
        assert receiver.current is not None
        same(receiver.current.tensors, TENSORS)


def test_two_receivers_of_one_name() -> None:
    with home() as place:
        made = [Receiver(f"unix:{place}/{index}", rank="same") for index in range(2)]
        with made[0], made[1], Publisher([receiver.address for receiver in made]) as publisher:
            sides = [Side(receiver) for receiver in made]
            error = failed(publisher)
            assert (error.reason, error.rank) == (Reason.MISMATCH, "same")
            for side in sides:
                told(side)


def test_a_name_that_no_receiver_has() -> None:
    for rank in ("", "publisher"):
        with pytest.raises(UserError, match="cannot be called"):
            Receiver("tcp:127.0.0.1:0", rank=rank)


def test_nothing_begins() -> None:
    with receivers() as [receiver]:
        with pytest.raises(TransferError, match="no epoch began") as raised:
            receiver.receive(0.05)
        assert raised.value.reason is Reason.LATE
        assert receiver.state is State.IDLE


def test_a_receiver_is_cancelled() -> None:
    with receivers() as [receiver]:
        side = Side(receiver, wait=20)
        receiver.cancel()
        assert told(side).reason is Reason.CANCELLED


@pytest.mark.parametrize("transport", ["stream", "shm", "gloo"])
def test_a_publisher_is_cancelled(transport: str) -> None:
    begun = threading.Event()

    def source() -> Iterator[tuple[str, torch.Tensor]]:
        yield "a", TENSORS["a"]
        begun.set()
        time.sleep(0.1)
        yield "b", TENSORS["b"]

    with trio(transport) as (publisher, first, other):
        sides = [Side(first), Side(other)]
        canceller = in_thread(lambda: (begun.wait(10), publisher.cancel()))
        assert failed(publisher, source(), manifest=plan(TENSORS).manifest).reason is Reason.CANCELLED
        canceller.join(10)
        for side in sides:
            assert (told(side).reason, told(side).rank) == (Reason.CANCELLED, "publisher")


def test_one_publish_at_a_time() -> None:
    begun, go = threading.Event(), threading.Event()

    def source() -> Iterator[tuple[str, torch.Tensor]]:
        begun.set()
        go.wait(10)
        yield from TENSORS.items()

    with receivers() as [receiver], Publisher([receiver.address]) as publisher:
        side = Side(receiver)
        first = in_thread(lambda: publisher.publish(source(), manifest=plan(TENSORS).manifest))
        begun.wait(10)
        with pytest.raises(UserError, match="publishing already"):
            publisher.publish(TENSORS)
        go.set()
        first.join(10)
        side.received()


def test_a_receiver_that_was_started_again_is_found() -> None:
    with home() as place, Publisher([f"unix:{place}/s"]) as publisher:
        for _ in range(2):
            with Receiver(f"unix:{place}/s", rank="r") as receiver:
                works(publisher, receiver)


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
