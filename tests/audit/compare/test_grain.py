from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.audit.compare.grain import CLAMP, decimal_shape, grain_of, half_unit, significant_bits

FEW, MANY = 6, 3_000


def logprobs(n: int, seed: int = 0, low: float = 1e-4, high: float = 20.0) -> np.ndarray:
    """Log-probabilities as models have them: over several decades."""
    return -np.exp(np.random.default_rng(seed).uniform(np.log(low), np.log(high), n))


def single(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float32).astype(np.float64)


def to_bits(values: np.ndarray, bits: int) -> np.ndarray:
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.round(mantissa * 2.0**bits), exponent - bits)


@pytest.mark.parametrize("n", [FEW, MANY])
@pytest.mark.parametrize("digits", [4, 5, 6, 7, 8])
@pytest.mark.parametrize("source", [single, np.asarray])
def test_significant_digits_are_found(n: int, digits: int, source: object) -> None:
    sent = np.array([float(f"{value:.{digits}g}") for value in source(logprobs(n))])
    grain = grain_of(sent)
    assert (grain.kind, grain.digits) == ("significant", digits)


@pytest.mark.parametrize("n", [FEW, MANY])
@pytest.mark.parametrize("decimals", [4, 5, 6, 7, 8])
@pytest.mark.parametrize("source", [single, np.asarray])
def test_decimals_are_found(n: int, decimals: int, source: object) -> None:
    sent = np.array([float(f"{value:.{decimals}f}") for value in source(logprobs(n, low=0.02))])
    grain = grain_of(sent)
    assert (grain.kind, grain.decimals) == ("decimals", decimals)


@pytest.mark.parametrize("n", [1, FEW, MANY])
@pytest.mark.parametrize("seed", range(20))
def test_what_was_computed_is_never_called_rounded(n: int, seed: int) -> None:
    values = logprobs(n, seed)
    for exact in (
        values,
        single(values),
        to_bits(values, 8),
        to_bits(values, 11),
        np.log(np.arange(1, n + 1) / (n + 2)),
    ):
        assert grain_of(exact).kind == "exact"


def test_bfloat16_looks_coarse_and_is_not_rounded() -> None:
    values = to_bits(logprobs(MANY, low=1.0, high=16.0), 8)
    assert max(decimal_shape(-value)[0] for value in values.tolist()) <= 9  # as short as rounded decimals
    grain = grain_of(values)
    assert (grain.kind, grain.bits) == ("exact", 8)


@pytest.mark.parametrize("form", ["{:.9g}", "shortest"])
def test_decimals_that_restore_a_float32_lose_nothing(form: str) -> None:
    values = logprobs(MANY).astype(np.float32)
    sent = np.array([float(str(value)) if form == "shortest" else float(form.format(value)) for value in values])
    assert grain_of(sent).kind == "float32"
    assert np.array_equal(sent.astype(np.float32), values)


def test_nine_digits_of_a_float64_are_a_loss() -> None:
    sent = np.array([float(f"{value:.9g}") for value in logprobs(MANY)])
    assert (grain_of(sent).kind, grain_of(sent).digits) == ("significant", 9)


@pytest.mark.parametrize("values", [[], [0.0, -0.0], [-np.inf, CLAMP, np.nan], [-0.5] * 99, [-0.25, -1.0, -2.0]])
def test_values_that_say_nothing_are_not_called_rounded(values: list[float]) -> None:
    assert grain_of(np.array(values, dtype=np.float64)).kind == "exact"


def test_a_constant_decimal_is_rounded_only_if_short() -> None:
    assert grain_of(np.full(50, -0.1234)).kind == "significant"
    assert grain_of(np.full(50, -0.123456789012)).kind == "exact"  # one value in 16,000 is as short by chance


def test_one_long_value_among_short_ones_shows_that_nothing_was_rounded() -> None:
    assert grain_of(np.array([-0.1, -0.2, -0.3, -0.7, np.log(0.3)])).kind == "exact"


def test_special_values_do_not_hide_the_rounding() -> None:
    sent = np.array([float(f"{value:.4f}") for value in logprobs(200, low=0.02)] + [0.0, CLAMP, -np.inf, np.nan])
    assert (grain_of(sent).kind, grain_of(sent).decimals) == ("decimals", 4)


def test_float32_passes_through_json_as_it_is() -> None:
    values = single(logprobs(20_000))
    assert np.array_equal(np.array(json.loads(json.dumps(values.tolist()))), values)


@pytest.mark.parametrize(("decimals", "share"), [(7, 1.0), (6, 0.956), (5, 0.095), (4, 0.009)])
def test_share_of_float32_near_11_that_decimals_restore(decimals: int, share: float) -> None:
    values = np.random.default_rng(1).normal(-11, 1, 20_000).astype(np.float32)
    restored = np.array([float(f"{value:.{decimals}f}") for value in values.tolist()]).astype(np.float32)
    assert np.mean(restored == values) == pytest.approx(share, abs=0.05 if decimals == 6 else 0.01)


@pytest.mark.parametrize(("digits", "share"), [(9, 1.0), (8, 0.96), (7, 0.176), (6, 0.017)])
def test_share_of_float32_near_11_that_significant_digits_restore(digits: int, share: float) -> None:
    values = np.random.default_rng(1).normal(-11, 0.75, 20_000).astype(np.float32)
    restored = np.array([float(f"{value:.{digits}g}") for value in values.tolist()]).astype(np.float32)
    assert np.mean(restored == values) == pytest.approx(share, abs=0.02)


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_shape_is_that_of_the_shortest_decimal_form(value: float) -> None:
    from decimal import Decimal

    digits, exponent = Decimal(repr(value)).normalize().as_tuple()[1:]
    assert decimal_shape(value) == (len(digits), max(0, -int(exponent)))


@given(st.integers(1, 2**53 - 1), st.integers(-200, 200))
def test_bits_are_those_between_the_first_and_the_last_that_is_set(whole: int, exponent: int) -> None:
    odd = whole // (whole & -whole)
    assert significant_bits(np.array([np.ldexp(float(whole), exponent)])) == odd.bit_length()


def test_half_a_unit_follows_the_magnitude_only_for_significant_digits() -> None:
    values = np.array([-0.0123, -1.23, -12.3, 0.0])
    fixed = grain_of(np.array([-0.0123, -1.2345, -12.3456, -3.1416, -0.5772, -9.8765]))
    assert half_unit(values, fixed) == pytest.approx([5e-5] * 4)
    digits = grain_of(np.array([-0.0123, -1.23, -12.3, -0.456, -789.0, -0.00321]))
    assert half_unit(values, digits) == pytest.approx([5e-5, 5e-3, 5e-2, 0.0])
