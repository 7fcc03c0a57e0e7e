"""What split attention does to the numbers: orders of magnitude and ratios, never digits."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch

from proctor.audit.attention.bench import Measured, measure
from proctor.audit.attention.plan import Sizes, left_out
from proctor.rows import UserError

HALVES = ("bfloat16", "float16")
SIZES = Sizes(dtypes=("float64", "float32", *HALVES), lengths=(640,), prefixes=(512,), splits=(2, 5))


@pytest.fixture(scope="module")
def found() -> list[Measured]:
    return list(measure(SIZES))


def of(found: list[Measured], **which: Any) -> list[Measured]:
    return [each for each in found if all(getattr(each, name) == value for name, value in which.items())]


def test_the_same_pass_again_is_equal_bit_by_bit(found: list[Measured]) -> None:
    control = of(found, way="single pass again")
    assert len(control) == 2 * len(SIZES.dtypes)
    assert all(each.apart.equal == 1 and each.apart.max_abs == each.apart.ulp == 0 for each in control)


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [("float64", 5e-17, 2e-15), ("float32", 3e-8, 6e-7), ("bfloat16", 5e-4, 8e-3), ("float16", 6e-5, 1e-3)],
)
def test_a_split_differs_by_the_rounding_of_the_format(
    found: list[Measured], dtype: str, low: float, high: float
) -> None:
    (each,) = of(found, way="split at prefix", phase="extend", dtype=dtype)
    assert low < each.apart.max_abs < high
    assert low < each.apart.relative < high
    assert 0.02 < each.apart.equal < 0.95
    assert each.single.max_abs < high


def test_in_float32_a_split_is_as_accurate_as_a_single_pass(found: list[Measured]) -> None:
    for each in of(found, dtype="float32", phase="extend"):
        assert each.ratio is not None
        assert 0.9 < each.ratio < 1.2


@pytest.mark.parametrize("dtype", HALVES)
def test_in_half_precision_rounded_partial_results_cost_accuracy(found: list[Measured], dtype: str) -> None:
    for way in ("split at prefix", "split-KV"):
        for each in of(found, dtype=dtype, phase="extend", way=way):
            assert each.ratio is not None
            assert 1.1 < each.ratio < 1.6
    for each in of(found, dtype=dtype, phase="extend", way="split-KV, float32 partials"):
        assert each.ratio is not None
        assert 0.85 < each.ratio < 1.08


def test_a_chunk_alone_costs_nothing_and_a_merge_does(found: list[Measured]) -> None:
    for dtype in HALVES:
        (chunks,), (merged,) = (of(found, dtype=dtype, way=way) for way in ("chunks", "chunks, context merged"))
        assert chunks.ratio is not None
        assert merged.ratio is not None
        assert chunks.ratio == pytest.approx(1, abs=0.05)
        assert 1.1 < merged.ratio < 1.6
        assert chunks.apart.relative < merged.apart.relative


def test_a_decoding_step_differs_as_much(found: list[Measured]) -> None:
    for dtype in SIZES.dtypes:
        (many,), (one,) = (of(found, way="split at prefix", dtype=dtype, phase=p) for p in ("extend", "decode"))
        assert one.queries == 1
        assert 0.5 < one.apart.relative / many.apart.relative < 2


def test_a_prefix_that_is_no_multiple_of_a_tile_makes_no_difference_of_kind() -> None:
    sizes = msgspec.structs.replace(SIZES, dtypes=("float32",), lengths=(500,), prefixes=(400,), heads=4)
    (each,) = of(list(measure(sizes)), way="split at prefix", phase="extend")
    assert 1e-8 < each.apart.max_abs < 1e-6


def test_inputs_follow_from_the_seed_and_no_setting_of_torch_stays_behind() -> None:
    small = Sizes(dtypes=("float32",), lengths=(256,), prefixes=(128,), heads=2, dim=16)
    before = torch.is_grad_enabled(), torch.get_float32_matmul_precision(), torch.get_rng_state().tolist()
    first = list(measure(small))
    assert first == list(measure(small))
    assert first != list(measure(msgspec.structs.replace(small, seed=1)))
    running = measure(small)
    next(running)
    assert (torch.is_grad_enabled(), torch.get_float32_matmul_precision(), torch.get_rng_state().tolist()) == before


def test_what_has_no_room_is_named() -> None:
    sizes = Sizes(lengths=(300,), prefixes=(512,), chunks=(128,), splits=(2,), heads=1, dim=8, dtypes=("float32",))
    assert len(left_out(sizes)) == 2
    assert {each.way for each in measure(sizes)} == {"single pass again", "split-KV"}


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"dtypes": ("float8",)}, "dtypes"),
        ({"lengths": (0,)}, "lengths"),
        ({"queries": 65, "lengths": (64,)}, "queries"),
        ({"seed": -1}, "seed"),
        ({"device": "cuda:77"}, "device"),
    ],
)
def test_sizes_that_cannot_be_are_told(changes: dict[str, Any], where: str) -> None:
    with pytest.raises(UserError) as told:
        list(measure(msgspec.structs.replace(Sizes(), **changes)))
    assert told.value.where == where
