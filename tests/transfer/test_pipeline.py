"""What overlaps with what, on a clock of the test's own: no thread, no sleep, the same figures each time."""

from __future__ import annotations

import warnings
from typing import final

import pytest
from typing_extensions import override

from proctor.transfer.devices.base import Event
from proctor.transfer.devices.cpu import CpuDevice
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.links.base import Link
from proctor.transfer.manifest import Bucket
from proctor.transfer.pipeline import Pipeline, Timing
from proctor.transfer.slots import Held, OneBufferWarning, Ring

BUCKETS = [Bucket(number, 256 * number, 256 * (number + 1), 0, 1) for number in range(24)]
PACK, SEND = 0.010, 0.020


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def until(self, moment: float) -> None:
        self.now = max(self.now, moment)


@final
class At(Event):
    """Over at a moment of the clock; who waits for it makes that moment come."""

    def __init__(self, clock: Clock, moment: float) -> None:
        self._clock, self._moment = clock, moment

    @override
    def done(self) -> bool:
        return self._clock.now >= self._moment

    @override
    def wait(self, deadline: float | None = None) -> None:
        self._clock.until(self._moment)


@final
class PacedLink(Link):
    """Takes `SEND` seconds for each bucket, one after another, in the background."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._free, self._busy = clock, 0.0, 0.0
        self.sent: list[bytes] = []

    @override
    def send(self, held: Held, nbytes: int) -> Event:
        self._free = max(self._free, self._clock.now) + SEND
        self._busy += SEND
        over = At(self._clock, self._free)
        held.until(over)
        self.sent.append(bytes(held.part(1).numpy()))
        return over

    @override
    def receive(self, held: Held, nbytes: int, deadline: float | None = None) -> None:
        raise AssertionError

    @override
    def close(self) -> None:
        pass

    def busy_seconds(self) -> float:
        return self._busy


def run(buffers: int) -> tuple[Timing, PacedLink, list[str]]:
    clock = Clock()
    link = PacedLink(clock)
    told: list[str] = []

    def pack(bucket: Bucket, held: Held) -> int:
        held.part(1).fill_(bucket.sequence)
        clock.now += PACK
        told.append(f"pack {bucket.sequence}")
        return bucket.sequence

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OneBufferWarning)
        ring = Ring(CpuDevice(), 256, buffers)
    pipeline = Pipeline(
        ring, link, pack=pack, announce=lambda bucket, _: told.append(f"frame {bucket.sequence}"),
        watch=lambda: None, patience=60.0, clock=clock,
    )  # fmt: skip
    return pipeline.run(BUCKETS), link, told


def test_one_buffer_hides_nothing() -> None:
    timing, _, _ = run(1)
    assert timing.hidden == pytest.approx(0.0, abs=1e-6)
    assert timing.seconds == pytest.approx(24 * (PACK + SEND))


def test_two_hide_packing_behind_sending() -> None:
    timing, _, _ = run(2)
    assert timing.hidden is not None
    assert timing.hidden >= 0.9
    assert timing.seconds == pytest.approx(PACK + 24 * SEND)


@pytest.mark.parametrize("buffers", [3, 8])
def test_more_gain_nothing(buffers: int) -> None:
    assert run(buffers)[0].seconds == pytest.approx(run(2)[0].seconds)


def test_all_is_over_when_it_returns() -> None:
    """NeMo-RL #3055: it returned before the side streams had drained."""
    timing, link, _ = run(2)
    assert timing.seconds >= link.busy_seconds()


def test_frames_go_in_the_order_of_their_bytes() -> None:
    _, link, told = run(2)
    assert link.sent == [bytes([number]) for number in range(24)]
    assert told == [line for number in range(24) for line in (f"pack {number}", f"frame {number}")]


def test_a_failure_elsewhere_ends_a_wait() -> None:
    class Never(Event):
        def done(self) -> bool:
            return False

        def wait(self, deadline: float | None = None) -> None:
            raise TransferError(Reason.LATE, "not over")

    class Stuck(Link):
        def send(self, held: Held, nbytes: int) -> Event:
            held.until(Never())
            return Never()

        def receive(self, held: Held, nbytes: int, deadline: float | None = None) -> None: ...

        def close(self) -> None: ...

    looks = 0

    def watch() -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            raise TransferError(Reason.DEAD, "hung up", rank="r1")

    pipeline = Pipeline(
        Ring(CpuDevice(), 256, 2), Stuck(), pack=lambda bucket, held: 0, announce=lambda bucket, checksum: None,
        watch=watch, patience=60.0,
    )  # fmt: skip
    with pytest.raises(TransferError, match="hung up"):
        pipeline.run(BUCKETS)


def test_what_is_not_known_is_not_told() -> None:
    assert Timing(1.0, 1.0, None).hidden is None
    assert Timing(0.0, 0.0, 0.0).hidden is None
