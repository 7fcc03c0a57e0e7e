"""The device that does its work in the worst order: right code is right in every order, and each missing wait shows."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.transfer.devices.cpu import HostEvent
from proctor.transfer.devices.virtual import Order, VirtualDevice
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.links.ordered import OrderedLink
from proctor.transfer.slots import Held, Slot
from tests.transfer.pipelines import expected, over_the_virtual_device, without

ORDERS: tuple[Order, ...] = ("newest", "late", "early", "random")
SHAPES = [(buckets, buffers) for buckets in (3, 4, 5, 9) for buffers in (2, 3) if buckets > buffers]


def same(found: list[torch.Tensor], wanted: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@given(st.sampled_from(ORDERS), st.integers(0, 2**32), st.integers(1, 9), st.integers(2, 4))
@settings(max_examples=150, deadline=None)
def test_right_code_is_right_in_every_order(order: Order, seed: int, buckets: int, buffers: int) -> None:
    found = over_the_virtual_device(VirtualDevice(order, seed), buckets, buffers)
    assert same(found, expected(buckets))


@pytest.mark.parametrize(("buckets", "buffers"), SHAPES)
@pytest.mark.parametrize("left_out", ["ready", "drain"])
def test_a_pipeline_that_forgets_a_wait(left_out: str, buckets: int, buffers: int) -> None:
    options: dict[str, Any] = {left_out: False}
    found = over_the_virtual_device(VirtualDevice("newest"), buckets, buffers, **options)
    assert not same(found, expected(buckets))


MUTANTS = {
    "slot reuse: the last use is not waited for": (Slot, "_last_use_over", "use.wait(deadline)", "self._uses.clear()"),
    "slot reuse: the link does not tell what it does": (OrderedLink, "_transport", "held.until(over)", "pass"),
    "sending before packing": (OrderedLink, "_transport", "self._stream.wait(held.stream.record())", "pass"),
    "unpacking before receiving": (
        OrderedLink, "receive", "held.stream.wait(self._transport(held, nbytes))", "self._transport(held, nbytes)",
    ),
    "release without what is on the slot's stream": (
        Held, "release", "[*self._uses, self._slot._stream.record()]", "[*self._uses]",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("buckets", "buffers"), SHAPES)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_wait_of_the_library_is_needed(
    mutant: str, buckets: int, buffers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert same(over_the_virtual_device(VirtualDevice("newest"), buckets, buffers), expected(buckets))
    without(monkeypatch, *MUTANTS[mutant])
    found = over_the_virtual_device(VirtualDevice("newest"), buckets, buffers)
    assert not same(found, expected(buckets))


def test_nothing_happens_that_nobody_waits_for() -> None:
    device = VirtualDevice("late")
    stream, target = device.stream(), torch.zeros(1, dtype=torch.uint8)
    stream.copy(target, torch.ones(1, dtype=torch.uint8))
    event = stream.record()
    assert target.item() == 0
    event.wait()
    assert target.item() == 1


def test_looking_at_an_event_again_and_again_gets_there() -> None:
    device = VirtualDevice("newest")
    stream = device.stream()
    stream.run(lambda: None)
    stream.run(lambda: None)
    event = stream.record()
    assert [event.done() for _ in range(3)] == [False, False, True]


def test_streams_wait_for_the_host_and_the_deadline_ends_it() -> None:
    device = VirtualDevice("newest")
    stream, go = device.stream(), HostEvent("the test")
    done: list[int] = []
    stream.wait(go)
    stream.host(lambda: done.append(1))
    event = stream.record()
    with pytest.raises(TransferError, match="not over at the deadline") as caught:
        event.wait(time.monotonic() + 0.05)
    assert caught.value.reason is Reason.LATE
    assert not done
    go.set()
    event.wait()
    assert done == [1]


def test_an_error_stays_with_its_stream() -> None:
    device = VirtualDevice("late")
    stream, done = device.stream(), list[int]()
    before = stream.record()
    stream.run(lambda: 1 // 0)
    stream.run(lambda: done.append(1))
    before.wait()
    with pytest.raises(ZeroDivisionError):
        stream.record().wait()
    assert not done


def test_finish_runs_what_is_left() -> None:
    device = VirtualDevice("late")
    done: list[int] = []
    device.stream().run(lambda: done.append(1))
    device.finish()
    assert done == [1]


@pytest.mark.parametrize("order", ORDERS)
def test_a_copy_never_spreads_one_byte_over_a_buffer(order: Order) -> None:
    stream = VirtualDevice(order).stream()
    with pytest.raises(ValueError, match="equally long"):
        stream.copy(torch.zeros(4, dtype=torch.uint8), torch.ones(1, dtype=torch.uint8))
