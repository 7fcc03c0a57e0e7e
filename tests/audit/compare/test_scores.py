from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from proctor.audit.compare import compare, rate
from proctor.tasks.differences import mcnemar
from tests.audit.compare.made import row


def scored(values: list[float | None], arm: str = "a", round: int = 0) -> list:  # noqa: A002
    return [row(number, [1], arm, round, score=value) for number, value in enumerate(values)]


@given(st.integers(0, 400), st.integers(0, 400))
def test_mcnemar_is_the_exact_binomial_test(worse: int, better: int) -> None:
    reference = scipy.stats.binomtest(worse, worse + better).pvalue if worse + better else 1.0
    assert mcnemar(worse, better) == pytest.approx(reference, rel=1e-9)


def test_mcnemar_of_many_rows_neither_overflows_nor_takes_long() -> None:
    assert mcnemar(50_000, 50_000) == 1.0
    assert 0 < mcnemar(5_000, 5_500) < 1e-5


def test_four_tenths_of_a_thousandth_of_10042_items_is_no_evidence() -> None:
    """hellaswag 0.6128 against 0.6124 by batch size: 4 items net, of 24 that changed."""
    before = [1.0] * 14 + [0.0] * 10 + [1.0] * 6140 + [0.0] * 3878
    after = [0.0] * 14 + [1.0] * 10 + [1.0] * 6140 + [0.0] * 3878
    found = compare(scored(after, "b"), scored(before, "a"))
    assert found.score_flips == (14, 10)
    assert found.mcnemar == pytest.approx(0.541, abs=0.001)
    change, low, high = found.score_change
    assert change == pytest.approx(-0.0004, abs=2e-5)
    assert low < 0 < high


def test_164_items_have_a_wide_interval() -> None:
    """31.71 against 29.27 % of 164: four items fewer."""
    before = [1.0] * 52 + [0.0] * 112
    after = [0.0] * 8 + [1.0] * 44 + [1.0] * 4 + [0.0] * 108
    found = compare(scored(after, "b"), scored(before, "a"))
    assert found.score_change[0] == pytest.approx(-0.0244, abs=1e-4)
    assert found.score_change[1] < -0.06
    assert found.score_change[2] > 0.01
    assert found.mcnemar == pytest.approx(scipy.stats.binomtest(8, 12).pvalue)


def test_rounds_of_a_row_are_one_unit() -> None:
    once = compare(scored([0, 1, 1, 0, 1] * 8, "b"), scored([1, 1, 1, 1, 1] * 8, "a"))
    four = [found for number in range(4) for found in scored([0, 1, 1, 0, 1] * 8, "b", number)]
    against = [found for number in range(4) for found in scored([1, 1, 1, 1, 1] * 8, "a", number)]
    often = compare(four, against)
    assert often.score_flips == once.score_flips == (16, 0)
    assert often.mcnemar == once.mcnemar
    assert often.score_change == pytest.approx(once.score_change)


def test_bootstrap_is_close_to_scipys() -> None:
    rng = np.random.default_rng(4)
    before, after = rng.random(200), rng.random(200)
    found = compare(scored(after.tolist(), "b"), scored(before.tolist(), "a"))
    reference = scipy.stats.bootstrap((after - before,), np.mean, n_resamples=4_000, method="percentile", rng=1)
    assert found.score_change[1:] == pytest.approx(tuple(reference.confidence_interval), abs=0.01)


def test_no_change_in_any_row_does_not_exclude_a_change() -> None:
    found = compare(scored([1.0, 0.0] * 50, "b"), scored([1.0, 0.0] * 50, "a"))
    room = rate(0, 100).high
    assert found.score_change == pytest.approx((0.0, -room, room))
    assert (found.score_flips, found.mcnemar) == ((0, 0), 1.0)


def test_scores_that_are_missing_or_no_numbers_are_left_out() -> None:
    found = compare(scored([1.0, None, float("nan"), 0.0], "b"), scored([0.0, 1.0, 1.0, None], "a"))
    assert found.score_flips == (0, 1)
    none = compare(scored([None], "b"), scored([1.0], "a"))
    assert (none.score_change, none.score_flips, none.mcnemar) == (None, None, None)


def test_order_of_the_rows_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    before, after = scored(rng.integers(2, size=60).tolist(), "a"), scored(rng.integers(2, size=60).tolist(), "b")
    order = rng.permutation(60)
    assert compare([after[k] for k in order], before[::-1]) == compare(after, before)
