"""Arms in which rows got no answer: which rows, and why. Nothing can be said of such an arm, and that is said."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from proctor.audit.compare.pairs import answered
from proctor.audit.lab import Lab
from proctor.audit.model import Observation

_MOST_ROWS = 8


def is_silent(lab: Lab, arm: str) -> bool:
    """Whether an arm sat, and not one row got an answer in it."""
    return lab.has_sat(arm) and not any(map(answered, lab.observations(arm)))


def silent_arms(lab: Lab) -> Iterator[tuple[str, str]]:
    """Arms without a single answer, each with the rows and the reason; those that the search added, too."""
    for arm in lab.arms:
        if is_silent(lab, arm):
            yield arm, unanswered(lab, arm)


def gaps(lab: Lab) -> Iterator[str]:
    """Of each arm in which some rows got no answer, and others did: which, and why."""
    for arm in lab.arms:
        told = unanswered(lab, arm)
        if told and not is_silent(lab, arm):
            yield f"{arm}: {told}"


def unanswered(lab: Lab, arm: str) -> str:
    """The rows that got no answer in an arm, in one round or more, and why; empty if all got one in all rounds."""
    seen = lab.observations(arm) if lab.has_sat(arm) else []
    missing = [one for one in seen if not answered(one)]
    if not missing:
        return ""
    rows = {one.row_id for one in missing}
    kinds = dict.fromkeys(_kind(one) for one in missing)
    reasons = "; ".join(_reason(kind, [one for one in missing if _kind(one) == kind]) for kind in kinds)
    return f"{len(rows)} of {len({one.row_id for one in seen})} rows got no answer: {reasons}"


def _reason(kind: str, missing: Sequence[Observation]) -> str:
    """One kind of failure: its rows, and the words of the first; the others' differ in a number at most."""
    first = min(missing, key=lambda one: one.row_id)
    text = first.failure[1] if first.failure is not None else "neither a text nor a token came back"
    return f"{rows_told({one.row_id for one in missing})}, {kind} (row {first.row_id}: {text.rstrip('.')})"


def _kind(missing: Observation) -> str:
    return "nothing in it" if missing.failure is None else missing.failure[0]


def rows_told(rows: Collection[int]) -> str:
    """Rows by their ids, the first of them if there are many."""
    shown = ", ".join(map(str, sorted(rows)[:_MOST_ROWS]))
    more = len(rows) - _MOST_ROWS
    return f"{'row' if len(rows) == 1 else 'rows'} {shown}{f' and {more} more' if more > 0 else ''}"
