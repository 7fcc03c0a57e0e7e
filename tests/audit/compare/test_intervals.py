from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from proctor.audit.compare import not_excluded, rate
from proctor.audit.compare.intervals import NOTHING, rate_by_row
from proctor.audit.model import Rate


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [(490, 490, 0.992, 1.0), (30, 490, 0.043, 0.086), (385, 490, 0.747, 0.820)],
)
def test_published_shares_have_these_bounds(hits: int, of: int, low: float, high: float) -> None:
    found = rate(hits, of)
    assert (round(found.low, 3), round(found.high, 3)) == (low, high)


def test_all_of_490_leaves_room_for_near_three_in_490() -> None:
    missed = not_excluded(rate(490, 490))
    assert missed == pytest.approx(0.0078, abs=5e-5)
    assert 3 / 490 < missed < 4 / 490  # the rule of three is one-sided, these bounds are two-sided


def test_nothing_compared_excludes_nothing() -> None:
    assert rate(0, 0) == NOTHING == Rate(0, 0, 0.0, 1.0)
    assert NOTHING.value is None
    assert not_excluded(NOTHING) == 1.0
    assert rate_by_row(np.array([], dtype=np.int64), np.array([], dtype=bool)) == NOTHING


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_rows_with_one_unit_each_get_the_bounds_of_independent_units(hits: list[bool]) -> None:
    hit = np.array(hits)
    assert rate_by_row(np.arange(len(hits)), hit) == rate(int(hit.sum()), len(hits))


@pytest.mark.parametrize("whole", [True, False])
def test_many_tokens_that_are_all_alike_are_worth_their_rows(whole: bool) -> None:
    found = rate_by_row(np.repeat(np.arange(490), 64), np.full(490 * 64, whole))
    one_a_row = rate(490 if whole else 0, 490)
    assert found.of == 490 * 64
    assert (found.low, found.high) == pytest.approx((one_a_row.low, one_a_row.high))
    assert "by row" in found.method


def test_rows_that_are_wholly_dependent_are_worth_their_number() -> None:
    per_row = np.array([True] * 45 + [False] * 5)
    found = rate_by_row(np.repeat(np.arange(50), 20), np.repeat(per_row, 20))
    reference = rate(45, 50)
    assert found.low == pytest.approx(reference.low, abs=0.01)
    assert found.high == pytest.approx(reference.high, abs=0.01)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=80))
def test_bounds_hold_the_share_and_do_not_depend_on_the_order(units: list[tuple[int, bool]]) -> None:
    row, hit = (np.array(column) for column in zip(*units, strict=True))
    found = rate_by_row(row, hit)
    assert 0 <= found.low <= found.value <= found.high <= 1
    order = np.random.default_rng(3).permutation(len(units))
    again = rate_by_row(row[order], hit[order])
    assert again[:4] == pytest.approx(found[:4])


@pytest.mark.parametrize(("share", "alike"), [(0.9, 0.5), (0.98, 0.1), (0.995, 0.5), (0.5, 0.9)])
def test_clustered_bounds_cover_the_truth_about_as_often_as_they_say(share: float, alike: float) -> None:
    rng, rows, length, covered = np.random.default_rng(17), 64, 16, 0
    each = 1 / alike - 1
    for _ in range(400):
        hits = rng.binomial(length, rng.beta(share * each, (1 - share) * each, rows))
        hit = (np.arange(length) < hits[:, None]).ravel()
        found = rate_by_row(np.repeat(np.arange(rows), length), hit)
        covered += found.low <= share <= found.high
    assert 0.88 <= covered / 400 <= 0.99


def test_bounds_of_independent_units_are_scipys() -> None:
    reference = scipy.stats.binomtest(30, 490).proportion_ci(method="wilson")
    assert rate(30, 490)[2:4] == pytest.approx((reference.low, reference.high))
