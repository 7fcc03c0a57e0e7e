"""Whether a model looks at its images: which rows get the same answer when the images are blank."""

from __future__ import annotations

from collections.abc import Sequence

from proctor.audit.blank import BLANK, IMAGES
from proctor.audit.design import name_of
from proctor.audit.lab import Lab
from proctor.audit.model import Observation

BLANKED = name_of({IMAGES: BLANK})
"""The control: the baseline with blank images."""


def blind_rows(lab: Lab, arm: str, blanked: str) -> tuple[int, ...]:
    """Rows with images that are answered with the same log-probabilities, bit for bit, when their images are blank.

    Without log-probabilities none: short answers may well be the same by right.

    Args:
        lab: what was run.
        arm: an arm with the rows' own images.
        blanked: the same arm with blank ones.
    """
    rounds = lab.shared_rounds(arm, blanked)
    seeing, blind = (_told(lab.observations(name, rounds)) for name in (arm, blanked))
    pictured = {probe.request.id for probe in lab.setting.probes if probe.request.images}
    return tuple(sorted(row for row in pictured & seeing.keys() if seeing[row] and seeing[row] == blind.get(row)))


def _told(observations: Sequence[Observation]) -> dict[int, list[tuple[float, ...]]]:
    """Log-probabilities of each row, round by round; rows without any are left out."""
    told: dict[int, list[tuple[float, ...]]] = {}
    for one in observations:
        if one.logprobs:
            told.setdefault(one.row_id, []).append((*one.token_ids, *one.logprobs))
    return told
