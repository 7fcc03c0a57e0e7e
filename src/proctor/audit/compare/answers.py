"""What a comparison says of whole answers: their text, what the task read from them, how they ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from proctor.audit.compare.align import Aligned
from proctor.audit.compare.intervals import rate_by_row
from proctor.audit.model import Rate


class Answers(NamedTuple):
    """Whole answers compared.

    Attributes:
        text_equal, parsed_equal: as in `Comparison`.
        differs: whether a text, what was read from it, or the way it ended differs.
        remarks: what a reader must know.
    """

    text_equal: Rate
    parsed_equal: Rate | None
    differs: bool
    remarks: tuple[str, ...]


def answers_of(aligned: Sequence[Aligned]) -> Answers:
    """Compares whole answers. Answers that a limit cut at different lengths are left out: they differ by design."""
    whole = [item for item in aligned if not item.cut]
    rows = np.array([item.pair.arm.row_id for item in whole], dtype=np.int64)
    told = np.array([all(side.text is not None for side in item.pair) for item in whole], dtype=bool)
    text = np.array([item.pair.arm.text == item.pair.against.text for item in whole], dtype=bool)
    parsed = np.array([item.pair.arm.parsed == item.pair.against.parsed for item in whole], dtype=bool)
    read = any(side.parsed is not None for item in whole for side in item.pair)
    ended = sum(_ended_otherwise(item) for item in whole)
    remarks = []
    if cut := len(aligned) - len(whole):
        remarks.append(f"a limit cut {cut} pairs at different lengths: they are compared up to there, as tokens only")
    if ended:
        remarks.append(f"{ended} pairs ended for different reasons")
    return Answers(
        text_equal=rate_by_row(rows[told], text[told]),
        parsed_equal=rate_by_row(rows, parsed) if read else None,
        differs=not (text[told].all() and parsed.all()) or ended > 0,
        remarks=tuple(remarks),
    )


def _ended_otherwise(item: Aligned) -> bool:
    one, other = (side.finish_reason for side in item.pair)
    return one is not None and other is not None and one != other
