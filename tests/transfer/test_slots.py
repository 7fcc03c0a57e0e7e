"""Slots: the only way to a buffer waits for its last use, and what was released is worth nothing."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from proctor.rows import UserError
from proctor.transfer.devices.cpu import CpuDevice, HostEvent
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.owner import Owner, WrongThreadError
from proctor.transfer.slots import CAP_BYTES, OneBufferWarning, Ring, Slot, StaleSlotError

SOON = 0.05


def in_thread(call: object) -> list[BaseException]:
    """Runs it in a thread of its own; what it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()  # type: ignore[operator]
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="another")
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    return raised


def test_a_buffer_is_there_and_filled() -> None:
    ring = Ring(CpuDevice(), 512)
    with ring.next() as held:
        assert held.buffer.dtype == torch.uint8
        assert held.buffer.tolist() == [0] * 512
        assert held.part(3).shape == (3,)
        with pytest.raises(ValueError, match="512 bytes, not 513"):
            held.part(513)


def test_what_was_released_is_worth_nothing() -> None:
    slot = Slot(CpuDevice(), 8)
    held = slot.acquire()
    held.release()
    for use in (
        lambda: held.buffer,
        lambda: held.stream,
        lambda: held.part(1),
        lambda: held.until(HostEvent()),
        held.release,
    ):
        with pytest.raises(StaleSlotError, match="generation 1 has been released"):
            use()
    assert slot.acquire().generation == 2
    with pytest.raises(StaleSlotError, match="2 is the newest"):
        _ = held.buffer


def test_a_slot_waits_for_its_last_use() -> None:
    slot, sending = Slot(CpuDevice(), 8), HostEvent("sending")
    with slot.acquire() as held:
        held.until(sending)
    with pytest.raises(TransferError, match="sending is not over") as caught:
        slot.acquire(time.monotonic() + SOON)
    assert caught.value.reason is Reason.LATE
    sending.set()
    assert slot.acquire().generation == 2


def test_a_slot_waits_for_all_of_its_uses() -> None:
    slot, uses = Slot(CpuDevice(), 8), [HostEvent(), HostEvent()]
    with slot.acquire() as held:
        for use in uses:
            held.until(use)
    uses[1].set()
    with pytest.raises(TransferError):
        slot.acquire(time.monotonic() + SOON)
    uses[0].set()
    slot.acquire().release()


def test_a_slot_waits_until_it_is_released_by_another_thread() -> None:
    slot = Slot(CpuDevice(), 8)
    held = slot.acquire()
    with pytest.raises(TransferError, match="still held"):
        slot.acquire(time.monotonic() + SOON)
    timer = threading.Timer(SOON, held.release)
    timer.start()
    assert slot.acquire(time.monotonic() + 30).generation == 2
    timer.join()


def test_an_error_of_the_last_use_is_raised_once_and_the_slot_is_free_after_it() -> None:
    slot, sending = Slot(CpuDevice(), 8), HostEvent()
    with slot.acquire() as held:
        held.until(sending)
    sending.fail(TransferError(Reason.DEAD, "hung up", rank="r1"))
    with pytest.raises(TransferError, match="r1: hung up"):
        slot.acquire()
    slot.acquire().release()


def test_an_exception_gives_the_slot_back() -> None:
    slot = Slot(CpuDevice(), 8)
    with pytest.raises(ZeroDivisionError), slot.acquire():
        _ = 1 // 0
    slot.acquire(time.monotonic() + SOON).release()


def test_slots_come_in_turns_and_no_other() -> None:
    ring, sending = Ring(CpuDevice(), 8), HostEvent()
    with ring.next() as first:
        first.until(sending)
    with ring.next() as second:
        assert (first.index, second.index) == (0, 1)
    with pytest.raises(TransferError):  # slot 1 is free, but it is not its turn
        ring.next(time.monotonic() + SOON)
    sending.set()
    assert ring.next().index == 0


def test_draining_waits_for_everything_and_says_the_first_error() -> None:
    ring, uses = Ring(CpuDevice(), 8, 3), [HostEvent(f"use {index}") for index in range(3)]
    for use in uses:
        with ring.next() as held:
            held.until(use)
    uses[0].fail(TransferError(Reason.CORRUPT, "torn"))
    uses[1].set()
    with pytest.raises(TransferError, match="torn"):
        ring.drain(time.monotonic() + SOON)
    with pytest.raises(TransferError, match="use 2 is not over"):
        ring.drain(time.monotonic() + SOON)
    uses[2].set()
    ring.drain()


def test_draining_finds_a_slot_that_nobody_gave_back() -> None:
    ring = Ring(CpuDevice(), 8)
    ring.next()
    with pytest.raises(TransferError, match="slot 0 is still held"):
        ring.drain(time.monotonic() + SOON)


def test_two_threads_that_wait_for_a_slot_keep_their_deadlines() -> None:
    ring = Ring(CpuDevice(), 8)
    ring.next()
    ring.next()
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(ring.next, time.monotonic() + seconds) for seconds in (1.0, SOON)]
        for each in waiting:
            with pytest.raises(TransferError) as caught:
                each.result(30)
            assert caught.value.reason is Reason.LATE


def test_one_buffer_warns() -> None:
    with pytest.warns(OneBufferWarning, match="take turns"):
        Ring(CpuDevice(), 8, 1)


@pytest.mark.parametrize(("nbytes", "count"), [(0, 2), (8, 0)])
def test_no_buffers_are_a_mistake(nbytes: int, count: int) -> None:
    with pytest.raises(UserError, match="hold nothing"):
        Ring(CpuDevice(), nbytes, count)


def test_too_many_buffers_are_counted_in_bytes() -> None:
    with pytest.raises(UserError, match=r"8 buffers of 1,024 bytes are more than 4,096 bytes .*at most 2,048"):
        Ring(CpuDevice(), 1024, 8, cap_bytes=4096)
    with pytest.raises(UserError, match="more than"):
        Ring(CpuDevice(), CAP_BYTES, 2)
    Ring(CpuDevice(), 1024, 4, cap_bytes=4096)


def test_what_one_thread_owns_no_other_uses() -> None:
    owner = Owner("the group")
    owner.check()
    owner.check()
    (error,) = in_thread(owner.check)
    assert isinstance(error, WrongThreadError)
    assert "the group belongs to thread MainThread, and another uses it" in str(error)
