"""Spread, outliers and drift of equal launches."""

from __future__ import annotations

import numpy as np
import pytest

from proctor.trace.launches.spread import drift_of, outliers_of, spread_of


def test_outliers_are_those_far_from_the_median() -> None:
    chance = np.random.default_rng(5)
    times = chance.normal(100_000, 1000, 500).round().astype(np.int64)
    times[[10, 400]] = (180_000, 20_000)
    found = outliers_of(times)
    assert found is not None
    assert (found.slow, found.fast) == (1, 1)
    assert found.lost == pytest.approx(180_000 - float(np.median(times)))
    equal = outliers_of(np.array([5000] * 20 + [5032, 5500, 5501], np.int64))
    assert equal is not None
    assert (equal.above, equal.slow) == (5500.0, 1)  # no spread: a clock's steps are no outliers
    assert outliers_of(np.array([1, 1000], np.int64)) is None


def test_a_drift_is_told_from_noise() -> None:
    chance = np.random.default_rng(7)
    starts = np.arange(2000, dtype=np.int64) * 1_000_000
    noise = chance.normal(0, 3000, 2000)
    flat = drift_of(starts, (100_000 + noise).astype(np.int64))
    rising = drift_of(starts, (100_000 + noise + np.linspace(0, 5000, 2000)).astype(np.int64))
    assert flat is not None
    assert not flat.real
    assert rising is not None
    assert rising.real
    assert rising.change == pytest.approx(5000, rel=0.2)
    assert rising.low < rising.share < rising.high
    assert drift_of(starts[:9], np.full(9, 100, np.int64)) is None
    assert drift_of(np.zeros(50, np.int64), np.full(50, 100, np.int64)) is None


def test_one_slow_launch_is_no_drift() -> None:
    times = np.full(200, 50_000, np.int64)
    times[-1] = 5_000_000
    found = drift_of(np.arange(200, dtype=np.int64) * 1000, times)
    assert found is not None
    assert (found.change, found.real) == (0.0, False)


def test_spread() -> None:
    found = spread_of(np.arange(1, 101, dtype=np.int64))
    assert (found.count, found.total, found.min, found.median, found.max) == (100, 5050, 1, 50.5, 100)
    assert found.iqr_share == pytest.approx((75.25 - 25.75) / 50.5)
