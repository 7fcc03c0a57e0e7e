"""What the log-probabilities of a comparison say: how many are equal, and how far the others moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proctor.audit.compare.align import Aligned
from proctor.audit.compare.columns import Columns, fitting_logprobs
from proctor.audit.compare.equality import Equality, above_floor, equality, ulp_distance, unclamped
from proctor.audit.compare.grain import CLAMP
from proctor.audit.compare.intervals import rate_by_row
from proctor.audit.model import Rate

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

SHIFT_QUANTILES = (0.5, 0.9, 0.99, 1.0)
ULP_QUANTILES = (0.5, 1.0)
NOISY_ROWS = 0.9
"""Quantile over the rows of a row's largest difference that counts as the noise. Not the largest: a bug in a few rows
would hide itself. Not much less: a row with few uncertain tokens moves little."""
HALF_PRECISION = {8: "bfloat16", 11: "float16"}


class Figures(NamedTuple):
    """What the log-probabilities say; the fields of `Comparison` of the same names.

    Attributes:
        row_shift: (pairs,) largest absolute difference of each pair (nats); NaN where nothing was compared. Of replays,
            those positions count at which the same token leads.
        differs: whether any differ at the transported precision, or are NaN on one side only.
    """

    logprob_equal: Rate | None
    digits: int | None
    decimals: int | None
    bitwise: bool
    shift: tuple[float, ...]
    rms: float | None
    noise: float | None
    ulp: tuple[float, ...]
    row_shift: Floats
    differs: bool
    remarks: tuple[str, ...]


class Compared(NamedTuple):
    """Positions whose log-probabilities are compared.

    Attributes:
        at: (positions,) where they are in the columns, as a mask.
        equality: of those positions.
        shift: (positions compared,) absolute differences (nats); NaN where a side is -inf or clamped.
        not_numbers: rows kept apart because a side has NaN.
        one_sided: whether some position is NaN on one side only.
        clamped: whether vLLM's clamp was met.
    """

    at: Flags
    equality: Equality
    shift: Floats
    not_numbers: tuple[int, ...]
    one_sided: bool
    clamped: bool


def compared(columns: Columns) -> Compared:
    """Compares the log-probabilities of tokens that both sides chose. Rows with a NaN are kept apart whole."""
    ours, theirs, told = columns.arm.logprobs, columns.against.logprobs, columns.told
    nan = np.isnan(ours) & told, np.isnan(theirs) & told
    apart = np.unique(columns.row[nan[0] | nan[1]])
    at = told & ~np.isin(columns.row, apart)
    arm, against, clamped = unclamped(ours[at], theirs[at])
    finite = np.isfinite(arm) & np.isfinite(against) & (arm != CLAMP) & (against != CLAMP)
    shift = np.abs(np.subtract(arm, against, out=np.full(arm.shape, np.nan), where=finite))
    one_sided = bool(np.any(nan[0] != nan[1]))
    return Compared(at, equality(arm, against), shift, tuple(apart.tolist()), one_sided, clamped)


def figures(aligned: Sequence[Aligned], columns: Columns, *, replayed: bool = False) -> Figures:
    """The figures of all compared positions."""
    found = compared(columns)
    numbers = ~np.isnan(found.shift)
    shift, equal = found.shift[numbers], found.equality
    row_shift = np.full(len(aligned), np.nan)
    calm = (columns.led_alike != 0) if replayed else np.ones(len(columns.pair), dtype=bool)
    np.fmax.at(row_shift, columns.pair[found.at & calm], found.shift[calm[found.at]])
    return Figures(
        logprob_equal=rate_by_row(columns.row[found.at], equal.equal) if _asked(aligned) else None,
        digits=equal.digits,
        decimals=equal.decimals,
        bitwise=equal.bitwise,
        shift=_quantiles(shift, SHIFT_QUANTILES),
        rms=float(np.sqrt(np.mean(np.square(shift)))) if len(shift) else None,
        noise=_noise(aligned, row_shift, equal.unit),
        ulp=_ulp(columns, found, numbers),
        row_shift=row_shift,
        differs=not bool(equal.equal.all()) or found.one_sided,
        remarks=tuple(_remarks(aligned, columns, found)),
    )


def _asked(aligned: Sequence[Aligned]) -> bool:
    return any(item.pair.arm.logprobs is not None and item.pair.against.logprobs is not None for item in aligned)


def _quantiles(values: Floats | NDArray[np.int64], at: Sequence[float]) -> tuple[float, ...]:
    """Quantiles that are values which occurred; none of nothing."""
    if len(values) == 0:
        return ()
    return tuple(float(value) for value in np.quantile(values.astype(np.float64), at, method="higher"))


def _noise(aligned: Sequence[Aligned], row_shift: Floats, unit: float) -> float | None:
    """What most rows show; rounds of a row are one row."""
    known = ~np.isnan(row_shift)
    if not known.any():
        return None
    rows, place = np.unique(np.array([item.pair.arm.row_id for item in aligned])[known], return_inverse=True)
    largest = np.zeros(len(rows))
    np.maximum.at(largest, place, row_shift[known])
    return max(float(np.quantile(largest, NOISY_ROWS, method="higher")), unit)


def _ulp(columns: Columns, found: Compared, numbers: Flags) -> tuple[float, ...]:
    if not found.equality.bitwise:
        return ()  # what was rounded in decimals is not told in units of float32
    arm, against = columns.arm.logprobs[found.at][numbers], columns.against.logprobs[found.at][numbers]
    large = above_floor(arm, against)
    return _quantiles(ulp_distance(arm[large], against[large]), ULP_QUANTILES)


def _remarks(aligned: Sequence[Aligned], columns: Columns, found: Compared) -> list[str]:
    remarks = [*_granularity(found.equality)]
    if found.not_numbers:
        which = ", ".join(map(str, found.not_numbers[:5])) + (" ..." if len(found.not_numbers) > 5 else "")
        side = "on one side only" if found.one_sided else "on both sides"
        remarks.append(f"log-probabilities are not numbers in {len(found.not_numbers)} rows, {side}, "
                       f"and are kept apart there: {which}")  # fmt: skip
    if found.clamped:
        remarks.append(f"{CLAMP:g} stands for anything below it, -inf included: such values count as equal")
    odd = sum(not fitting_logprobs(side) for item in aligned for side in item.pair if side.logprobs is not None)
    if odd:
        remarks.append(f"{odd} answers have not as many log-probabilities as tokens; theirs are left out")
    told = [sum(side.logprobs is not None for side in sides) for sides in zip(*(i.pair for i in aligned), strict=True)]
    if any(told) and min(told) < max(told):
        remarks.append(f"log-probabilities in {told[0]} answers of one side and {told[1]} of the other: "
                       "where a side has none, tokens and texts are compared")  # fmt: skip
    if any(aligned[pair].unit == "character" for pair in np.unique(columns.pair).tolist()):
        remarks.append("without token ids, log-probabilities are compared only where texts and counts are equal")
    return remarks


def _granularity(equal: Equality) -> list[str]:
    if equal.decimals is not None:
        return [f"log-probabilities were rounded to {equal.decimals} decimals on the way: equal means equal at those"]
    if equal.digits is not None:
        return [f"log-probabilities came with {equal.digits} significant digits: equal means equal at those"]
    fitting = [name for bits, name in HALF_PRECISION.items() if 0 < equal.bits <= bits]
    if fitting and len(equal.equal) >= 8:
        return [f"log-probabilities are {fitting[0]} numbers: smaller differences cannot be seen"]
    return []
