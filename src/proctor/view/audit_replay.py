"""The replays of an audit: arms whose answers part, compared at every position with the same tokens forced."""

from __future__ import annotations

from dataclasses import dataclass

from proctor.audit.conduct import Audit, Shown
from proctor.audit.model import Comparison, Flip, Rate
from proctor.view.audit_matrix import Cell, rate_cell
from proctor.view.formats import NOTHING, whole

MOST_PLACES = 5


@dataclass(frozen=True, slots=True)
class ReplayLine:
    """One replayed arm.

    Attributes:
        places: positions at which another token leads, the largest margins first; `more` are not listed.
        nature: whether rounding explains the difference; empty where that was not judged. `why` says what it rests on.
    """

    name: str
    against: str
    equal: Cell
    leads: Cell
    shift: str
    places: list[str]
    more: int
    nature: str
    why: str


def replay_lines(audit: Audit) -> list[ReplayLine]:
    """The replayed arms, in the audit's order."""
    return [_line(shown, shown.replayed) for shown in audit.arms if shown.replayed is not None]


def _line(shown: Shown, found: Comparison) -> ReplayLine:
    led = found.top1_equal
    elsewhere = led.of - led.hits if led is not None else 0
    places = [_place(flip) for flip in found.flips[:MOST_PLACES]]
    return ReplayLine(
        name=shown.arm.name,
        against=found.against,
        equal=_cell(found.logprob_equal),
        leads=_cell(led),
        shift=f"{found.shift[-1]:.2g}" if found.shift else NOTHING,
        places=places,
        more=elsewhere - len(places),
        nature="" if shown.judged is None else shown.judged.kind,
        why="" if shown.judged is None else shown.judged.sentence,
    )


def _cell(rate: Rate | None) -> Cell:
    return rate_cell(rate) if rate is not None and rate.of else Cell(NOTHING)


def _place(flip: Flip) -> str:
    margin = "" if flip.margin is None else f", margin {flip.margin:.2g}"
    return f"row {whole(flip.row_id)}, position {whole(flip.position)}{margin}"
