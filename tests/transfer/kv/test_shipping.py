"""Both ends in one process, over real sockets."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from proctor.rows import UserError
from proctor.transfer.devices.cpu import CpuDevice, HostEvent
from proctor.transfer.devices.virtual import Order, VirtualDevice
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.kv.block import Block
from proctor.transfer.kv.limits import Limits
from proctor.transfer.kv.memory import Attached
from proctor.transfer.kv.receiver import Receiver
from proctor.transfer.kv.sender import Sender
from proctor.transfer.tensors import as_bytes
from tests.leaks import descriptors
from tests.transfer.kv.samples import LAYOUT, Clock, block, same
from tests.transfer.kv.waiting import reason_of, soon, until

Connect = Callable[..., Receiver]


def idle(sender: Sender) -> bool:
    now = sender.metrics()
    return (now.queued, now.queued_bytes, now.leases, now.waiting, now.free_slots) == (0, 0, 0, 0, 8)


def test_what_comes_is_what_was_sent(sender: Sender, receiver: Receiver):
    sent = block("a", positions=20)  # several slots
    ended = sender.put(sent)
    assert same(receiver.receive("a", soon()), sent)
    ended.wait(soon())
    assert idle(sender)
    now = sender.metrics()
    assert (now.delivered, now.expired, now.aborted, now.late_notices) == (1, 0, 0, 0)
    assert now.sent_bytes > 20 * 256


def test_who_asks_first_waits_for_the_block(sender: Sender, receiver: Receiver):
    wanted = receiver.ask("a")
    until(lambda: sender.metrics().waiting == 1)
    assert not wanted.over.done()
    sent = block("a")
    sender.put(sent)
    assert same(receiver.result(wanted, soon()), sent)


def test_many_requests_in_any_order(sender: Sender, receiver: Receiver):
    order = random.Random(3)
    sent = [block(f"r{number}", positions=number % 7 + 1, rows=number % 2 + 1) for number in range(40)]
    asked = {one.request: receiver.ask(one.request) for one in order.sample(sent, len(sent))}
    events = [sender.put(one, soon()) for one in sent]
    for one in order.sample(sent, len(sent)):
        assert same(receiver.result(asked[one.request], soon()), one)
    for event in events:
        event.wait(soon())
    assert idle(sender)


def test_what_came_stays_when_its_slots_are_used_again(sender: Sender, receiver: Receiver):
    sent = [block(f"r{number}", positions=20) for number in range(6)]
    for one in sent[:1]:
        sender.put(one)
    first = receiver.receive("r0", soon())
    for one in sent[1:]:
        sender.put(one)
        assert same(receiver.receive(one.request, soon()), one)
    assert same(first, sent[0])


def test_a_full_queue_holds_the_prefill_back(sender: Sender, connect: Connect):
    large = [block(f"r{number}", positions=28) for number in range(12)]  # each takes all slots
    entered: list[str] = []

    def prefill() -> None:
        for one in large:
            sender.put(one, soon())
            entered.append(one.request)

    thread = threading.Thread(target=prefill)
    thread.start()
    until(lambda: sender.metrics().queued == 4)
    assert len(entered) <= 6
    receiver = connect()
    for one in large:
        assert same(receiver.receive(one.request, soon()), one)
    thread.join(30)
    assert entered == [one.request for one in large]


def test_a_block_that_can_never_fit_is_refused(sender: Sender):
    with pytest.raises(UserError, match="8 slots"):
        sender.put(block("a", positions=100))
    assert idle(sender)


def test_two_receivers_each_get_theirs(sender: Sender, connect: Connect):
    one, two = connect(rank="one", way="memory"), connect(rank="two", way="beside")
    blocks = {name: block(name) for name in "abcd"}
    for name in blocks.values():
        sender.put(name, soon())
    for name, receiver in zip("abcd", (one, two, one, two), strict=True):
        assert same(receiver.receive(name, soon()), blocks[name])


def test_a_block_is_for_one_receiver(sender: Sender, connect: Connect):
    one, two = connect(rank="one"), connect(rank="two")
    wanted = one.ask("a")
    until(lambda: sender.metrics().waiting == 1)
    with pytest.raises(TransferError, match="another receiver has asked for it"):
        two.receive("a", soon())
    sender.put(block("a"))
    one.result(wanted, soon())
    with pytest.raises(TransferError, match="has been delivered"):
        two.receive("a", soon())


# Leases.


def test_a_block_that_nobody_fetches_gives_its_slots_back(sender: Sender, clock: Clock, receiver: Receiver):
    ended = sender.put(block("a"))
    until(lambda: sender.metrics().leases == 1)
    clock.turn(29.0)
    sender.wake()
    time.sleep(0.05)
    assert sender.metrics().leases == 1
    clock.turn(1.0)
    assert reason_of(ended) is Reason.EXPIRED
    assert idle(sender)
    with pytest.raises(TransferError) as late:  # aws-do-eks #84: 8 of 42 requests were served from freed blocks
        receiver.receive("a", soon())
    assert late.value.reason is Reason.EXPIRED
    assert sender.metrics().expired == 1


def test_a_reader_that_comes_too_late_fails_its_request(
    sender: Sender, clock: Clock, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    """The lease ends between the offer and the reader's word that it has copied everything."""
    inbox = receiver._inbox
    plain = inbox._copied

    def slow(offer: Any, beside: Any) -> Any:
        copied = plain(offer, beside)
        clock.turn(31.0)
        other = sender.put(block("b", positions=28))  # the slots are used again, at once
        until(lambda: sender.metrics().leases == 1 and sender.metrics().free_slots == 0)
        assert not other.done()
        return copied

    monkeypatch.setattr(inbox, "_copied", slow)
    ended = sender.put(block("a", positions=20))
    with pytest.raises(TransferError) as late:
        receiver.receive("a", soon())
    assert late.value.reason is Reason.EXPIRED
    assert reason_of(ended) is Reason.EXPIRED
    until(lambda: sender.metrics().late_notices == 1)
    assert sender.metrics().delivered == 0


def test_a_reader_that_finds_another_block_in_the_slots_fails_its_request(
    sender: Sender, clock: Clock, connect: Connect, monkeypatch: pytest.MonkeyPatch
):
    receiver = connect(way="memory")
    inbox = receiver._inbox
    plain = inbox._fill

    def slow(*arguments: Any) -> None:
        clock.turn(31.0)
        sender.put(block("b", positions=28))
        until(lambda: sender.metrics().free_slots == 0)
        plain(*arguments)

    monkeypatch.setattr(inbox, "_fill", slow)
    sender.put(block("a", positions=20))
    with pytest.raises(TransferError) as late:
        receiver.receive("a", soon())
    assert late.value.reason is Reason.EXPIRED


def test_heartbeats_keep_a_lease(sender: Sender, clock: Clock, connect: Connect):
    receiver = connect(silence_seconds=0.3)  # a beat every 0.1 s
    wanted = receiver.ask("a")
    until(lambda: sender.metrics().waiting == 1)
    for _ in range(4):
        clock.turn(20.0)
        until(lambda: sender._desk._wishes["a"].until == clock() + 30.0)  # a beat has arrived since
    sent = block("a")
    sender.put(sent)
    assert same(receiver.result(wanted, soon()), sent)


def test_a_wish_whose_receiver_is_silent_runs_out(sender: Sender, clock: Clock, connect: Connect):
    receiver = connect(silence_seconds=1000.0)
    receiver._beat_seconds = 1000.0
    wanted = receiver.ask("a")
    until(lambda: sender.metrics().waiting == 1)
    clock.turn(30.0)
    assert reason_of(wanted.over) is Reason.EXPIRED
    assert idle(sender)


def test_a_bit_that_turns_in_a_slot_is_seen(sender: Sender, connect: Connect):
    receiver = connect(way="memory")
    ended = sender.put(block("a", positions=20))
    until(lambda: "a" in sender._desk._shelf)  # it has its slots before, and is written into them
    lease = sender._ledger.find("a")
    assert lease is not None
    sender._memory.room(lease.slots[1])[700] ^= 1
    with pytest.raises(TransferError, match="piece 1 of the block is not what was sent") as corrupt:
        receiver.receive("a", soon())
    assert corrupt.value.reason is Reason.CORRUPT
    assert reason_of(ended) is Reason.CORRUPT
    assert idle(sender)


def test_slots_that_were_given_back_are_marked(sender: Sender, receiver: Receiver):
    attached = Attached(sender._memory.region)
    sender.put(block("a", positions=20))
    until(lambda: "a" in sender._desk._shelf)  # it has its slots before, and is written into them
    lease = sender._ledger.find("a")
    assert lease is not None
    target = np.zeros(10, np.uint8)
    attached.read(lease.slots[0], lease.generations[0], target)
    receiver.receive("a", soon())
    for slot, generation in zip(lease.slots, lease.generations, strict=True):
        with pytest.raises(TransferError, match="generation none"):
            attached.read(slot, generation, target)
    attached.close()


# Cancellation, at every stage.


def test_the_sender_cancels_a_block_that_waits_for_slots(sender: Sender):
    sender.put(block("large", positions=28))
    ended = sender.put(block("a", positions=28))
    until(lambda: sender.metrics().leases == 1)
    sender.cancel("a")
    assert reason_of(ended) is Reason.CANCELLED
    assert sender.metrics().queued == 0
    sender.cancel("large")
    until(lambda: idle(sender))


def test_the_sender_cancels_a_block_in_its_slots(sender: Sender, receiver: Receiver):
    ended = sender.put(block("a"))
    until(lambda: sender.metrics().leases == 1)
    sender.cancel("a")
    assert reason_of(ended) is Reason.CANCELLED
    assert idle(sender)
    assert reason_of(receiver.ask("a").over) is Reason.CANCELLED


def test_the_sender_cancels_what_a_receiver_waits_for(sender: Sender, receiver: Receiver):
    wanted = receiver.ask("a")
    until(lambda: sender.metrics().waiting == 1)
    sender.cancel("a")
    assert reason_of(wanted.over) is Reason.CANCELLED
    assert reason_of(sender.put(block("a"))) is Reason.CANCELLED
    assert idle(sender)


def test_the_receiver_cancels_before_the_block_is_there(sender: Sender, receiver: Receiver):
    wanted = receiver.ask("a")
    until(lambda: sender.metrics().waiting == 1)
    receiver.cancel("a")
    assert reason_of(wanted.over) is Reason.CANCELLED
    until(lambda: sender.metrics().waiting == 0)
    assert reason_of(sender.put(block("a"))) is Reason.CANCELLED  # vllm #41269: it held its blocks for ever
    assert idle(sender)


@pytest.mark.parametrize("side", ["sender", "receiver"])
def test_either_side_cancels_while_the_block_is_copied(
    sender: Sender, receiver: Receiver, side: str, monkeypatch: pytest.MonkeyPatch
):
    inbox, begun, go_on = receiver._inbox, threading.Event(), threading.Event()
    plain = inbox._copied

    def slow(*arguments: Any) -> Any:
        begun.set()
        assert go_on.wait(30)
        return plain(*arguments)

    monkeypatch.setattr(inbox, "_copied", slow)
    ended = sender.put(block("a"))
    wanted = receiver.ask("a")
    assert begun.wait(30)
    if side == "sender":
        sender.cancel("a")
        assert reason_of(ended) is Reason.CANCELLED
        assert idle(sender)
        go_on.set()
        assert reason_of(wanted.over) in (Reason.CANCELLED, Reason.EXPIRED)
    else:
        receiver.cancel("a")
        go_on.set()
        # Done and Cancel are under way one behind the other, or the copy had not begun: both are an end.
        until(lambda: wanted.over.done() and ended.done())
    until(lambda: idle(sender))


def test_a_block_that_nobody_waits_for_any_more_is_given_back(sender: Sender, receiver: Receiver):
    with pytest.raises(TransferError) as late:
        receiver.receive("a", time.monotonic() + 0.05)
    assert late.value.reason is Reason.LATE
    assert reason_of(sender.put(block("a"))) is Reason.LATE
    assert idle(sender)


# Two sides that do not fit, and the end of either.


@pytest.mark.parametrize(
    "change", [{"model": "other"}, {"dtype": "BF16"}, {"layers": 3}, {"heads": 1}, {"head_size": 4}]
)
def test_another_layout_is_refused_before_anything_travels(sender: Sender, connect: Connect, change: dict[str, Any]):
    name, value = next(iter(change.items()))
    with pytest.raises(TransferError, match=f"{name} is .* here and {value!r} there") as refused:
        connect(layout=replace(LAYOUT, **change), deadline=soon())
    assert refused.value.reason is Reason.MISMATCH
    assert (sender.metrics().refused, sender.metrics().receivers) == (1, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"layer.1.value": None},
        {"layer.2.key": torch.zeros(1, 2, 5, 8)},
        {"layer.0.key": torch.zeros(1, 2, 5, 8, dtype=torch.bfloat16)},
        {"layer.0.key": torch.zeros(1, 2, 4, 8)},
        {"layer.0.key": torch.zeros(2, 2, 5, 4)},
    ],
)
def test_a_block_of_another_layout_is_refused(sender: Sender, change: dict[str, Any]):
    made = block("a")
    tensors = {name: tensor for name, tensor in {**made.tensors, **change}.items() if tensor is not None}
    with pytest.raises(TransferError) as refused:
        sender.put(Block(request="a", tokens=made.tokens, position=5, tensors=tensors))
    assert refused.value.reason is Reason.MISMATCH
    assert idle(sender)


def test_the_receiver_closes(sender: Sender, connect: Connect):
    receiver = connect()
    wanted = receiver.ask("a")
    until(lambda: sender.metrics().waiting == 1)
    receiver.close()
    assert reason_of(wanted.over) is Reason.CANCELLED
    until(lambda: sender.metrics().receivers == 0 and idle(sender))
    assert reason_of(receiver.ask("b").over) is Reason.CANCELLED


def test_the_sender_closes(sender: Sender, receiver: Receiver):
    wanted = receiver.ask("a")
    left = sender.put(block("b"))
    until(lambda: sender.metrics().waiting == 1)
    sender.close()
    assert reason_of(left) is Reason.CANCELLED
    assert reason_of(wanted.over) is Reason.CANCELLED
    assert reason_of(receiver.ask("c").over) is Reason.CANCELLED
    with pytest.raises(TransferError):
        sender.put(block("d"))


def test_a_thread_that_fails_ends_everything_with_the_reason(
    sender: Sender, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    wanted = receiver.ask("a")
    left = sender.put(block("b"))
    until(lambda: sender.metrics().waiting == 1)

    def fail() -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(sender, "turn", fail)
    for event in (left, wanted.over):
        with pytest.raises(TransferError, match="planted") as failed:
            event.wait(soon())
        assert failed.value.reason is Reason.EXCEPTION


def test_tensors_that_cannot_be_read_fail_their_request_only(address: str, connect: Connect):
    class Broken(CpuDevice):  # type: ignore[misc]
        def ready(self) -> HostEvent:
            event = HostEvent()
            event.fail(RuntimeError("planted"))
            return event

    del connect
    with Sender(address + "2", LAYOUT, device=Broken()) as sender:
        assert reason_of(sender.put(block("a"))) is Reason.EXCEPTION
        assert sender.metrics().leases == 0


def test_tensors_are_read_when_they_are_written_not_before(address: str):
    """vllm-ascend #12713: what was still being written was sent."""
    events: list[HostEvent] = []

    class Slow(CpuDevice):  # type: ignore[misc]
        def ready(self) -> HostEvent:
            events.append(HostEvent())
            return events[-1]

    with Sender(address + "2", LAYOUT, device=Slow()) as sender, Receiver(sender.address, LAYOUT) as receiver:
        sent = block("a")
        written = {name: tensor.clone() for name, tensor in sent.tensors.items()}
        for tensor in sent.tensors.values():
            tensor.zero_()
        sender.put(sent)
        wanted = receiver.ask("a")
        time.sleep(0.05)
        for name, tensor in sent.tensors.items():
            tensor.copy_(written[name])
        events[0].set()
        assert same(receiver.result(wanted, soon()), sent)
        assert sent.tensors["layer.0.key"].abs().sum() > 0


@pytest.mark.parametrize("order", ["newest", "late", "random"])
def test_tensors_that_a_device_still_writes(address: str, order: Order):
    """On the virtual device nothing is over that nobody waited for: a missing wait would be wrong bytes."""
    device = VirtualDevice(order)
    with Sender(address, LAYOUT, device=device) as sender, Receiver(sender.address, LAYOUT) as receiver:
        for number in range(4):
            sent = block(f"r{number}", positions=20)
            for tensor in sent.tensors.values():
                flat = as_bytes(tensor)
                written = flat.clone()
                flat.zero_()
                device.caller.copy(flat, written)
            sender.put(sent)
            received = receiver.receive(sent.request, soon())
            assert same(received, block(sent.request, positions=20))


@pytest.mark.parametrize("address", ["tcp://0.0.0.0:1", "tcp://*:1", "tcp://10.0.0.1:1", "inproc://x"])
def test_an_address_that_others_could_reach_is_refused(address: str):
    for kind in (Sender, Receiver):
        with pytest.raises(UserError, match="could be reached"):
            kind(address, LAYOUT)


def test_an_address_that_is_taken_is_told(sender: Sender):
    with Sender("tcp://127.0.0.1:*", LAYOUT) as first, pytest.raises(UserError, match="in use"):
        Sender(first.address, LAYOUT)


def test_over_tcp(clock: Clock):
    with Sender("tcp://127.0.0.1:*", LAYOUT) as sender, Receiver(sender.address, LAYOUT, way="beside") as receiver:
        sent = block("a", positions=50)
        sender.put(sent)
        assert same(receiver.receive("a", soon()), sent)


@pytest.mark.parametrize("change", [{"slots": 0}, {"slot_bytes": 100}, {"slot_bytes": 300}, {"lease_seconds": 0}])
def test_limits_that_hold_nothing_are_refused(address: str, change: dict[str, Any]):
    with pytest.raises(UserError):
        Sender(address, LAYOUT, Limits(**change))


def test_nobody_is_there(address: str):
    with pytest.raises(TransferError, match="no welcome") as late:
        Receiver(address, LAYOUT, deadline=time.monotonic() + 0.05)
    assert late.value.reason is Reason.LATE


def test_nothing_is_left_behind(tmp_path: Path):
    def once() -> None:
        with Sender(f"ipc://{tmp_path}/x", LAYOUT) as sender, Receiver(sender.address, LAYOUT) as receiver:
            sender.put(block("a"))
            receiver.receive("a", soon())
            sender.put(block("left"))
            receiver.ask("never")

    once()
    before = descriptors(), threading.active_count()
    for _ in range(10):
        once()
    until(lambda: descriptors() <= before[0])
    assert threading.active_count() <= before[1]
    assert "proctor-kv" not in Path("/proc/self/maps").read_text()
