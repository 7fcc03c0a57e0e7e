"""Where each pair of a comparison parts, and what follows: equal tokens, flips, survival."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proctor.audit.compare.align import Aligned
from proctor.audit.compare.columns import Columns
from proctor.audit.compare.flips import by_margin, flip_of, remarks_on
from proctor.audit.compare.intervals import rate_by_row
from proctor.audit.compare.logprobs import Figures
from proctor.audit.compare.survival import survival_of
from proctor.audit.model import Flip, Rate, Survival


class Parting(NamedTuple):
    """Where pairs part; the fields of `Comparison` of the same names.

    Attributes:
        differs: whether a pair parts, or another token is the most likely one somewhere.
    """

    token_equal: Rate | None
    top1_equal: Rate | None
    flips: tuple[Flip, ...]
    survival: Survival
    differs: bool
    remarks: tuple[str, ...]


class _Events(NamedTuple):
    """Which pairs count, how far they go together, and whether they part there."""

    at: NDArray[np.int64]
    length: NDArray[np.int64]
    parted: NDArray[np.bool_]


def parting(aligned: Sequence[Aligned], columns: Columns, numbers: Figures, *, replayed: bool) -> Parting:
    """Looks for the first difference of each pair.

    Where tokens were replayed they are equal by force; there a pair parts at the first position at which another token
    is the most likely one, and every such position is a flip.
    """
    unit: Literal["token", "character"] = (
        "token" if not aligned or any(item.unit == "token" for item in aligned) else "character"
    )
    chosen = [place for place, item in enumerate(aligned) if item.unit == unit]
    events = _replayed(aligned, columns, chosen) if replayed else _free(aligned, chosen)
    rows = np.array([item.pair.arm.row_id for item in aligned], dtype=np.int64)[events.at]
    places = _leads_elsewhere(aligned, columns, events) if replayed else _ends(events)
    flips = by_margin(
        flip_of(aligned[place], position, float(numbers.row_shift[place]), numbers.noise, replayed=replayed)
        for place, position in places
    )
    known = columns.led_alike >= 0
    led = rate_by_row(columns.row[known], columns.led_alike[known] == 1) if known.any() else None
    per_row = len(rows) / max(1, len(np.unique(rows)))
    return Parting(
        token_equal=_token_equal(rows, events, unit, replayed=replayed),
        top1_equal=led,
        flips=flips,
        survival=survival_of(events.length, events.parted, per_row=per_row),
        differs=bool(flips) or (led is not None and led.hits < led.of),
        remarks=(*_unit_remarks(aligned, chosen, unit, replayed=replayed), *remarks_on(flips, numbers.noise)),
    )


def _ends(events: _Events) -> list[tuple[int, int]]:
    """Pairs that part, and where."""
    return list(zip(events.at[events.parted].tolist(), events.length[events.parted].tolist(), strict=True))


def _leads_elsewhere(aligned: Sequence[Aligned], columns: Columns, events: _Events) -> list[tuple[int, int]]:
    """Every pair and position at which another token is the most likely one."""
    lengths = np.array([item.length for item in aligned], dtype=np.int64)
    at = (columns.led_alike == 0) & np.isin(columns.pair, events.at)
    at &= columns.position < lengths[columns.pair]
    return list(zip(columns.pair[at].tolist(), columns.position[at].tolist(), strict=True))


def _token_equal(rows: NDArray[np.int64], events: _Events, unit: str, *, replayed: bool) -> Rate | None:
    if unit == "character" or (replayed and len(rows) == 0):
        return None
    return rate_by_row(rows, ~events.parted)


def _free(aligned: Sequence[Aligned], chosen: Sequence[int]) -> _Events:
    return _Events(
        np.array(chosen, dtype=np.int64),
        np.array([aligned[place].length for place in chosen], dtype=np.int64),
        np.array([aligned[place].parted for place in chosen], dtype=bool),
    )


def _replayed(aligned: Sequence[Aligned], columns: Columns, chosen: Sequence[int]) -> _Events:
    """Pairs whose most likely tokens are told; a pair parts where they first differ."""
    judged = np.unique(columns.pair[columns.led_alike >= 0])
    at = np.intersect1d(judged, np.array(chosen, dtype=np.int64))
    first = np.full(len(aligned), np.iinfo(np.int64).max)
    other = columns.led_alike == 0
    np.minimum.at(first, columns.pair[other], columns.position[other])
    lengths = np.array([item.length for item in aligned], dtype=np.int64)
    return _Events(at, np.minimum(first, lengths)[at], (first < lengths)[at])


def _unit_remarks(aligned: Sequence[Aligned], chosen: Sequence[int], unit: str, *, replayed: bool) -> list[str]:
    remarks = []
    if unit == "character":
        remarks.append("no token ids on both sides: answers are compared as text, positions count characters")
    elif len(chosen) < len(aligned):
        remarks.append(
            f"{len(aligned) - len(chosen)} pairs have no token ids that can be compared: only their texts are"
        )
    broken = sum(item.parted or item.cut for item in aligned) if replayed else 0
    if replayed:
        remarks.append("tokens were replayed: answers are equal by force, what is compared is the most likely tokens "
                       "and the log-probabilities")  # fmt: skip
    if broken:
        remarks.append(f"the replay did not keep the tokens of {broken} pairs; they are compared up to there")
    return remarks
