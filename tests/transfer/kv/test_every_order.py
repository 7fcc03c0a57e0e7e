"""Desk and inboxes over a network that loses, repeats, reorders and damages, with a clock that jumps.

Whatever happens: what a receiver may use is what was sent; every request ends on the sender's side with slots free.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from proctor.transfer.devices.cpu import CpuStream, HostEvent, over
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.kv import wire
from proctor.transfer.kv.block import Block, cut
from proctor.transfer.kv.desk import Desk, Parcel
from proctor.transfer.kv.inbox import Inbox, Open
from proctor.transfer.kv.ledger import Ledger
from proctor.transfer.kv.memory import Attached, Memory
from proctor.transfer.kv.outbox import Outbox
from proctor.transfer.tensors import plan
from tests.transfer.kv.samples import LAYOUT, Clock, block, same

SLOTS, SLOT_BYTES, LEASE = 4, 1024, 30.0
REQUESTS = st.sampled_from([f"r{number}" for number in range(12)])
RECEIVERS = st.sampled_from([b"one", b"two"])
BITS = st.integers(0, 1 << 20)
WHAT = (
    "lost", "twice", "twice, late", "last", "damaged", "piece damaged", "short", "receiver dies", "time",
    "time, told in vain", "slots used again",
    "sender cancels", "receiver cancels", "asked again",
)  # fmt: skip
ACCIDENTS = st.dictionaries(st.integers(0, 5), st.sampled_from(WHAT), max_size=3)
TO_SENDER: Any = msgspec.msgpack.Decoder(wire.ToSender)
TO_RECEIVER: Any = msgspec.msgpack.Decoder(wire.ToReceiver)


class Network(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.memory = Memory(SLOTS, SLOT_BYTES)
        self.ledger = Ledger(SLOTS, LEASE, self.clock)
        self.outbox: Outbox[Parcel] = Outbox(1 << 20, 4)
        self.desk = Desk(
            self.ledger, self.memory, self.outbox, CpuStream(), self.to_receiver, rank="prefill", clock=self.clock
        )
        self.air: list[tuple[str, bytes, list[bytes]]] = []
        self.sent: dict[str, list[tuple[Block, HostEvent]]] = {}
        self.asked: list[Open] = []
        self.shared = Attached(self.memory.region)
        self.inboxes = {b"one": self.inbox(b"one", self.shared), b"two": self.inbox(b"two", None)}

    def inbox(self, name: bytes, shared: Attached | None) -> Inbox:
        def say(message: wire.ToSender) -> bool:
            self.air.append(("sender", name, wire.sealed(message)))
            return True

        inbox = Inbox(LAYOUT, say)
        inbox.attach(shared)
        return inbox

    def to_receiver(self, owner: bytes, message: wire.ToReceiver, beside: Any) -> bool:
        self.air.append(("receiver", owner, [*wire.sealed(message), *map(bytes, beside)]))
        return owner in self.inboxes

    # What the two sides do.

    @rule(request=REQUESTS, positions=st.sampled_from([1, 3, 9]))
    def put(self, request: str, positions: int) -> None:
        if len(self.outbox) == 4:
            return
        made = block(request, positions, seed=len(self.sent.get(request, [])) * 100 + positions)
        ended = HostEvent(request)
        parts = cut(plan(made.tensors), SLOT_BYTES)
        try:
            self.outbox.put(request, Parcel(request, made.tokens, made.position, parts, over(), ended), 1, 0)
        except ValueError:  # it is in the queue: one id is one try
            return
        self.sent.setdefault(request, []).append((made, ended))

    @rule()
    def turn(self) -> None:
        self.desk.expire()
        self.desk.admit()

    @rule(name=RECEIVERS, request=REQUESTS)
    def ask(self, name: bytes, request: str) -> None:
        if name in self.inboxes and request not in self.inboxes[name].requests:
            wanted = Open(request, "prefill")
            self.asked.append(wanted)
            self.inboxes[name].ask(wanted)

    @rule(name=RECEIVERS)
    def beat(self, name: bytes) -> None:
        if name in self.inboxes:
            self.air.append(("sender", name, wire.sealed(wire.Beat(self.inboxes[name].requests))))

    @rule(name=RECEIVERS, request=REQUESTS)
    def receiver_cancels(self, name: bytes, request: str) -> None:
        if name in self.inboxes:
            self.inboxes[name].give_up(request, Reason.CANCELLED, "cancelled")

    @rule(request=REQUESTS)
    def sender_cancels(self, request: str) -> None:
        self.desk.cancel_here(request)

    @precondition(lambda self: len(self.inboxes) == 2)
    @rule(name=RECEIVERS)
    def receiver_dies(self, name: bytes) -> None:
        self.inboxes.pop(name).fail_all(TransferError(Reason.DEAD, "dead"))
        self.desk.drop(name, Reason.DEAD, "dead", name.decode())
        assert not self.ledger.of(name)

    @rule(seconds=st.sampled_from([1.0, 10.0, 29.0, 31.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.turn(seconds)

    # What the network does.

    @precondition(lambda self: self.air)
    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        self.deliver(*self.air.pop(self.pick(data)))

    @precondition(lambda self: self.air)
    @rule()
    def arrive_in_order(self) -> None:
        self.deliver(*self.air.pop(0))

    @rule(name=RECEIVERS, positions=st.sampled_from([1, 3]), accidents=ACCIDENTS, bit=BITS)
    def accident(self, name: bytes, positions: int, accidents: dict[int, str], bit: int) -> None:
        """A new request on its way, in order, but for what happens at some of its messages."""
        request = f"n{len(self.asked)}"
        self.put(request, positions)
        self.ask(name, request)
        passed = 0
        for _ in range(4):
            self.turn()
            while self.air and passed < 30:
                self.happen(accidents.get(passed, ""), name, request, bit)
                passed += 1
                if self.air:
                    self.deliver(*self.air.pop(0))

    def happen(self, accident: str, name: bytes, request: str, bit: int) -> None:
        what: dict[str, Callable[[], object]] = {
            "": lambda: None,
            "lost": lambda: self.air.pop(0),
            "twice": lambda: self.air.insert(0, self.air[0]),
            "twice, late": lambda: self.air.append(self.air[0]),
            "last": lambda: self.air.append(self.air.pop(0)),
            "damaged": lambda: self.damage(0, bit, short=False),
            "piece damaged": lambda: self.damage(0, bit, short=False, last=True),
            "receiver dies": lambda: self.receiver_dies(name) if len(self.inboxes) == 2 else None,
            "short": lambda: self.damage(0, bit, short=True),
            "time": lambda: self.clock.turn(LEASE + 1),
            "time, told in vain": self.expire_in_vain,
            "slots used again": self.use_slots_again,
            "sender cancels": lambda: self.desk.cancel_here(request),
            "receiver cancels": lambda: self.receiver_cancels(name, request),
            "asked again": lambda: (self.receiver_cancels(name, request), self.ask(name, request)),
        }
        what[accident]()

    def expire_in_vain(self) -> None:
        self.clock.turn(LEASE + 1)
        before = len(self.air)
        self.desk.expire()
        del self.air[before:]

    def use_slots_again(self) -> None:
        self.expire_in_vain()
        self.put("other", 9)
        self.desk.admit()

    @precondition(lambda self: self.air)
    @rule(data=st.data())
    def get_lost(self, data: st.DataObject) -> None:
        self.air.pop(self.pick(data))

    @precondition(lambda self: self.air)
    @rule(data=st.data())
    def come_twice(self, data: st.DataObject) -> None:
        self.air.append(self.air[self.pick(data)])

    @precondition(lambda self: self.air)
    @rule(data=st.data(), bit=BITS, short=st.booleans())
    def be_damaged(self, data: st.DataObject, bit: int, short: bool) -> None:
        self.damage(self.pick(data), bit, short=short)

    def damage(self, index: int, bit: int, *, short: bool, last: bool = False) -> None:
        side, name, frames = self.air[index]
        frames = [bytearray(frame) for frame in frames]
        which = len(frames) - 1 if last else bit % len(frames)
        if short:
            frames[which] = frames[which][:-1]
        else:
            frames[which][(bit // 8) % len(frames[which])] ^= 1 << bit % 8
        self.air[index] = (side, name, [bytes(frame) for frame in frames])

    def pick(self, data: st.DataObject) -> int:
        return data.draw(st.integers(0, len(self.air) - 1))

    def deliver(self, side: str, name: bytes, frames: list[bytes]) -> None:
        try:
            message = wire.opened(frames, TO_SENDER if side == "sender" else TO_RECEIVER)
        except TransferError:
            return
        if side == "sender" and name in self.inboxes:
            self.at_sender(name, message)
        elif side == "receiver" and name in self.inboxes:
            self.at_receiver(self.inboxes[name], message, frames[2:])

    def at_sender(self, name: bytes, message: Any) -> None:
        match message:
            case wire.Fetch():
                self.desk.fetch(name, message)
            case wire.Done():
                self.desk.done(name, message)
            case wire.Beat():
                self.desk.beat(name, message)
            case wire.Cancel():
                self.desk.cancel(name, message, name.decode())

    def at_receiver(self, inbox: Inbox, message: Any, beside: list[bytes]) -> None:
        match message:
            case wire.Offer():
                inbox.offered(message, beside)
            case wire.Freed():
                inbox.freed(message)
            case wire.Gone():
                inbox.gone(message)

    # What holds, always.

    @invariant()
    def slots_are_free_or_leased(self) -> None:
        leased = [slot for name in (b"", b"one", b"two") for lease in self.ledger.of(name) for slot in lease.slots]
        assert len(set(leased)) == len(leased)
        assert len(leased) + self.ledger.free == SLOTS

    @invariant()
    def what_may_be_used_is_what_was_sent(self) -> None:
        for wanted in self.asked:
            if wanted.over.done() and self.succeeded(wanted.over):
                assert wanted.block is not None
                delivered = [
                    made for made, ended in self.sent[wanted.request] if ended.done() and self.succeeded(ended)
                ]
                assert any(same(wanted.block, made) for made in delivered)

    @invariant()
    def nobody_else_has_it(self) -> None:
        for request, sent in self.sent.items():
            delivered = sum(ended.done() and self.succeeded(ended) for _, ended in sent)
            used = sum(
                wanted.request == request and wanted.over.done() and self.succeeded(wanted.over)
                for wanted in self.asked
            )
            assert used <= delivered

    @staticmethod
    def succeeded(event: HostEvent) -> bool:
        try:
            event.wait(0)
        except TransferError:
            return False
        return True

    def teardown(self) -> None:
        for _ in range(8):  # nothing arrives any more: leases run out, and the queue empties into new ones that do, too
            self.clock.turn(LEASE + 1)
            self.desk.expire()
            self.desk.admit()
        assert self.ledger.free == SLOTS
        assert len(self.outbox) == 0
        assert self.desk.waiting == 0
        for request, sent in self.sent.items():
            assert all(ended.done() for _, ended in sent), request
        self.shared.close()
        self.memory.close()


Network.TestCase.settings = settings(max_examples=100, stateful_step_count=25, deadline=None, derandomize=True)
TestEveryOrder = Network.TestCase


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    RECEIVERS,
    st.sampled_from([1, 3]),
    st.dictionaries(st.integers(0, 4), st.sampled_from(WHAT), min_size=1, max_size=2),
    BITS,
)
def test_two_requests_with_accidents(name: bytes, positions: int, accidents: dict[int, str], bit: int):
    network = Network()
    network.accident(name, positions, accidents, bit)
    network.accident(name, positions, accidents, bit * 7)
    network.slots_are_free_or_leased()
    network.what_may_be_used_is_what_was_sent()
    network.nobody_else_has_it()
    network.teardown()
