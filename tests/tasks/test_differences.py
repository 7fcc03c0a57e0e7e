"""The statistics of paired differences against what scipy and simulation say."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from proctor.tasks.differences import Moments, change_bounds


def moments(change: np.ndarray, rows: np.ndarray, span: float = 1.0) -> Moments:
    sums = [change.sum(), rows.sum(), (change**2).sum(), (change * rows).sum(), (rows**2).sum(), rows.max()]
    return Moments(len(change), *map(float, sums), span)


def test_many_rows_have_the_interval_of_the_paired_t_test() -> None:
    rng = np.random.default_rng(1)
    before, after = rng.random(20_000) < 0.8, rng.random(20_000) < 0.78
    change = after.astype(float) - before
    low, high = moments(change, np.ones_like(change)).normal_bounds()
    reference = scipy.stats.ttest_rel(after.astype(float), before.astype(float)).confidence_interval(0.95)
    assert low == pytest.approx(reference.low, abs=2e-5)
    assert high == pytest.approx(reference.high, abs=2e-5)


@given(st.integers(0, 50), st.integers(100, 3000))
def test_the_normal_interval_is_that_of_the_bootstrap_where_both_fit(seed: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    change = rng.choice([-1.0, 0.0, 1.0], p=[0.1, 0.75, 0.15], size=rows)
    normal = moments(change, np.ones_like(change)).normal_bounds()
    bootstrap = change_bounds(change, np.ones(rows, dtype=np.int64), 1.0)
    assert normal == pytest.approx(bootstrap, abs=0.2 * (bootstrap[1] - bootstrap[0]))


def test_clusters_of_unequal_size_cover_the_truth_as_often_as_they_say() -> None:
    rng, covered, cases = np.random.default_rng(3), 0, 300
    for _ in range(cases):
        sizes = rng.integers(1, 20, size=200)
        chance = rng.beta(2, 18, size=200)  # rows of a cluster get worse together; 10 % in the mean
        change = -rng.binomial(sizes, chance).astype(float)
        low, high = moments(change, sizes.astype(float)).normal_bounds()
        covered += low <= -0.1 <= high
    assert covered >= scipy.stats.binom.ppf(0.001, cases, 0.95)


def test_what_is_called_detectable_is_detected_in_four_of_five_cases() -> None:
    rng, rows, cases, hits = np.random.default_rng(4), 1500, 500, 0
    chances = [0.08, 0.84, 0.08]
    pilot = rng.choice([-1.0, 0.0, 1.0], p=chances, size=rows)
    size = moments(pilot, np.ones(rows)).detectable()
    for _ in range(cases):
        change = rng.choice([-1.0, 0.0, 1.0], p=[0.08 + size / 2, 0.84, 0.08 - size / 2], size=rows)
        low, high = moments(change, np.ones(rows)).normal_bounds()
        hits += high < 0 or low > 0
    assert 0.74 <= hits / cases <= 0.86
