"""Arms are timed in turned order, warm-up rounds are kept apart, and short calls are timed several at once."""

from __future__ import annotations

import pytest

from proctor.compile.model import ArmName
from proctor.compile.timing import (
    LEAST_SECONDS,
    MOST_CALLS,
    Arm,
    ClockName,
    MonotonicClock,
    Subject,
    calibrated,
    interleaved,
    order_of,
)


class PretendClock:
    """A clock that stands still but for what calls say they take."""

    name: ClockName = "monotonic"

    def __init__(self) -> None:
        self.now = 0.0

    def seconds(self, call: object, calls: int) -> float:
        before = self.now
        for _ in range(calls):
            call()  # type: ignore[operator]
        return self.now - before


class Machine:
    """A model whose arms take known times; it notes in which arm it was when it was called."""

    def __init__(self, seconds: dict[ArmName, float], drift: float = 0.0) -> None:
        self.clock = PretendClock()
        self.seconds, self.drift = seconds, drift
        self.arm: ArmName | None = None
        self.called: list[ArmName | None] = []

    def subject(self, target: str = "blocks", every: int = 1) -> Subject:
        return Subject(target, "shape", {arm: self._arm(arm) for arm in self.seconds}, self.clock, every)

    def _arm(self, arm: ArmName) -> Arm:
        return Arm(lambda: setattr(self, "arm", arm), self._call)

    def _call(self) -> None:
        assert self.arm is not None
        self.called.append(self.arm)
        self.clock.now += self.seconds[self.arm] + self.drift * len(self.called)


def test_the_order_of_the_arms_turns_around_from_round_to_round() -> None:
    machine = Machine({"eager": 2.0, "compiled": 1.0})
    rounds = list(interleaved([machine.subject()], rounds=4, warmups=2, process=0))
    assert [number for number, _ in rounds] == [-2, -1, 0, 1, 2, 3]
    orders = [[timing.arm for timing in timings] for _, timings in rounds]
    assert orders[2:4] == [["eager", "compiled"], ["compiled", "eager"]]
    assert orders[0] == orders[2] == orders[4]
    assert machine.called == [arm for order in orders for arm in order]
    assert {(t.arm, t.seconds) for _, timings in rounds for t in timings} == {("eager", 2.0), ("compiled", 1.0)}


def test_another_process_begins_with_the_other_arm() -> None:
    first = next(interleaved([Machine({"eager": 1.0, "compiled": 1.0}).subject()], 1, 0, process=0))[1][0]
    second = next(interleaved([Machine({"eager": 1.0, "compiled": 1.0}).subject()], 1, 0, process=1))[1][0]
    assert (first.arm, second.arm) == ("eager", "compiled")
    assert second.process == 1


def test_a_steady_drift_adds_the_same_to_both_arms() -> None:
    machine = Machine({"eager": 1.0, "compiled": 1.0}, drift=0.1)
    timings = [t for _, some in interleaved([machine.subject()], rounds=8, warmups=0, process=0) for t in some]
    sums = {arm: sum(t.seconds for t in timings if t.arm == arm) for arm in order_of(["eager", "compiled"], 0)}
    assert sums["eager"] == pytest.approx(sums["compiled"])
    apart = Machine({"eager": 1.0, "compiled": 1.0}, drift=0.1)  # one arm after the other: the trap
    first, second = apart.subject().arms.values()
    first.switch()
    early = apart.clock.seconds(first.call, 8)
    second.switch()
    assert apart.clock.seconds(second.call, 8) > 1.4 * early


def test_what_takes_part_in_every_second_round_is_warmed_up_in_each() -> None:
    machine = Machine({"eager": 1.0, "compiled": 1.0})
    rounds = {number: len(some) for number, some in interleaved([machine.subject(every=2)], 4, 3, 0)}
    assert rounds == {-3: 2, -2: 2, -1: 2, 0: 2, 1: 0, 2: 2, 3: 0}
    firsts = [some[0].arm for _, some in interleaved([machine.subject(every=2)], 8, 0, 0) if some]
    assert firsts == ["eager", "compiled", "eager", "compiled"]


@pytest.mark.parametrize(("seconds", "calls"), [(1.0, 1), (LEAST_SECONDS / 10, 10), (1e-9, MOST_CALLS)])
def test_short_calls_are_timed_several_at_once(seconds: float, calls: int) -> None:
    machine = Machine({"eager": seconds, "compiled": seconds})
    subject = calibrated(machine.subject())
    assert subject.calls == calls
    machine.called.clear()
    ((_, timings),) = interleaved([subject], rounds=1, warmups=0, process=0)
    assert [timing.calls for timing in timings] == [calls, calls]
    assert [timing.seconds for timing in timings] == pytest.approx([seconds, seconds], rel=1e-6)
    assert len(machine.called) == 2 * calls


def test_the_monotonic_clock_waits_for_the_device_before_and_after() -> None:
    steps: list[str] = []
    clock = MonotonicClock(lambda: steps.append("wait"))
    assert clock.seconds(lambda: steps.append("call"), 2) >= 0
    assert steps == ["wait", "call", "call", "wait"]
