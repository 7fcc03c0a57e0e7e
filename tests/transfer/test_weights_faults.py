"""Every message of the protocol is dropped, delayed, duplicated, reordered, cut, flipped, or the last one.

What is committed is identical, and everything else is an error within the deadline, on all sides; nothing is left
behind, and the next epoch works.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from proctor.transfer.errors import TransferError
from proctor.transfer.weights import Publisher, Received, Receiver
from tests.leaks import descriptors
from tests.transfer.faulty import Action, Fault, Proxy
from tests.transfer.weights_support import Side, close, home, same, transfer

DEADLINE = 0.3
"""Seconds, of epochs in which somebody has to be late; of all others it is `LONG`, however busy the machine."""
LONG = 20.0
ENOUGH = 60.0
"""Seconds in which every side has to have ended: deadlines, and a machine that is busy with other things."""


class Bench:
    """A publisher with two receivers; between it and the first one, a proxy."""

    def __init__(self, place: Path, *, in_place: bool, transport: str = "stream") -> None:
        self.version = 0
        self.committed: list[int | None] = [None, None]
        self.into = [self.tensors(0) for _ in range(2)] if in_place else [None, None]
        self.receivers = [
            Receiver(f"unix:{place}/r{index}", rank=f"r{index}", into=self.into[index], deadline=2 * DEADLINE)
            for index in range(2)
        ]
        self.proxy = Proxy(place / "p", self.receivers[0].address)
        addresses = [self.proxy.address, self.receivers[1].address]
        self.publisher = Publisher(addresses, bucket_bytes=512, transport=transport)

    @staticmethod
    def tensors(version: int) -> dict[str, torch.Tensor]:
        shared = torch.full((150,), float(version))
        return {
            "a": shared,
            "tie": shared,
            "b": torch.full((3, 70), version, dtype=torch.int16),
            "c": torch.tensor(version),
        }

    def epoch(self, fault: Fault, wait: float = LONG) -> BaseException | None:
        """One epoch with one fault; the error of the publisher."""
        self.version += 1
        self.proxy.plant(fault)
        begun = time.monotonic()
        late = fault.action in ("drop", "reorder", "flip")
        self.publisher._deadline = DEADLINE if late else LONG
        for receiver in self.receivers:
            receiver._deadline = 2 * self.publisher._deadline
        sides = [Side(receiver, wait=wait if fault.action in ("none", "delay") else 1.0) for receiver in self.receivers]
        error: BaseException | None = None
        try:
            self.publisher.publish(self.tensors(self.version))
        except TransferError as failed:
            error = failed
        outcomes = [side.outcome(ENOUGH) for side in sides]
        assert time.monotonic() - begun < ENOUGH
        for index, outcome in enumerate(outcomes):
            self._judge(index, outcome, error)
        return error

    def _judge(self, index: int, outcome: Received | BaseException, error: BaseException | None) -> None:
        receiver = self.receivers[index]
        if isinstance(outcome, Received):
            same(outcome.tensors, self.tensors(self.version))
            self.committed[index] = self.version
            assert receiver.state == "committed"
        else:
            assert isinstance(outcome, TransferError), outcome
            assert error is not None, f"the publisher knows nothing of {outcome}"
        if receiver.current is not None:
            version = self.committed[index]
            assert version is not None
            same(receiver.current.tensors, self.tensors(version))
        elif self.into[index] is None:
            assert self.committed[index] is None, "what was committed is not readable any more"

    def close(self) -> None:
        self.publisher.close()
        self.proxy.close()
        for receiver in self.receivers:
            close(receiver)


@contextlib.contextmanager
def bench(**options: Any) -> Iterator[Bench]:
    before, threads = descriptors(), threading.active_count()
    with home() as place:
        made = Bench(place, **options)
        try:
            yield made
        finally:
            made.close()
    assert descriptors() <= before  # what earlier tests left may go meanwhile
    assert threading.active_count() <= threads


# Towards a receiver: Hello, three times a frame and its bytes, Commit, Release.
# Back: Welcome, three times Began, two Acks.
FRAMES = [("receiver", number) for number in range(9)] + [("publisher", number) for number in range(6)]
HARMFUL: list[Action] = ["drop", "truncate", "flip", "die"]


@pytest.mark.slow
@pytest.mark.parametrize(("action", "in_place"), [("drop", False), ("truncate", False), ("flip", True), ("die", True)])
def test_each_message_may_break(action: Action, in_place: bool) -> None:
    with bench(in_place=in_place) as made:
        for towards, frame in FRAMES:
            error = made.epoch(Fault(action, towards, frame))  # type: ignore[arg-type]
            assert made.proxy.happened, (towards, frame, error, made.proxy._counts)
            if (towards, action) != ("publisher", "drop") or frame not in (1, 2, 3):  # nobody waits for a Began
                assert error is not None, (towards, frame)
            assert made.epoch(Fault()) is None, (towards, frame)


# The bytes go another way: there are only messages.
MESSAGES = [("receiver", number) for number in range(6)] + [("publisher", number) for number in range(6)]


@pytest.mark.slow
@pytest.mark.parametrize(("action", "transport"), [("drop", "shm"), ("die", "shm"), ("flip", "gloo"), ("die", "gloo")])
def test_each_message_may_break_beside_other_transports(action: Action, transport: str) -> None:
    transfer({"a": torch.ones(1)}, transport=transport)  # what torch opens once
    with bench(in_place=True, transport=transport) as made:
        for towards, frame in MESSAGES:
            error = made.epoch(Fault(action, towards, frame))  # type: ignore[arg-type]
            assert made.proxy.happened, (towards, frame, error, made.proxy._counts)
            if (towards, action) != ("publisher", "drop") or frame not in (1, 2, 3):
                assert error is not None, (towards, frame)
            assert made.epoch(Fault()) is None, (towards, frame)


@pytest.mark.slow
@pytest.mark.parametrize("action", ["duplicate", "reorder"])
def test_each_message_may_come_twice_or_late(action: Action) -> None:
    with bench(in_place=False) as made:
        for towards, frame in FRAMES:
            made.epoch(Fault(action, towards, frame))  # type: ignore[arg-type]
            made.epoch(Fault(), wait=1.0)  # may meet what the last one left
            assert made.epoch(Fault()) is None, (towards, frame)


def test_a_short_delay_does_no_harm() -> None:
    with bench(in_place=False) as made:
        for towards, frame in FRAMES:
            assert made.epoch(Fault("delay", towards, frame, seconds=0.02)) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("place", [0.0, 0.01, 0.3, 0.7, 0.999])
def test_a_bit_flips_anywhere_in_the_bytes(place: float) -> None:
    with bench(in_place=True) as made:
        for frame in (2, 4, 6):
            error = made.epoch(Fault("flip", "receiver", frame, place))
            assert error is not None
        assert made.receivers[0].current is None, "torn tensors are readable"
        assert made.epoch(Fault()) is None
        assert made.receivers[0].current is not None


class Faults(RuleBasedStateMachine):
    """Epochs in any order, with faults of any kind."""

    def __init__(self) -> None:
        super().__init__()
        self._stack = contextlib.ExitStack()
        self._bench: Bench | None = None
        self._dirty = False

    def _made(self) -> Bench:
        if self._bench is None:
            self._bench = self._stack.enter_context(bench(in_place=False))
        return self._bench

    @rule(
        action=st.sampled_from(["drop", "delay", "duplicate", "reorder", "truncate", "flip", "die"]),
        where=st.sampled_from(FRAMES),
        place=st.floats(0, 1),
    )
    def epoch_with_a_fault(self, action: Action, where: tuple[Any, int], place: float) -> None:
        self._made().epoch(Fault(action, *where, place))
        self._dirty = True

    @rule()
    def epoch(self) -> None:
        error = self._made().epoch(Fault(), 1.0 if self._dirty else LONG)
        assert self._dirty or error is None
        self._dirty = error is not None

    @invariant()
    def what_is_readable_is_complete(self) -> None:
        if self._bench is not None:
            for receiver, version in zip(self._bench.receivers, self._bench.committed, strict=True):
                if receiver.current is not None:
                    assert version is not None
                    same(receiver.current.tensors, Bench.tensors(version))

    def teardown(self) -> None:
        self._stack.close()


@pytest.mark.slow
def test_any_faults_in_any_order() -> None:
    run_state_machine_as_test(
        Faults,
        settings=settings(
            max_examples=8, stateful_step_count=8, deadline=None, derandomize=True,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )  # fmt: skip
