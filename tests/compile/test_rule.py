"""The rule by which outputs agree: held against PyTorch's own, and over all kinds of outputs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs the `transformers` extra")

from transformers.modeling_outputs import BaseModelOutput  # noqa: E402

from proctor.compile.rule import TIMES, UNITS, judge, same_bits  # noqa: E402

FORMATS = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
sizes = st.lists(st.integers(0, 9), max_size=3).map(tuple)
seeds = st.integers(0, 2**16)


def numbers(shape: tuple[int, ...], seed: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rounded(wide: Any, dtype: Any, seed: int) -> Any:
    """As a correct kernel might give it: one rounding, and a quarter of a unit lost somewhere before."""
    lost = torch.rand(wide.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 0.5
    return (wide * (1 + lost * torch.finfo(dtype).eps / 2)).to(dtype)


@given(sizes, st.sampled_from(FORMATS), seeds)
def test_an_output_agrees_with_itself(shape: tuple[int, ...], dtype: Any, seed: int) -> None:
    wide = numbers(shape, seed)
    found = judge(rounded(wide, dtype, seed), rounded(wide, dtype, seed), wide)
    assert found.passed
    assert found.bitwise == 1
    assert found.largest == 0
    assert found.error_eager == found.error_compiled
    assert (found.error_eager or 0) < torch.finfo(dtype).eps


@given(st.integers(-40, 40), st.sampled_from([torch.float32, torch.bfloat16]), seeds)
def test_rounding_passes_at_any_scale_and_real_errors_do_not(power: int, dtype: Any, seed: int) -> None:
    wide = numbers((40, 50), seed) * 2.0**power
    eager = rounded(wide, dtype, seed)
    assert judge(eager, rounded(wide, dtype, seed + 1), wide).passed
    off = 2 * (TIMES + UNITS) * torch.finfo(dtype).eps * wide.std()
    wrong = (wide + off * numbers((40, 50), seed + 2)).to(dtype)
    found = judge(eager, wrong, wide)
    assert not found.passed
    assert "times" in found.reason
    assert (found.error_compiled or 0) > TIMES * (found.error_eager or 0)


@given(st.sampled_from([torch.float32, torch.bfloat16]), seeds, st.integers(0, 1999))
def test_one_wrong_element_is_not_averaged_away(dtype: Any, seed: int, place: int) -> None:
    wide = numbers((40, 50), seed)
    wrong = rounded(wide, dtype, seed + 1)
    wrong.view(-1)[place] += 0.25 * wide.abs().max()
    found = judge(rounded(wide, dtype, seed), wrong, wide)
    assert not found.passed
    assert found.largest == pytest.approx(0.25 * float(wide.abs().max()), rel=0.1)


@given(sizes, st.sampled_from(FORMATS[:3]), seeds, st.floats(0, 30), st.booleans())
def test_nothing_passes_that_pytorch_refuses(
    shape: tuple[int, ...], dtype: Any, seed: int, error: float, referenced: bool
) -> None:
    from torch._dynamo.utils import same

    wide = numbers(shape, seed)
    eager = rounded(wide, dtype, seed)
    off = error * torch.finfo(dtype).eps * numbers(shape, seed + 1)
    compiled = (wide + off).to(dtype)
    theirs = same(eager, compiled, fp64_ref=wide if referenced else None, log_error=lambda *_: None)
    ours = judge(eager, compiled, wide if referenced else None).passed
    if referenced:
        assert theirs or not ours
    elif dtype == torch.float32:
        assert ours == theirs


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("referenced", [True, False])
def test_what_is_not_finite_has_to_be_so_in_both(odd: float, referenced: bool) -> None:
    wide = numbers((30,), 1)
    eager = wide.float()
    eager[3] = odd
    reference = wide if referenced else None
    both = judge(eager, eager.clone(), reference)
    assert both.passed
    assert both.bitwise == 1
    assert both.largest == 0
    for other in (0.0, -math.inf if odd == math.inf else math.inf):
        compiled = eager.clone()
        compiled[3] = other
        for pair in ((eager, compiled), (compiled, eager)):
            found = judge(*pair, reference)
            assert not found.passed
            assert "1 other places" in found.reason
            assert math.isfinite(found.largest or 0)


def test_a_compiled_output_that_has_nan_no_more_is_no_better_here_than_with_pytorch() -> None:
    """PyTorch would let it pass; a model whose NaN has gone gives other answers all the same."""
    from torch._dynamo.utils import same

    wide = numbers((30,), 1)
    eager = wide.float()
    eager[0] = math.nan
    assert same(eager, wide.float(), fp64_ref=wide)
    assert not judge(eager, wide.float(), wide).passed


def test_zeros_have_no_relative_error_and_wrong_zeros_a_finite_one() -> None:
    zeros = torch.zeros(20)
    assert judge(zeros, zeros, zeros.double()).error_compiled == 0
    found = judge(zeros, zeros + 1, zeros.double())
    assert not found.passed
    assert math.isfinite(found.error_compiled or math.inf)
    assert "where eager has none" in found.reason


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.bool, torch.complex64])
def test_whole_and_complex_numbers(dtype: Any) -> None:
    eager = (torch.arange(20) % 2).to(dtype)
    assert judge(eager, eager.clone(), eager).passed
    compiled = eager.clone()
    compiled[5] = 0
    found = judge(eager, compiled, eager)
    assert not found.passed
    assert 0.9 < found.bitwise < 1


def test_large_whole_numbers_are_not_close_but_equal() -> None:
    eager = torch.tensor([1_000_000])
    assert not judge(eager, eager + 1, eager).passed


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass
class Plain:
    values: Any
    name: str = "x"


WRAPPED = [
    lambda one: (one, None),
    lambda one: [one, [one, 3]],
    lambda one: {"hidden": one, "none": None, "empty": ()},
    lambda one: Pair(one, 2.5),
    lambda one: Plain(one),
    lambda one: BaseModelOutput(last_hidden_state=one, hidden_states=(one, one)),
    lambda one: (one.to_sparse(), one.numpy()),
]


@pytest.mark.parametrize("wrap", WRAPPED)
def test_outputs_of_every_make(wrap: Any) -> None:
    wide = numbers((6, 5), 3)
    eager, other = wide.float(), wide.float()
    other[2, 2] += 1
    assert judge(wrap(eager), wrap(eager.clone()), wrap(wide)).passed
    assert same_bits(wrap(eager), wrap(eager.clone()))
    assert not judge(wrap(eager), wrap(other), wrap(wide)).passed
    assert not same_bits(wrap(eager), wrap(other))


@pytest.mark.parametrize(
    ("eager", "compiled", "reason"),
    [
        ((torch.ones(2), torch.ones(2)), (torch.ones(2),), "no [1]"),
        ({"a": torch.ones(2)}, {"a": torch.ones(2), "b": None}, "eager output has no b"),
        ({"a": torch.ones(2)}, {"a": None}, "a: None instead of a tensor"),
        (None, torch.ones(2), "a tensor (2,) instead of None"),
        (torch.ones(2), torch.ones(2, 1), "shape"),
        (torch.ones(2), torch.ones(2).half(), "dtype"),
        ((1, "a"), (1, "b"), "[1]: 'b' instead of 'a'"),
        ((1, True), (1, 1), "instead"),
    ],
)
def test_outputs_of_another_make_do_not_agree(eager: Any, compiled: Any, reason: str) -> None:
    found = judge(eager, compiled)
    assert reason in found.reason
    assert not same_bits(eager, compiled)


def test_the_sign_of_zero_is_a_bit_and_no_error() -> None:
    found = judge(torch.zeros(4), -torch.zeros(4), torch.zeros(4).double())
    assert found.passed
    assert found.bitwise == 0
    assert not same_bits(torch.zeros(4), -torch.zeros(4))


def test_the_worst_of_several_outputs_is_the_one_reported() -> None:
    wide = numbers((100,), 5)
    fine, bad = wide.float(), wide.float() + 0.01
    found = judge((fine, fine), (fine, bad), (wide, wide))
    assert found.reason.startswith("[1]: ")
    assert (found.error_compiled or 0) > 1e-3
    assert found.bitwise == pytest.approx(0.5, abs=0.05)


@given(sizes, seeds)
def test_without_a_reference_half_precision_may_differ_by_its_own_rounding(shape: tuple[int, ...], seed: int) -> None:
    wide = numbers(shape, seed)
    found = judge(rounded(wide, torch.bfloat16, seed), rounded(wide, torch.bfloat16, seed + 1))
    assert found.passed
    assert found.error_eager is None


def test_a_reference_of_another_make_is_none() -> None:
    found = judge(torch.ones(4), torch.ones(4), torch.ones(5).double())
    assert found.passed
    assert found.error_eager is None
