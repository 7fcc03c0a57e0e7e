"""The whole protocol over the GPU transports, on devices that do their work in the worst order.

Publisher and receiver are the real ones; the broadcast and the shared memory of the driver are what is replaced.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from proctor.rows import UserError
from proctor.transfer.devices.base import Stream
from proctor.transfer.devices.cpu import HostEvent
from proctor.transfer.devices.virtual import Order, VirtualDevice
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.links import gpu_opening
from proctor.transfer.links.mapped import MappedReceiver
from proctor.transfer.links.ordered import OrderedLink
from proctor.transfer.publisher import Publisher, Receipt
from proctor.transfer.receiver import Received, Receiver
from proctor.transfer.slots import Slot
from proctor.transfer.tensors import plan
from tests.leaks import descriptors
from tests.transfer.pipelines import without
from tests.transfer.test_mapped_link import Registry

SECONDS = 20.0
TRANSPORTS = ("nccl", "cuda_ipc")
PINNED = ("stream", "shm", "gloo")
"""Those through the host's memory, whose buffers a GPU fills and empties when they are pinned."""
ORDERS: tuple[Order, ...] = ("newest", "late", "early", "random")


class FakeBroadcast:
    """NCCL between two ranks with a device each: a receiver's work waits for the publisher's."""

    sent: list[tuple[HostEvent, list[torch.Tensor]]] = []  # noqa: RUF012

    def __init__(self, store: Any, rank: int, names: tuple[str, ...], device: Any, deadline: float | None) -> None:
        assert rank or names == ("publisher", "r1")
        self._rank, self._number = rank, 0

    def __call__(self, stream: Stream, part: torch.Tensor) -> None:
        if self._number == len(self.sent):
            self.sent.append((HostEvent("a broadcast"), []))
        arrived, box = self.sent[self._number]
        self._number += 1
        if self._rank == 0:
            stream.run(lambda: (box.append(part.clone()), arrived.set()), part)  # type: ignore[arg-type]
        else:
            stream.wait(arrived)
            stream.run(lambda: part.copy_(box[0]), part)

    def abort(self) -> None:
        pass


class Ends:
    """A publisher and a receiver, each on a device of its own."""

    def __init__(self, transport: str, order: Order, into: dict[str, torch.Tensor] | None, seed: int = 0) -> None:
        self.devices = [VirtualDevice(order, seed), VirtualDevice(order, seed + 1)]
        self.receiver = Receiver("tcp:127.0.0.1:0", rank="r1", into=into, device=self.devices[1])
        self.publisher = Publisher(
            [self.receiver.address], transport=transport, bucket_bytes=512, deadline=SECONDS, device=self.devices[0]
        )
        self.pool = ThreadPoolExecutor(1)

    def transfer(self, tensors: dict[str, torch.Tensor]) -> tuple[Receipt, Received]:
        """The caller's stream is still going to write the tensors when they are published."""
        sources = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
        for name, tensor in tensors.items():
            self.devices[0].caller.run(lambda source=sources[name], value=tensor: source.copy_(value))
        received = self.pool.submit(self.receiver.receive, SECONDS)
        try:
            receipt = self.publisher.publish(sources)
        except TransferError:
            with pytest.raises(TransferError):
                received.result(SECONDS)
            raise
        for source in sources.values():
            source.fill_(0)
        return receipt, received.result(SECONDS)

    def close(self) -> None:
        self.publisher.close()
        self.receiver.close()
        self.pool.shutdown()


@pytest.fixture(autouse=True)
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry()
    monkeypatch.setattr(FakeBroadcast, "sent", [])
    monkeypatch.setattr(gpu_opening, "CudaSharing", lambda: registry)
    monkeypatch.setattr(gpu_opening, "NcclBroadcast", FakeBroadcast)
    monkeypatch.setattr(gpu_opening, "device_of", lambda held: held.stream.device)


@pytest.fixture
def ends() -> Iterator[Any]:
    made: list[Ends] = []

    def make(transport: str, order: Order, into: dict[str, torch.Tensor] | None = None, seed: int = 0) -> Ends:
        both = Ends(transport, order, into, seed)
        made.append(both)
        return both

    yield make
    for both in made:
        both.close()


def weights(count: int = 7) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {f"layer.{index}": torch.randn(40 + index, dtype=torch.float32) for index in range(count)}


def same(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> bool:
    return found.keys() == wanted.keys() and all(torch.equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("transport", [*TRANSPORTS, *PINNED])
def test_three_epochs_arrive_whole(transport: str, order: Order, seed: int, ends: Any) -> None:
    both = ends(transport, order, seed=seed)
    for epoch, count in ((1, 7), (2, 3), (3, 11)):  # other sizes, other rings
        receipt, received = both.transfer(weights(count))
        assert (receipt.epoch, receipt.ranks) == (epoch, ("r1",))
        assert same(received.tensors, weights(count))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("transport", [*TRANSPORTS, *PINNED])
def test_tensors_are_written_in_place(transport: str, order: Order, ends: Any) -> None:
    into = {name: torch.zeros_like(tensor) for name, tensor in weights().items()}
    both = ends(transport, order, into)
    both.transfer(weights())
    assert same(into, weights())


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("transport", [*TRANSPORTS, *PINNED])
def test_tensors_in_place_are_not_written_while_the_caller_still_reads_them(
    transport: str, order: Order, ends: Any
) -> None:
    """A model's last answers are still on the caller's stream when the next weights come."""
    into = {name: torch.full_like(tensor, 7.0) for name, tensor in weights().items()}
    both = ends(transport, order, into)
    read = {name: torch.zeros_like(tensor) for name, tensor in into.items()}
    for name, tensor in into.items():
        both.devices[1].caller.run(lambda target=read[name], source=tensor: target.copy_(source))
    answered = both.devices[1].ready()
    both.transfer(weights())
    answered.wait()
    assert same(into, weights())
    assert all(bool((tensor == 7.0).all()) for tensor in read.values())


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_without_the_source_ready_wait_wrong_bytes_pass_every_checksum(
    transport: str, ends: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checksum over bytes that were read too early is right: only the wait itself helps."""
    without(monkeypatch, Publisher, "_sent", "held.stream.wait(self._device.ready())", "None")
    _, received = ends(transport, "newest").transfer(weights())
    assert not same(received.tensors, weights())


def test_without_the_wait_for_what_was_received_the_checksum_says_so(
    ends: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(
        monkeypatch, OrderedLink, "receive", "held.stream.wait(self._transport(held, nbytes))",
        "self._transport(held, nbytes)",
    )  # fmt: skip
    with pytest.raises(TransferError) as caught:
        ends("nccl", "late").transfer(weights())
    assert caught.value.reason is Reason.CORRUPT


def test_a_slot_that_is_used_too_early_is_noticed(ends: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, Slot, "_last_use_over", "use.wait(deadline)", "self._uses.clear()")
    with pytest.raises(TransferError) as caught:
        ends("nccl", "newest").transfer(weights())
    assert caught.value.reason is Reason.CORRUPT


def test_bytes_that_are_taken_too_early_are_noticed(ends: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, MappedReceiver, "_buffer", "return self._mapped[go.slot]", "return self._mapped[go.slot] ^ 1")
    with pytest.raises(TransferError) as caught:
        ends("cuda_ipc", "newest").transfer(weights())
    assert caught.value.reason is Reason.CORRUPT


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_receiver_that_waits_for_the_gpu_hears_of_the_end(transport: str, ends: Any) -> None:
    """The next bucket is announced and never comes; the control channel says why, long before any deadline."""

    def source() -> Iterator[tuple[str, torch.Tensor]]:
        yield from list(weights().items())[:4]
        raise ValueError("the trainer's disk is full")

    both = ends(transport, "late")
    received = both.pool.submit(both.receiver.receive, SECONDS)
    with pytest.raises(TransferError, match="disk is full"):
        both.publisher.publish(source(), manifest=plan(weights()).manifest)
    with pytest.raises(TransferError, match="disk is full"):
        received.result(SECONDS)


def test_a_receiver_whose_broadcast_never_begins_hears_of_the_end(ends: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Event()

    def hangs(broadcast: FakeBroadcast, stream: Stream, part: torch.Tensor) -> None:
        stream.wait(HostEvent("what never comes"))
        begun.set()

    monkeypatch.setattr(FakeBroadcast, "__call__", hangs)
    both = ends("nccl", "late")
    received = both.pool.submit(both.receiver.receive, SECONDS)
    with ThreadPoolExecutor(1) as pool:
        published = pool.submit(both.publisher.publish, weights())
        assert begun.wait(SECONDS)
        both.publisher.cancel()
        for end in (published, received):
            with pytest.raises(TransferError) as caught:
                end.result(SECONDS / 2)
            assert caught.value.reason is Reason.CANCELLED


def test_a_receiver_that_does_not_join_the_group_is_named(ends: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = threading.Event()
    monkeypatch.setattr(gpu_opening, "join", lambda host, port: hanging.wait(SECONDS))
    both = ends("nccl", "late")
    received = both.pool.submit(both.receiver.receive, SECONDS)
    both.publisher._deadline = 0.3
    with pytest.raises(TransferError, match="r1: did not come to the roll call") as caught:
        both.publisher.publish(weights())
    assert (caught.value.reason, caught.value.rank) == (Reason.LATE, "r1")
    hanging.set()
    with pytest.raises(TransferError):
        received.result(SECONDS)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_nothing_is_left_behind(transport: str, fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def left(rounds: int) -> tuple[int, int]:
        for _ in range(rounds):
            monkeypatch.setattr(FakeBroadcast, "sent", [])
            both = Ends(transport, "newest", None)
            both.transfer(weights())
            if fails:
                received = both.pool.submit(both.receiver.receive, SECONDS)
                with pytest.raises(TransferError, match=r"layer\.6 came where layer\.0 was due"):
                    both.publisher.publish(reversed(list(weights().items())), manifest=plan(weights()).manifest)
                with pytest.raises(TransferError):
                    received.result(SECONDS)
            both.close()
            del both
        return descriptors(), threading.active_count()

    files, threads = left(2)
    files_later, threads_later = left(5)
    assert files_later <= files
    assert threads_later <= threads


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_buffers_on_the_cpu_are_refused(transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    receiver = Receiver("tcp:127.0.0.1:0", rank="r1", deadline=SECONDS)
    with ThreadPoolExecutor(1) as pool, Publisher([receiver.address], transport=transport, deadline=2.0) as publisher:
        received = pool.submit(receiver.receive, SECONDS)
        with pytest.raises((UserError, TransferError), match="the buffers are on cpu"):
            publisher.publish(weights())
        with pytest.raises(TransferError):
            received.result(SECONDS)
    receiver.close()
