from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from proctor.audit.compare import compare, rate
from proctor.audit.compare.survival import survival_of
from tests.audit.compare.made import rows

ENDS = st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=60)


@given(ENDS)
def test_curve_is_scipys(ends: list[tuple[int, bool]]) -> None:
    lengths, parted = (np.array(column) for column in zip(*ends, strict=True))
    found = survival_of(lengths, parted)
    times = [length if event else length - 1 for length, event in ends]
    events = [time for time, event in zip(times, parted, strict=True) if event]
    censored = [time for time, event in zip(times, parted, strict=True) if not event]
    if not events:
        assert found.positions == ()
        return
    reference = scipy.stats.ecdf(scipy.stats.CensoredData(uncensored=events, right=censored)).sf
    assert found.surviving == pytest.approx(reference.evaluate(np.array(found.positions)), abs=1e-12)


@given(ENDS)
def test_bounds_are_greenwoods_with_log_log(ends: list[tuple[int, bool]]) -> None:
    lengths, parted = (np.array(column) for column in zip(*ends, strict=True))
    found = survival_of(lengths, parted)
    share, total = 1.0, 0.0
    for k, position in enumerate(found.positions):
        d = sum(event and length == position for length, event in ends)
        n = sum(length >= position if event else length > position for length, event in ends)
        assert found.at_risk[k] == n
        share *= 1 - d / n
        if d < n:
            total += d / (n * (n - d))
            inside = math.log(-math.log(share))
            reach = 1.959964 * math.sqrt(total / math.log(share) ** 2)
            low, high = math.exp(-math.exp(inside + reach)), math.exp(-math.exp(inside - reach))
            assert (found.low[k], found.high[k]) == pytest.approx((low, high), abs=1e-6)
        assert 0 <= found.low[k] <= found.surviving[k] <= found.high[k] <= 1


def test_hand_computed_curve() -> None:
    # 6 rows: diverge at 2, 2, 5; end equal after 4, 7 and 7 tokens.
    found = survival_of(np.array([2, 2, 5, 4, 7, 7]), np.array([True, True, True, False, False, False]))
    assert found.positions == (2, 5)
    assert found.at_risk == (6, 3)
    assert found.surviving == pytest.approx((4 / 6, 4 / 6 * 2 / 3))


def test_all_rows_diverging_at_once_leaves_wilsons_bound() -> None:
    found = survival_of(np.zeros(20, dtype=np.int64), np.ones(20, dtype=bool))
    assert (found.surviving, found.low) == ((0.0,), (0.0,))
    assert found.high == (rate(0, 20).high,)


def test_rounds_of_a_row_are_worth_one_row() -> None:
    lengths, parted = np.array([3, 5, 9, 9]), np.array([True, True, False, False])
    once = survival_of(lengths, parted)
    thrice = survival_of(np.tile(lengths, 3), np.tile(parted, 3), per_row=3.0)
    assert thrice.surviving == pytest.approx(once.surviving)
    # Three pairs a row at a third of the weight: Greenwood's sum is that of the rows.
    assert (thrice.low[0], thrice.high[0]) == pytest.approx((once.low[0], once.high[0]), abs=0.02)


def test_the_position_says_how_many_diverged_by_then_and_not_there() -> None:
    """490 rows of which 29 % have parted after position 8: the curve is cumulative."""
    rng = np.random.default_rng(2)
    answers = [list(rng.integers(100, size=16)) for _ in range(490)]
    others = [list(answer) for answer in answers]
    for number in range(142):
        others[number][number % 9] += 1
    found = compare(rows(others, "b"), rows(answers, "a"))
    at = found.survival.positions.index(8)
    assert 1 - found.survival.surviving[at] == pytest.approx(142 / 490)
    assert found.survival.at_risk[0] == 490
    assert found.token_equal[:2] == (348, 490)


def test_rows_that_end_early_do_not_count_later() -> None:
    ours = [[1, 2], [1, 2, 3, 4], [1, 2, 3, 9]]
    theirs = [[1, 2], [1, 2, 3, 4], [1, 2, 3, 4]]
    found = compare(rows(ours, "b"), rows(theirs, "a"))
    assert (found.survival.positions, found.survival.at_risk) == ((3,), (2,))
    assert found.survival.surviving == (0.5,)
