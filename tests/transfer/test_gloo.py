"""What goes wrong in gloo, mostly in silence, with the right outcome."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from proctor.rows import UserError
from proctor.transfer.devices.base import Event
from proctor.transfer.devices.cpu import CpuDevice
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.links.gloo import GlooGroup, GlooOutlet
from proctor.transfer.links.host import host_bytes
from proctor.transfer.links.rendezvous import join, serve
from proctor.transfer.owner import WrongThreadError
from proctor.transfer.slots import Held, Ring
from proctor.transfer.weights import Publisher
from tests.transfer.weights_support import Side, in_thread, receivers, same

TENSORS = {"a": torch.arange(1000, dtype=torch.float32), "b": torch.arange(1000, dtype=torch.float32) + 7}


@contextmanager
def groups(count: int = 2, patience: float = 10.0) -> Iterator[list[GlooGroup]]:
    store, port = serve()
    names = ("publisher", *(f"r{rank}" for rank in range(1, count)))
    made = [
        GlooGroup((lambda: join("127.0.0.1", port)) if rank else (lambda: store), rank, names, "127.0.0.1", patience)
        for rank in range(count)
    ]
    try:
        yield made
    finally:
        for group in made:
            group.close()


@contextmanager
def epoch(deadline: float = 30.0) -> Iterator[tuple[Publisher, list[Side]]]:
    with receivers(2) as made:
        addresses = [receiver.address for receiver in made]
        with Publisher(addresses, transport="gloo", bucket_bytes=1024, deadline=deadline) as publisher:
            yield publisher, [Side(receiver) for receiver in made]


def test_a_skipped_broadcast_is_late_and_not_for_ever() -> None:
    """Plain gloo: both ranks raise at the timeout of the group, half an hour by default."""
    real, calls = GlooOutlet.send, 0

    def skips(self: GlooOutlet, held: Held, nbytes: int) -> Event:
        nonlocal calls
        calls += 1
        if calls == 3:
            return held.stream.record()
        return real(self, held, nbytes)

    with epoch(0.4) as (publisher, sides), pytest.MonkeyPatch.context() as patch:
        patch.setattr(GlooOutlet, "send", skips)
        with pytest.raises(TransferError) as raised:
            publisher.publish(TENSORS)
        assert raised.value.reason in (Reason.CORRUPT, Reason.LATE)
        for side in sides:
            assert isinstance(side.outcome(), TransferError)
            assert side.receiver.current is None


def test_two_broadcasts_in_the_wrong_order_are_seen() -> None:
    """Plain gloo, also with all of its debugging on: the wrong layers, in silence."""
    real, kept = GlooGroup.broadcast, []

    def swaps(self: GlooGroup, buffer: torch.Tensor) -> Any:
        if threading.current_thread() is threading.main_thread():
            kept.append(buffer.clone())
            if len(kept) == 2:
                buffer.copy_(kept[0])
        return real(self, buffer)

    with epoch() as (publisher, sides), pytest.MonkeyPatch.context() as patch:
        patch.setattr(GlooGroup, "broadcast", swaps)
        with pytest.raises(TransferError) as raised:
            publisher.publish(TENSORS)
        assert raised.value.reason is Reason.CORRUPT
        assert raised.value.rank in ("r0", "r1")
        for side in sides:
            assert isinstance(side.outcome(), TransferError)


def test_the_order_of_two_state_dicts_does_not_matter() -> None:
    """Receivers go by the manifest: nobody iterates over a model to find out what came."""
    into = {name: torch.zeros(1000) for name in reversed(TENSORS)}
    with receivers(into=into) as [receiver], Publisher([receiver.address], transport="gloo") as publisher:
        side = Side(receiver)
        publisher.publish(TENSORS)
        same(side.received().tensors, TENSORS)


@pytest.mark.parametrize("other", [torch.zeros(1001), torch.zeros(999), torch.zeros(1000).bfloat16()])
def test_another_size_or_type_is_told_before_a_byte(other: torch.Tensor) -> None:
    """Plain gloo: the receiver is killed by SIGABRT, has a stale tail, or reads garbage."""
    into = {"a": torch.zeros(1000), "b": other}
    with receivers(into=into) as [receiver], Publisher([receiver.address], transport="gloo") as publisher:
        side = Side(receiver)
        with pytest.raises(TransferError) as raised:
            publisher.publish(TENSORS)
        assert (raised.value.reason, raised.value.rank) == (Reason.MISMATCH, "r0")
        side.outcome()
        assert not into["a"].any()


def test_a_buffer_is_not_written_again_before_its_broadcast_is_over() -> None:
    """Plain gloo: 47 of 67 MB were corrupt, in silence."""
    with groups() as (publisher, receiver):
        ring, link = Ring(CpuDevice(), 1024, 2), GlooOutlet(publisher)
        for number in range(2):
            with ring.next() as held:
                held.part(1024).fill_(number + 1)
                link.send(held, 1024)
        with pytest.raises(TransferError) as raised:
            ring.next(time.monotonic() + 0.1)
        assert raised.value.reason is Reason.LATE
        target = [torch.zeros(1024, dtype=torch.uint8) for _ in range(2)]
        for buffer in target:
            receiver.broadcast(buffer).wait(time.monotonic() + 10)
        ring.next(time.monotonic() + 10).release()
        assert [buffer.unique().tolist() for buffer in target] == [[1], [2]]


def test_a_second_thread_is_refused() -> None:
    """Plain gloo: 36 of 40 tensors were wrong, in silence."""
    errors: list[Exception] = []
    with groups() as (publisher, receiver):
        ring, link = Ring(CpuDevice(), 1024, 2), GlooOutlet(publisher)

        def send() -> None:
            try:
                with ring.next() as held:
                    link.send(held, 1024)
            except Exception as error:
                errors.append(error)

        send()
        in_thread(send).join(10)
        receiver.broadcast(torch.zeros(1024, dtype=torch.uint8)).wait(time.monotonic() + 10)
    assert [type(error) for error in errors] == [WrongThreadError]


def test_who_does_not_join_is_named() -> None:
    with groups(3, patience=0.3) as (publisher, receiver, _):
        data = torch.zeros(256, dtype=torch.uint8)
        over = [publisher.broadcast(data), receiver.broadcast(data.clone())]
        for event in over:
            with pytest.raises(TransferError, match="roll call") as raised:
                event.wait(time.monotonic() + 10)
            assert (raised.value.reason, raised.value.rank) == (Reason.LATE, "r2")


def test_whoever_leaves_ends_the_calls_of_the_others() -> None:
    with groups(patience=30.0) as (publisher, receiver):
        data = torch.zeros(256, dtype=torch.uint8)
        over = receiver.broadcast(data)
        publisher.broadcast(data.clone()).wait(time.monotonic() + 10)
        over.wait(time.monotonic() + 10)
        hanging = receiver.broadcast(data)
        publisher.close()
        with pytest.raises(TransferError) as raised:
            hanging.wait(time.monotonic() + 10)
        assert raised.value.reason is Reason.DEAD
        with pytest.raises(TransferError):
            receiver.broadcast(data)
        with pytest.raises(TransferError, match="closed"):
            publisher.broadcast(data)


def test_memory_of_a_gpu_is_refused() -> None:
    with pytest.raises(UserError, match="buffers are on meta"):
        host_bytes(torch.empty(1, device="meta"))
