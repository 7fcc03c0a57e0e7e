"""Times arms against each other, round by round in one process, so that whatever drifts meets both alike."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from proctor.compile.model import ArmName, Timing

LEAST_SECONDS = 0.02
"""What is shorter is timed several times at once: a clock and a switch of arms have their own cost, and what else the
machine does comes in slices of some milliseconds."""
MOST_CALLS = 200
ClockName = Literal["monotonic", "cuda-event"]
Call = Callable[[], object]


class Clock(Protocol):
    """Measures how long calls take."""

    name: ClockName

    def seconds(self, call: Call, calls: int) -> float:
        """Seconds that all `calls` calls take together, until what they start is done."""


class MonotonicClock:
    """Wall time. On a device it waits before and after, so that the device's work is inside.

    Args:
        wait: returns when the device has nothing left to do.
    """

    name: ClockName = "monotonic"

    def __init__(self, wait: Callable[[], None] = lambda: None) -> None:
        self._wait = wait

    def seconds(self, call: Call, calls: int) -> float:
        """See `Clock`."""
        self._wait()
        began = time.perf_counter()
        for _ in range(calls):
            call()
        self._wait()
        return time.perf_counter() - began


class CudaClock:
    """The device's own events, recorded in its stream around the calls."""

    name: ClockName = "cuda-event"

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda  # torch.cuda

    def seconds(self, call: Call, calls: int) -> float:
        """See `Clock`."""
        first, last = self._cuda.Event(enable_timing=True), self._cuda.Event(enable_timing=True)
        self._cuda.synchronize()
        first.record()
        for _ in range(calls):
            call()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) / 1000


class Arm(NamedTuple):
    """One way to do the same.

    Attributes:
        switch: puts the model into this arm; it is not timed.
        call: what is timed.
    """

    switch: Call
    call: Call


@dataclass(frozen=True, slots=True)
class Subject:
    """What is timed in both arms.

    Attributes:
        target, shape: see `proctor.compile.model.Timing`.
        arms: ``eager`` first.
        clock: that measures it.
        every: it takes part in every so many rounds, and in each of the warm-up.
        calls: at once; see `calibrated`.
    """

    target: str
    shape: str
    arms: Mapping[ArmName, Arm]
    clock: Clock
    every: int = 1
    calls: int = 1


def calibrated(subject: Subject) -> Subject:
    """The subject with as many calls at once as make `LEAST_SECONDS`, by a call of its eager arm."""
    arm = subject.arms["eager"]
    arm.switch()
    arm.call()
    seconds = max(subject.clock.seconds(arm.call, 1), 1e-9)
    calls = min(MOST_CALLS, max(1, math.ceil(LEAST_SECONDS / seconds)))
    return Subject(subject.target, subject.shape, subject.arms, subject.clock, subject.every, calls)


def interleaved(
    subjects: Sequence[Subject], rounds: int, warmups: int, process: int
) -> Iterator[tuple[int, list[Timing]]]:
    """Runs the rounds; gives each round's number and its timings.

    Both arms of a subject stand side by side, and their order turns around from round to round (A B, B A, ...): what
    drifts steadily adds the same to both. The numbers of warm-up rounds are negative.

    Args:
        subjects: in the order in which a round takes them.
        rounds: that count.
        warmups: before them.
        process: number of this process; with it the arm that is first changes as well.
    """
    for number in range(-warmups, rounds):
        taking = [subject for subject in subjects if number < 0 or number % subject.every == 0]
        yield number, [timing for subject in taking for timing in _pair(subject, number, process)]


def _pair(subject: Subject, number: int, process: int) -> Iterator[Timing]:
    turn = number // subject.every + process
    for name in order_of(list(subject.arms), turn):
        arm = subject.arms[name]
        arm.switch()
        seconds = subject.clock.seconds(arm.call, subject.calls) / subject.calls
        yield Timing(
            target=subject.target,
            shape=subject.shape,
            arm=name,
            process=process,
            round=number,
            seconds=seconds,
            calls=subject.calls,
            clock=subject.clock.name,
        )


def order_of(arms: Sequence[ArmName], turn: int) -> list[ArmName]:
    """The arms as they are in an even turn, turned around in an odd one."""
    return list(arms) if turn % 2 == 0 else list(reversed(arms))
