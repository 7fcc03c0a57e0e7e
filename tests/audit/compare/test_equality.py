from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.audit.compare.equality import above_floor, equality, ulp_distance, unclamped
from proctor.audit.compare.grain import CLAMP

SINGLE = st.floats(-(2.0**100), 2.0**100, width=32)


def logprobs(n: int, seed: int = 0, low: float = 0.02) -> np.ndarray:
    return -np.exp(np.random.default_rng(seed).uniform(np.log(low), np.log(20.0), n)).astype(np.float32).astype(float)


def shown(values: np.ndarray, form: str) -> np.ndarray:
    return np.array([float(form.format(value)) for value in values.tolist()])


def test_exact_values_are_compared_bit_by_bit() -> None:
    values = logprobs(300)
    moved = values.copy()
    moved[7] = np.nextafter(np.float32(values[7]), np.float32(0))
    found = equality(moved, values)
    assert (found.bitwise, found.digits, found.decimals, found.unit) == (True, None, None, 0.0)
    assert np.flatnonzero(~found.equal).tolist() == [7]


def test_zero_has_no_sign() -> None:
    assert equality(np.array([0.0, -0.5]), np.array([-0.0, -0.5])).equal.all()


@pytest.mark.parametrize(
    ("form", "digits", "decimals"), [("{:.4f}", None, 4), ("{:.6f}", None, 6), ("{:.5g}", 5, None)]
)
def test_rounded_values_are_equal_at_their_digits(form: str, digits: int | None, decimals: int | None) -> None:
    values = logprobs(400)
    noisy = values + np.random.default_rng(3).normal(size=400) * 1e-9
    found = equality(shown(noisy, form), shown(values, form))
    assert (found.bitwise, found.decimals) == (False, decimals)
    assert digits in (None, found.digits)
    assert found.equal.mean() > 0.98
    far = equality(shown(values * 1.01, form), shown(values, form))
    assert far.equal.mean() < 0.1


def test_equally_rounded_values_that_differ_by_a_unit_are_different() -> None:
    sent = shown(logprobs(100), "{:.4f}")
    other = sent.copy()
    other[3] = round(other[3] - 1e-4, 4)
    assert np.flatnonzero(~equality(other, sent).equal).tolist() == [3]


@pytest.mark.parametrize(
    ("one", "other"), [("{}", "{:.5f}"), ("{:.7f}", "{:.4f}"), ("{:.5g}", "{}"), ("{:.6g}", "{:.5f}")]
)
def test_sides_that_were_rounded_differently_are_equal_if_one_value_explains_both(one: str, other: str) -> None:
    values = logprobs(500)
    found = equality(shown(values, one), shown(values, other))
    assert found.equal.all()
    assert not found.bitwise
    assert not equality(shown(values * 1.02, one), shown(values, other)).equal.any()


def test_the_coarser_side_is_told() -> None:
    values = logprobs(500)
    assert equality(shown(values, "{:.7f}"), shown(values, "{:.4f}")).decimals == 4
    assert equality(shown(values, "{:.5g}"), values).digits == 5


def test_few_values_that_end_in_zero_by_chance_take_the_precision_of_the_many() -> None:
    few, many = np.array([-1.25, -0.3]), np.array([-1.2501, -0.3])
    pool = shown(logprobs(50), "{:.4f}")
    found = equality(np.r_[few, [0.0] * 50], np.r_[many, pool])
    assert found.equal[:2].tolist() == [False, True]


def test_shortest_decimals_of_float32_and_float32_are_the_same_numbers() -> None:
    single = logprobs(300).astype(np.float32)
    sent = np.array([float(str(value)) for value in single])
    found = equality(sent, single.astype(float))
    assert found.bitwise
    assert found.equal.all()
    assert not equality(sent, np.nextafter(single, np.float32(0)).astype(float)).equal.any()


def test_shortest_decimals_against_float64_are_equal_at_nine_digits() -> None:
    exact = -np.exp(np.random.default_rng(0).uniform(-3, 3, 300))
    sent = np.array([float(str(value)) for value in exact.astype(np.float32)])
    found = equality(sent, exact)
    assert (found.bitwise, found.digits, bool(found.equal.all())) == (False, 9, True)


def test_the_clamp_and_minus_infinity_are_one() -> None:
    arm, against, met = unclamped(np.array([-math.inf, -0.5, -12_000.0]), np.array([CLAMP, -0.5, CLAMP]))
    assert met
    assert equality(arm, against).equal.all()
    without = unclamped(np.array([-math.inf]), np.array([-0.5]))
    assert not without[2]
    assert not equality(*without[:2]).equal.any()


def test_infinities_among_rounded_values_are_equal_to_themselves() -> None:
    sent = np.r_[shown(logprobs(50), "{:.4f}"), -math.inf]
    assert equality(sent, sent.copy()).equal.all()
    assert not equality(sent, np.r_[sent[:-1], -3.0]).equal[-1]
    exact = np.r_[logprobs(50), -math.inf]
    assert equality(exact, sent).equal.all()


@given(SINGLE, st.integers(1, 50))
def test_ulp_distance_counts_steps_of_float32(value: float, steps: int) -> None:
    there = np.float32(value)
    for _ in range(steps):
        there = np.nextafter(there, np.float32(-np.inf))
    assert ulp_distance(np.array([value]), np.array([float(there)])).tolist() == [steps]


@given(SINGLE, SINGLE)
def test_ulp_distance_is_a_distance(one: float, other: float) -> None:
    here, there = np.array([one]), np.array([other])
    assert ulp_distance(here, there) == ulp_distance(there, here)
    assert (ulp_distance(here, there) == 0) == (one == other)


def test_ulp_distance_crosses_zero_and_is_not_counted_there() -> None:
    tiny = float(np.nextafter(np.float32(0), np.float32(1)))
    assert ulp_distance(np.array([tiny, 0.0]), np.array([-tiny, -0.0])).tolist() == [2, 0]
    assert above_floor(np.array([-1e-7, -0.5, -0.01]), np.array([-2e-7, -0.5, -0.5])).tolist() == [False, True, False]


@given(st.lists(st.floats(-50, 0), min_size=1, max_size=40))
def test_anything_equals_itself(values: list[float]) -> None:
    assert equality(np.array(values), np.array(values)).equal.all()
