"""How two results of the same computation differ, and how far each is from the exact one."""

from __future__ import annotations

import msgspec
import torch

ULP_FLOOR = 0.1
"""Share of the result's root mean square under which a value counts no units in the last place. Attention is a sum of
terms of about that size, whose rounding does not shrink with the sum: near 0 a unit is tiny and the count is of no use
(10,000s of units for an ordinary difference)."""
PRECISION = {torch.float64: 53, torch.float32: 24, torch.bfloat16: 8, torch.float16: 11}
"""Significant bits."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Of one way to compute from another.

    Attributes:
        max_abs: largest absolute difference.
        relative: Euclidean norm of the difference over that of the exact result.
        equal: share of values that are the same bit by bit (0 and -0 count as the same).
        ulp: largest difference in units in the last place, among values above the floor.
        ulp_share: share of values above the floor.
    """

    max_abs: float
    relative: float
    equal: float
    ulp: float
    ulp_share: float


class Error(msgspec.Struct, frozen=True, kw_only=True):
    """Of a result from the one in float64.

    Attributes:
        max_abs: largest absolute error.
        relative: Euclidean norm of the error over that of the exact result.
    """

    max_abs: float
    relative: float


def difference(other: torch.Tensor, one: torch.Tensor, exact: torch.Tensor) -> Difference:
    """How `other` differs from `one`.

    Args:
        other, one: results, in the same number format.
        exact: in float64, of the same shape.
    """
    apart = (other.double() - one.double()).abs()
    large = one.double().abs() >= ULP_FLOOR * one.double().square().mean().sqrt()
    units = apart[large] / ulp(one)[large]
    return Difference(
        max_abs=float(apart.max()),
        relative=_relative(apart, exact),
        equal=float((other == one).double().mean()),
        ulp=float(units.max()) if units.numel() else 0.0,
        ulp_share=float(large.double().mean()),
    )


def error(result: torch.Tensor, exact: torch.Tensor) -> Error:
    """How far `result` is from `exact`, which is in float64."""
    apart = (result.double() - exact).abs()
    return Error(max_abs=float(apart.max()), relative=_relative(apart, exact))


def ulp(values: torch.Tensor) -> torch.Tensor:
    """The distance from each value to the next larger one of its number format, in float64 (for normal numbers)."""
    exponent = torch.frexp(values.double()).exponent
    return torch.ldexp(torch.ones_like(values, dtype=torch.float64), exponent - PRECISION[values.dtype])


def _relative(apart: torch.Tensor, exact: torch.Tensor) -> float:
    scale = float(torch.linalg.vector_norm(exact))
    return float(torch.linalg.vector_norm(apart)) / scale if scale else float(torch.linalg.vector_norm(apart))
