"""Whoever fails, all sides end within the deadline, know who it was, and can try again."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from proctor.rows import UserError
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.peers import Peers
from proctor.transfer.tensors import plan
from proctor.transfer.weights import Publisher, Receiver, State
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
