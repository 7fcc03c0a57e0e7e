"""What changed, by identity: spellings, shapes, launches, copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.trace.diff import Diff
from proctor.trace.diff.changes import Change
from proctor.trace.diff.noise import Verdict
from tests.trace.diff.pairs import FLASH, MODEL, NORM, SILU, K, compared, program, swapped
from tests.trace.exports import Export


def of(found: Diff, part: str) -> Change:
    return next(change for change in found.changes if part in change.name)


def test_two_spellings_of_a_kernel_are_one(tmp_path: Path) -> None:
    """Nsight Systems writes casts into template arguments, the PyTorch profiler does not."""
    a = Export(tmp_path / "a.sqlite").kernel("void scale<(int)4, (bool)1>(T1 *, const float *)", 0, 100).close()
    b = Export(tmp_path / "b.sqlite").kernel("scale<4, true>", 0, 150).kernel("void scale<4, true>(float*)", 200, 250)
    (change,) = compared(a, b.close()).changes
    assert change.name == "scale<4, true>"
    assert change.a is not None
    assert change.b is not None
    assert (change.a.calls, change.b.calls, change.delta_ns) == (1, 2, 100)


def test_new_and_vanished(tmp_path: Path) -> None:
    a = program(tmp_path / "a.sqlite")
    b = program(tmp_path / "b.sqlite", swapped(MODEL, NORM, K("fresh_kernel", 33)))
    found = compared(a, b)
    fresh, gone = of(found, "fresh_kernel"), of(found, "rms_norm")
    assert (fresh.a, fresh.verdict) == (None, Verdict.ONE_SIDE)
    assert fresh.split.calls == fresh.delta_ns > 0
    assert gone.b is None
    assert gone.split.calls == gone.delta_ns < 0


def test_how_a_kernel_is_launched(tmp_path: Path) -> None:
    a = program(tmp_path / "a.sqlite")
    b = program(tmp_path / "b.sqlite", swapped(MODEL, SILU, K(SILU, 30, grid=(264, 2, 1), registers=128, shared=8192)))
    silu = of(compared(a, b), "act_and_mul")
    # 4 warps a block: 64 * 128 registers let 8 blocks onto an SM (32 of 64 warps), 128 * 128 let 4 (16 of 64).
    assert silu.config == (
        "grid 132x1x1 -> 264x2x1",
        "registers 64 -> 128",
        "dynamic shared 0 -> 8192",
        "theoretical occupancy 50% -> 25%",
    )
    assert silu.verdict is Verdict.FEW  # no launch of one side repeats one of the other


def test_launches_are_compared_by_shape(tmp_path: Path) -> None:
    """Twice as many long launches: the mean moves, a launch of either shape takes what it took."""
    short, long = K(FLASH, 100, 2), K(FLASH, 900, 1, grid=(528, 1, 1))
    a = program(tmp_path / "a.sqlite", (*swapped(MODEL, FLASH), short, long))
    b = program(tmp_path / "b.sqlite", (*swapped(MODEL, FLASH), short, long, long))
    flash = of(compared(a, b), "flash_fwd")
    assert flash.verdict is Verdict.WITHIN
    assert flash.split.calls == pytest.approx(flash.delta_ns, abs=2_000)
    assert abs(flash.split.per_call) <= 2_000
    assert not flash.shapes_changed
    assert flash.a is not None
    assert flash.a.shapes == 2
    assert flash.usual_ns == pytest.approx((2 * 100_000 + 1.5 * 900_000) / 3.5, rel=0.001)  # launches a step, of both
    assert abs(flash.typical_ns or 0) < 100  # although the median of all launches is 100 us, then 500 us
    other = program(tmp_path / "c.sqlite", (*swapped(MODEL, FLASH), short, long._replace(grid=(1056, 1, 1))))
    assert of(compared(a, other), "flash_fwd").shapes_changed


def test_copies_by_kind_with_their_bandwidth(tmp_path: Path) -> None:
    a, b = (Export(tmp_path / f"{side}.sqlite").kernel("f", 0, 100) for side in "ab")
    a.copy(200, 1_200, kind=1, bytes=25_000, srcKind=1, dstKind=2)
    b.copy(200, 2_200, kind=1, bytes=25_000, srcKind=0, dstKind=2)
    a.copy(3_000, 4_000, kind=8, bytes=500_000, srcKind=2, dstKind=2)
    b.copy(3_000, 4_000, kind=8, bytes=250_000, srcKind=2, dstKind=2)
    found = compared(a.close(), b.close())
    pinned, pageable = of(found, "(pinned to device)"), of(found, "(pageable to device)")
    assert pinned.a is not None
    assert (pinned.a.bytes_per_second, pinned.b) == (pytest.approx(25e9), None)
    assert pageable.b is not None
    assert (pageable.b.bytes, pageable.b.bytes_per_second) == (25_000, pytest.approx(12.5e9))
    inside = of(found, "device to device")
    assert inside.a is not None
    assert inside.b is not None
    assert (inside.a.bytes_per_second, inside.b.bytes_per_second) == (pytest.approx(500e9), pytest.approx(250e9))
    assert inside.delta_ns == 0


def test_ranges_around_launches(tmp_path: Path) -> None:
    a = program(tmp_path / "a.sqlite", marked=True)
    b = program(tmp_path / "b.sqlite", swapped(MODEL, FLASH, K(FLASH, 450)), marked=True)
    (step,) = compared(a, b).ranges
    assert (step.name, step.a_calls, step.b_calls, step.delta_ns) == ("step", 96, 96, 12 * 50_000)


def test_calls_lose_their_version(tmp_path: Path) -> None:
    a = Export(tmp_path / "a.sqlite").launch("f", 0, 10, 20).close()
    b = Export(tmp_path / "b.sqlite").launch("f", 0, 10, 20, api="cudaLaunchKernel_v11060").close()
    (call,) = compared(a, b).calls
    assert (call.name, call.a_calls, call.b_calls, call.delta_ns) == ("cudaLaunchKernel", 1, 1, 0)
