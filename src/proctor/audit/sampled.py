"""Whether sampling samples: answers drawn with one seed beside those drawn with another."""

from __future__ import annotations

from proctor.audit.compare import Sameness, too_identical
from proctor.audit.lab import Lab
from proctor.audit.model import BASELINE

SEED = "seed"
"""The knob that must change what is drawn."""


def clones(lab: Lab) -> Sameness | None:
    """Looks at one round of the baseline and of every arm that has another seed and nothing else.

    Returns:
        None where no arm has another seed, as in an audit of greedy answers.
    """
    arms = [name for name, arm in lab.arms.items() if list(arm.changes) == [SEED] and lab.shared_rounds(name, BASELINE)]
    if not arms:
        return None
    first = lab.shared_rounds(arms[0], BASELINE)[:1]
    samples = [found for name in (BASELINE, *arms) for found in lab.observations(name, first)]
    return too_identical(samples, temperature=lab.setting.probes[0].request.sampling.temperature)
