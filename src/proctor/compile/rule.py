"""When the outputs of a compiled module agree with those of the module as it was written.

Two rules, and both have to hold for every tensor of the output.

The first is PyTorch's own, by which it judges its compilers: `torch._dynamo.utils.same(ref, res, fp64_ref=...)`, read
in version 2.13 and restated here so that it does not move with the version installed: either all elements are close
(``allclose`` with absolute and relative tolerance 1e-4), or the root mean square error of the compiled output against
the float64 reference is at most `multiplier` times that of the eager output plus 1e-5; the multiplier is 2, and 3 for
half precision, for tensors of less than 1,000 elements and for the weights of 1x1 kernels. Stricter than there: NaN and
infinities have to stand in the same places with the same sign (PyTorch lets a compiled output be better than an eager
one that has NaN), and whole numbers and booleans have to be equal.

The second knows no absolute tolerance, under which anything passes where the values are small, and does not average a
wrong row away: both the root mean square and the largest error of the compiled output are at most `TIMES` those of the
eager output plus a few units in the last place.
"""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple

import torch

from proctor.compile.leaves import leaves

TOLERANCE = 1e-4
"""PyTorch's: absolute and relative, and a tenth of it between root mean square errors."""
TIMES = 10.0
"""So many times as wrong as eager a compiled output may be: PyTorch's own largest multiplier."""
UNITS = 4.0
"""Units in the last place (machine epsilons of the output's type) that are no error where eager has none."""
FEW_UNITS = 64.0
"""The same for tensors of less than `FEW` elements, of which eager may have got every one right by luck."""
FEW = 16
_HALF = (torch.float16, torch.bfloat16)


class Judgement(NamedTuple):
    """What comparing two outputs gave.

    Attributes:
        reason: why they do not agree; empty where they do.
        error_eager, error_compiled: relative root mean square errors of the output that comes out worst; None without a
            reference.
        same: elements that are equal bit by bit.
        elements: of all tensors.
        largest: absolute difference between the arms; None where they cannot be subtracted.
    """

    reason: str = ""
    error_eager: float | None = None
    error_compiled: float | None = None
    same: int = 0
    elements: int = 0
    largest: float | None = None

    @property
    def passed(self) -> bool:
        """Whether the outputs agree."""
        return not self.reason

    @property
    def bitwise(self) -> float:
        """Share of equal elements, 0 to 1."""
        if self.elements:
            return self.same / self.elements
        return 1.0 if self.passed else 0.0


def judge(eager: Any, compiled: Any, reference: Any = None) -> Judgement:
    """Judges a compiled output against the eager one, and both against a reference in higher precision.

    Args:
        eager, compiled: tensors of any shape, plain values, None, or tuples, lists, mappings and data classes of them.
        reference: of the same structure; None where there is none: then PyTorch's ``allclose`` alone decides, widened
            to a few units in the last place for half precision.
    """
    left, right = leaves(eager), leaves(compiled)
    if missing := sorted(left.keys() ^ right.keys()):
        arm = "compiled" if missing[0] in left else "eager"
        return Judgement(f"the {arm} output has no {missing[0] or 'value'}")
    wide = leaves(reference) if reference is not None else {}
    return worst([_leaf(name, left[name], right[name], wide.get(name)) for name in left])


def worst(judgements: list[Judgement]) -> Judgement:
    """Several judgements as one: reasons by the first that has one, errors of the worst, elements added up."""
    errors = [one for one in judgements if one.error_compiled is not None]
    most = max(errors, key=lambda one: one.error_compiled or 0.0, default=Judgement())
    differences = [one.largest for one in judgements if one.largest is not None]
    return Judgement(
        next((one.reason for one in judgements if one.reason), ""),
        most.error_eager,
        most.error_compiled,
        sum(one.same for one in judgements),
        sum(one.elements for one in judgements),
        max(differences, default=None),
    )


def same_bits(one: Any, other: Any) -> bool:
    """Whether two outputs are equal to the last bit, NaN and the sign of zero included."""
    left, right = leaves(one), leaves(other)
    return left.keys() == right.keys() and all(_identical(value, right[name]) for name, value in left.items())


def _identical(one: Any, other: Any) -> bool:
    if torch.is_tensor(one) and torch.is_tensor(other):
        alike = one.dtype == other.dtype and one.shape == other.shape
        return alike and bool(_equal_bits(one, other).all())
    return type(one) is type(other) and bool(one == other)


def _leaf(name: str, eager: Any, compiled: Any, reference: Any) -> Judgement:
    where = f"{name}: " if name else ""
    if not torch.is_tensor(eager) or not torch.is_tensor(compiled):
        return Judgement("" if _identical(eager, compiled) else f"{where}{_short(compiled)} instead of {_short(eager)}")
    for word in ("dtype", "shape"):
        if getattr(eager, word) != getattr(compiled, word):
            return Judgement(f"{where}{word} {getattr(compiled, word)} instead of {getattr(eager, word)}")
    if eager.dtype.is_complex:
        return _leaf(name, *map(_as_real, (eager, compiled, reference)))
    same, elements = int(_equal_bits(eager, compiled).sum()), eager.numel()
    if not eager.dtype.is_floating_point:
        return Judgement(
            f"{where}{elements - same} of {elements} values differ" if same < elements else "",
            same=same,
            elements=elements,
        )
    if not torch.is_tensor(reference) or reference.shape != eager.shape:
        reference = None
    found = _numbers(eager, compiled, reference)
    return found._replace(reason=found.reason and where + found.reason, same=same, elements=elements)


def _as_real(value: Any) -> Any:
    return torch.view_as_real(value.resolve_conj()) if torch.is_tensor(value) and value.is_complex() else value


def _short(value: Any) -> str:
    shown = f"a tensor {tuple(value.shape)}" if torch.is_tensor(value) else repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def _equal_bits(one: Any, other: Any) -> Any:
    """By element."""
    one, other = _as_real(one), _as_real(other)
    if not one.dtype.is_floating_point:
        return one == other
    whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[one.dtype.itemsize]
    return one.contiguous().view(whole) == other.contiguous().view(whole)


class _Errors(NamedTuple):
    """Of one tensor, where all are finite: absolute errors and sizes, as float64."""

    rms_eager: float
    rms_compiled: float
    top_eager: float
    top_compiled: float
    rms_reference: float
    top_reference: float


def _numbers(eager: Any, compiled: Any, reference: Any) -> Judgement:
    a, b = eager.detach().double(), compiled.detach().double()
    if not torch.equal(_kinds(a), _kinds(b)):
        return Judgement(f"NaN or infinities in {int((_kinds(a) != _kinds(b)).sum())} other places")
    finite = a.isfinite() if reference is None else a.isfinite() & reference.isfinite()
    a, b = a[finite], b[finite]
    largest = _top(a - b)
    if reference is None:
        return Judgement(_without_reference(a, b, eager.dtype), largest=largest)
    wide = reference.detach().double()[finite]
    errors = _Errors(_rms(a - wide), _rms(b - wide), _top(a - wide), _top(b - wide), _rms(wide), _top(wide))
    reason = _pytorch(errors, eager, _close(a, b)) or _scale_free(errors, eager.dtype, eager.numel())
    size = max(errors.rms_reference, torch.finfo(eager.dtype).tiny)
    return Judgement(reason, _ratio(errors.rms_eager, size), _ratio(errors.rms_compiled, size), largest=largest)


def _kinds(values: Any) -> Any:
    """0 for finite, 1 for NaN, 2 and 3 for the infinities."""
    return values.isnan() * 1 + values.isposinf() * 2 + values.isneginf() * 3


def _close(a: Any, b: Any, tolerance: float = TOLERANCE) -> bool:
    return bool(((a - b).abs() <= tolerance + tolerance * b.abs()).all())


def _without_reference(a: Any, b: Any, dtype: Any) -> str:
    tolerance = max(TOLERANCE, UNITS * torch.finfo(dtype).eps)
    return "" if _close(a, b, tolerance) else f"differs by up to {_top(a - b):.3g}, and there is no reference"


def _pytorch(errors: _Errors, eager: Any, close: bool) -> str:
    """PyTorch's rule; see the module."""
    few = eager.numel() < 1_000 or (eager.ndim == 4 and eager.shape[-1] == eager.shape[-2] == 1)
    multiplier = 3.0 if eager.dtype in _HALF or few else 2.0
    if close or errors.rms_compiled <= multiplier * errors.rms_eager + TOLERANCE / 10:
        return ""
    return _told("error", errors.rms_compiled, errors.rms_eager)


def _scale_free(errors: _Errors, dtype: Any, elements: int) -> str:
    """The second rule; see the module."""
    slack = (UNITS if elements >= FEW else FEW_UNITS) * torch.finfo(dtype).eps
    if errors.rms_compiled > TIMES * errors.rms_eager + slack * errors.rms_reference:
        return _told("error", errors.rms_compiled, errors.rms_eager)
    if errors.top_compiled > TIMES * errors.top_eager + slack * errors.top_reference:
        return _told("largest error", errors.top_compiled, errors.top_eager)
    return ""


def _told(what: str, compiled: float, eager: float) -> str:
    times = f"{compiled / eager:.3g} times the {eager:.3g} of eager" if eager else "where eager has none"
    return f"{what} {compiled:.3g} against float64, {times}"


def _top(values: Any) -> float:
    return min(float(values.abs().max()), sys.float_info.max) if values.numel() else 0.0


def _rms(values: Any) -> float:
    """Root mean square that neither overflows nor underflows."""
    largest = _top(values)
    if largest == 0:
        return 0.0
    return largest * math.sqrt(float(((values / largest) ** 2).mean()))


def _ratio(error: float, size: float) -> float:
    return min(error / size, sys.float_info.max)
