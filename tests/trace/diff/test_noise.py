"""What repeated launches let one see of a difference."""

from __future__ import annotations

import math

import numpy as np
import pytest

from proctor.trace.diff.noise import RESOLUTION, SIGMAS, Verdict, shift, spread, verdict


def times(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def normal(count: int, mean: float, deviation: float, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(mean, deviation, count).astype(np.int64)


def test_the_error_of_a_median_by_hand() -> None:
    # n = 25: c = 13 - 5 = 8; the 8th values from either end of 1 000 ... 25 000 are 8 000 and 18 000, and the chance of
    # at most 7 heads in 25 throws, twice, is 0.0433: 2.02 standard errors of a normal distribution.
    found = spread(np.arange(1, 26, dtype=np.int64) * 1000)
    tail = 2 * sum(math.comb(25, i) for i in range(8)) / 2**25
    assert tail == pytest.approx(0.0433, abs=1e-4)
    assert found.median == 13_000
    assert found.median_error == pytest.approx((18_000 - 8_000) / (2 * 2.0206), rel=1e-3)


def test_the_error_of_a_median_is_that_of_samples() -> None:
    """Against what a thousand samples do: of a normal and of a skewed distribution."""
    draw = np.random.default_rng(7)
    for sample in (draw.normal(50_000, 2_000, (1000, 101)), draw.exponential(20_000, (1000, 101))):
        medians = np.median(sample, axis=1)
        errors = [spread(row.astype(np.int64)).median_error for row in sample]
        assert np.mean(errors) == pytest.approx(np.std(medians), rel=0.15)


def test_equal_programs_hardly_ever_differ_beyond_noise() -> None:
    found = [
        verdict(shift(spread(normal(60, 80_000, 900, seed)), spread(normal(60, 80_000, 900, 10_000 + seed))))
        for seed in range(300)
    ]
    assert found.count(Verdict.BEYOND) <= 2  # 0.1 % are expected, fewer since drift counts


def test_a_shift_of_a_few_per_cent_is_seen() -> None:
    found = shift(spread(normal(60, 80_000, 900, 1)), spread(normal(60, 83_000, 900, 2)))
    assert verdict(found) is Verdict.BEYOND
    assert found.typical == pytest.approx(3_000, abs=500)


def test_single_long_launches_do_not_move_the_usual_one() -> None:
    usual = [80_000 + 32 * (i % 7) for i in range(90)]
    some = [value + (40_000 if i % 3 == 0 else 0) for i, value in enumerate(usual)]
    assert verdict(shift(spread(times(*usual)), spread(times(*some)))) is Verdict.TAIL


def test_drift_within_a_window_is_noise() -> None:
    rising = times(*(80_000 + 100 * i for i in range(60)))
    later = rising + 2_000
    found = shift(spread(rising), spread(later))
    assert spread(rising).drift == pytest.approx(4_000)
    assert found.floor == pytest.approx(max(4_000, SIGMAS * math.hypot(*[spread(rising).median_error] * 2)))
    assert verdict(found) is Verdict.WITHIN


def test_a_tick_of_the_clock_is_noise() -> None:
    assert verdict(shift(spread(times(*[5_000] * 20)), spread(times(*[5_000 + RESOLUTION] * 20)))) is Verdict.WITHIN
    assert verdict(shift(spread(times(*[5_000] * 20)), spread(times(*[5_100] * 20)))) is Verdict.BEYOND


def test_too_few_launches_say_nothing() -> None:
    assert verdict(shift(spread(times(1, 2, 3)), spread(times(*[900] * 50)))) is Verdict.FEW
