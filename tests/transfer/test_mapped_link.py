"""The link whose receivers read the publisher's buffers where they lie, with threads for processes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
import torch

from proctor.transfer.devices.base import Device
from proctor.transfer.devices.cpu import CpuDevice
from proctor.transfer.devices.virtual import VirtualDevice
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.links.mapped import Go, MappedReceiver, MappedSender, Sharing, Taken
from proctor.transfer.owner import WrongThreadError
from proctor.transfer.slots import Ring
from tests.transfer.pipelines import NBYTES, expected, publish, receive, without

SECONDS = 20.0


class Registry(Sharing):
    """Shares within one process."""

    def __init__(self) -> None:
        self.shared: list[torch.Tensor] = []

    def share(self, buffer: torch.Tensor) -> bytes:
        self.shared.append(buffer)
        return str(len(self.shared) - 1).encode()

    def open(self, shared: bytes) -> torch.Tensor:
        return self.shared[int(shared)]


class Pair:
    def __init__(self, receivers: int = 1, seconds: float = SECONDS) -> None:
        self.sharing = Registry()
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(receivers)]
        self.sender = MappedSender(self.sharing, [(f"r{i}", out) for i, (out, _) in enumerate(pairs)], seconds)
        self.inner = [into for _, into in pairs]
        self.receivers = [MappedReceiver(self.sharing, into) for into in self.inner]

    def close(self) -> None:
        self.sender.close()
        for receiver in self.receivers:
            receiver.close()


@pytest.fixture
def pair() -> Iterator[Callable[..., Pair]]:
    made: list[Pair] = []

    def make(**options: Any) -> Pair:
        made.append(Pair(**options))
        return made[-1]

    yield make
    for each in made:
        each.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "mapped-link"]


def run(made: Pair, device: Device, buckets: int, *, receivers_buffers: int = 2) -> list[list[torch.Tensor]]:
    """Sends `expected` to all receivers and overwrites the sources; what arrived."""
    sources = [value.clone() for value in expected(buckets)]
    arrived = [[torch.zeros(NBYTES, dtype=torch.uint8) for _ in sources] for _ in made.receivers]
    with ThreadPoolExecutor() as pool:
        ends = [
            pool.submit(receive, device, Ring(device, NBYTES, receivers_buffers), receiver, targets)
            for receiver, targets in zip(made.receivers, arrived, strict=True)
        ]
        publish(device, Ring(device, NBYTES), made.sender, sources)
        for source in sources:
            source.fill_(255)
        for end in ends:
            end.result(SECONDS)
    return arrived


@pytest.mark.parametrize("receivers", [1, 3])
@pytest.mark.parametrize("device", [CpuDevice(), VirtualDevice("newest"), VirtualDevice("late")])
def test_all_receivers_get_all_buckets(device: Device, receivers: int, pair: Callable[..., Pair]) -> None:
    made = pair(receivers=receivers)
    for targets in run(made, device, 9):
        assert all(torch.equal(a, b) for a, b in zip(targets, expected(9), strict=True))
    assert len(made.sharing.shared) == 2 * receivers  # each buffer is shared once with each, not once per bucket


def test_another_ring_is_shared_again(pair: Callable[..., Pair]) -> None:
    made, device = pair(), CpuDevice()
    targets = [torch.zeros(NBYTES, dtype=torch.uint8) for _ in range(7)]

    def receive_twice() -> None:
        receive(device, Ring(device, NBYTES), made.receivers[0], targets[:3])
        receive(device, Ring(device, NBYTES), made.receivers[0], targets[3:])

    with ThreadPoolExecutor() as pool:
        end = pool.submit(receive_twice)
        publish(device, Ring(device, NBYTES), made.sender, expected(3))
        publish(device, Ring(device, NBYTES), made.sender, expected(7)[3:])
        end.result(SECONDS)
    assert all(torch.equal(a, b) for a, b in zip(targets, expected(7), strict=True))
    assert len(made.sharing.shared) == 4


MUTANTS = {
    "go before it is packed": (MappedSender, "_one", "order.packed.wait(order.deadline)"),
    "taken before it is copied": (
        MappedReceiver,
        "receive",
        "patiently(held.stream.record().wait, until, self._watch)",
    ),
    "the buffer is free before it was taken": (MappedSender, "send", "held.until(over)"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_wait_is_needed(mutant: str, pair: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, *MUTANTS[mutant])
    made = pair()
    if mutant == "the buffer is free before it was taken":
        # Here a thread is what works in the background, so the worst order is that it comes last.
        with ThreadPoolExecutor() as pool:
            sources, targets = expected(4), [torch.zeros(NBYTES, dtype=torch.uint8) for _ in range(4)]
            publish(CpuDevice(), Ring(CpuDevice(), NBYTES), made.sender, sources)
            pool.submit(receive, CpuDevice(), Ring(CpuDevice(), NBYTES), made.receivers[0], targets).result(SECONDS)
        found = [targets]
    else:
        # With a buffer of its own for each bucket a receiver has no other reason to wait for a copy.
        found = run(made, VirtualDevice("late"), 4, receivers_buffers=5)
    assert not all(torch.equal(a, b) for a, b in zip(found[0], expected(4), strict=True))


def test_a_receiver_that_says_nothing_is_named_at_the_deadline(pair: Callable[..., Pair]) -> None:
    made = pair(receivers=2, seconds=0.2)
    ring = Ring(CpuDevice(), NBYTES)
    with ring.next() as held:
        event = made.sender.send(held, NBYTES)
    with ThreadPoolExecutor() as pool:
        pool.submit(receive, CpuDevice(), Ring(CpuDevice(), NBYTES), made.receivers[0], expected(1)).result(SECONDS)
    with pytest.raises(TransferError, match="r1: says nothing") as caught:
        event.wait()
    assert (caught.value.reason, caught.value.rank) == (Reason.LATE, "r1")
    with pytest.raises(TransferError, match="r1"), ring.next() as held:  # the link stays failed
        made.sender.send(held, NBYTES)


def test_a_receiver_that_hangs_up_fails_what_waits(pair: Callable[..., Pair]) -> None:
    made = pair()
    ring = Ring(CpuDevice(), NBYTES)
    with ring.next() as held:
        event = made.sender.send(held, NBYTES)
    made.receivers[0].close()
    with pytest.raises(TransferError) as caught:
        event.wait()
    assert (caught.value.reason, caught.value.rank) == (Reason.DEAD, "r0")
    with pytest.raises(TransferError):
        ring.drain()


def test_closing_fails_what_waits_and_ends_the_thread(pair: Callable[..., Pair]) -> None:
    made = pair()
    with Ring(CpuDevice(), NBYTES).next() as held:
        event = made.sender.send(held, NBYTES)
    made.sender.close()
    with pytest.raises(TransferError):
        event.wait(time.monotonic() + SECONDS)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (Go(1, 0, NBYTES, b"0"), "bucket 1 of 64 bytes comes, and 0 of 64 was announced"),
        (Go(0, 0, NBYTES - 1, b"0"), "bucket 0 of 63 bytes comes, and 0 of 64 was announced"),
        (Go(0, 5, NBYTES), "slot 5 was never shared"),
        (Taken(0), "not a message of this link"),
    ],
)
def test_a_receiver_believes_nothing(message: Go | Taken, words: str) -> None:
    out, into = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    receiver = MappedReceiver(Registry(), into)
    with out:
        out.send(msgspec.msgpack.encode(message))
        with pytest.raises(TransferError, match=words) as caught, Ring(CpuDevice(), NBYTES).next() as held:
            receiver.receive(held, NBYTES)
        assert caught.value.reason is Reason.MISMATCH
        receiver.close()


def test_a_publisher_believes_nothing(pair: Callable[..., Pair]) -> None:
    made = pair()
    with Ring(CpuDevice(), NBYTES).next() as held:
        event = made.sender.send(held, NBYTES)
    made.inner[0].send(msgspec.msgpack.encode(Taken(7)))
    with pytest.raises(TransferError, match="r0: took bucket 7, not 0"):
        event.wait()


def test_sharing_that_fails_is_told(pair: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch) -> None:
    made = pair()
    monkeypatch.setattr(made.sharing, "share", lambda buffer: 1 // 0)
    with Ring(CpuDevice(), NBYTES).next() as held:
        event = made.sender.send(held, NBYTES)
    with pytest.raises(TransferError, match="ZeroDivisionError") as caught:
        event.wait()
    assert caught.value.reason is Reason.EXCEPTION


def test_a_link_belongs_to_one_thread(pair: Callable[..., Pair]) -> None:
    made = pair()
    run(made, CpuDevice(), 1)
    with ThreadPoolExecutor() as pool, Ring(CpuDevice(), NBYTES).next() as held:
        sent = pool.submit(made.sender.send, held, NBYTES)
        with pytest.raises(WrongThreadError, match="the mapped link belongs to thread MainThread"):
            sent.result()


def test_each_end_does_what_is_its_own(pair: Callable[..., Pair]) -> None:
    made = pair()
    with Ring(CpuDevice(), NBYTES).next() as held:
        with pytest.raises(TransferError, match="publisher's end of a link receives nothing"):
            made.sender.receive(held, NBYTES)
        with pytest.raises(TransferError, match="receiver's end of a link sends nothing"):
            made.receivers[0].send(held, NBYTES)
