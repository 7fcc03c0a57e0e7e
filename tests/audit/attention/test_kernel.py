"""Attention in tiles and its parts, against torch's own attention in float64."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from proctor.audit.attention.difference import difference, ulp
from proctor.audit.attention.kernel import attend, exact, merge
from proctor.audit.attention.ways import Way, chunked, even_cuts, single, split_at

Given = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def inputs(queries: int, keys: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Given:
    draw = torch.Generator().manual_seed(seed)
    shapes = ((2, queries, 8), (2, keys, 8), (2, keys, 8))
    query, key, value = (torch.randn(shape, generator=draw, dtype=torch.float64).to(dtype) for shape in shapes)
    return query, key, value


def oracle(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril(key.shape[-2] - query.shape[-2])
    return scaled_dot_product_attention(query, key, value, attn_mask=mask)


@given(
    keys=st.integers(1, 300),
    queries=st.integers(1, 40),
    cuts=st.lists(st.integers(0, 320), max_size=4),
    chunk=st.integers(1, 50),
    seed=st.integers(0, 5),
)
@settings(deadline=None, max_examples=60)
def test_every_way_is_the_same_attention(keys: int, queries: int, cuts: list[int], chunk: int, seed: int) -> None:
    given_ = inputs(min(queries, keys), keys, seed=seed)
    true = oracle(*given_)
    ways: list[Way] = [single, split_at(sorted(cuts)), split_at(sorted(cuts), wide_partials=True)]
    ways += [chunked(chunk), chunked(chunk, merged=True)]
    for way in ways:
        torch.testing.assert_close(way(*given_), true, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(exact(*given_, sees=keys - min(queries, keys) + 1), true, rtol=1e-12, atol=1e-13)


def test_the_logarithm_of_the_sum_is_that_of_all_scores() -> None:
    query, key, value = inputs(5, 300)
    part = attend(query, key, value)
    scores = query @ key.transpose(-1, -2) / math.sqrt(8)
    torch.testing.assert_close(part.lse[..., 0], torch.logsumexp(scores, -1))


def test_a_query_that_sees_nothing_has_no_weight_in_the_merge() -> None:
    query, key, value = inputs(2, 10)
    blind = attend(query, key, value, sees=-5)
    assert bool((blind.out == 0).all())
    assert bool((blind.lse == -math.inf).all())
    seen = attend(query, key, value)
    assert torch.equal(merge([blind, seen], torch.float64), seen.out)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_results_are_stored_as_asked_and_sums_are_wide(dtype: torch.dtype) -> None:
    query, key, value = inputs(3, 200, dtype)
    part = attend(query, key, value)
    assert (part.out.dtype, part.lse.dtype) == (dtype, torch.float32)
    assert attend(query, key, value, store=torch.float32).out.dtype == torch.float32
    assert split_at([100])(query, key, value).dtype == split_at([])(query, key, value).dtype == dtype


def test_probabilities_are_rounded_before_they_weigh_the_values() -> None:
    """Values of 1 add up to the sum of the rounded probabilities over that of the exact ones, which is not 1."""
    query, key = torch.ones(1, 1, 8, dtype=torch.bfloat16), torch.zeros(1, 3, 8, dtype=torch.bfloat16)
    key[0, 0], key[0, 1] = 0.75, 0.125
    part = attend(query, key, torch.ones(1, 3, 8, dtype=torch.bfloat16), store=torch.float32)
    weights = torch.exp(torch.tensor([0.0, -0.625 * 8**0.5, -0.75 * 8**0.5]))
    expected = float(weights.bfloat16().float().sum() / weights.sum())
    assert abs(expected - 1) > 1e-4
    assert part.out[0, 0].tolist() == pytest.approx([expected] * 8, rel=1e-6)


@pytest.mark.parametrize(
    ("keys", "splits", "cuts"),
    [(640, 2, [384]), (640, 8, [128, 256, 384, 512]), (4096, 4, [1024, 2048, 3072]), (100, 4, []), (640, 1, [])],
)
def test_split_kv_cuts_at_whole_tiles(keys: int, splits: int, cuts: list[int]) -> None:
    assert even_cuts(keys, splits) == cuts


@pytest.mark.parametrize(
    ("dtype", "above_one"),
    [(torch.float64, 2.0**-52), (torch.float32, 2.0**-23), (torch.bfloat16, 2.0**-7), (torch.float16, 2.0**-10)],
)
def test_a_unit_in_the_last_place(dtype: torch.dtype, above_one: float) -> None:
    assert ulp(torch.tensor([1.0, 1.5, 2.0, -0.5], dtype=dtype)).tolist() == [
        above_one, above_one, 2 * above_one, above_one / 2,
    ]  # fmt: skip


def test_units_are_not_counted_near_zero() -> None:
    one = torch.tensor([1.0, 1.0, 1e-6], dtype=torch.float32)
    other = torch.tensor([1.0, 1.0 + 2.0**-22, -1e-6], dtype=torch.float32)
    found = difference(other, one, one.double())
    assert found.ulp == 2
    assert found.ulp_share == found.equal * 2 == pytest.approx(2 / 3)
    assert found.max_abs == pytest.approx(2e-6)
