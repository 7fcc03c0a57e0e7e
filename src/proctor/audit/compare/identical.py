"""Samples that are more alike than sampling makes them: a random generator that starts anew for each of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from proctor.audit.compare.columns import fitting_logprobs
from proctor.audit.compare.intervals import rate
from proctor.audit.compare.leaders import ranked
from proctor.audit.compare.pairs import answered
from proctor.audit.compare.repeats import outputs_by_row
from proctor.audit.model import Observation, Rate

UNLIKELY = 0.01
FEW_ROWS = 5
"""With fewer rows than this, and no log-probabilities, equal samples may just come of easy questions."""


class Sameness(NamedTuple):
    """Whether samples of the same row are suspiciously equal.

    Attributes:
        alike: rows (with two samples or more) whose samples are all equal.
        chance: at most so probable is it that independent samples of these rows are all equal, by the model's own
            log-probabilities; None where they are not told.
        suspicious: whether samples are too identical.
        remark: why, in one line; empty if not.
    """

    alike: Rate
    chance: float | None
    suspicious: bool
    remark: str


def too_identical(samples: Sequence[Observation], *, temperature: float) -> Sameness:
    """Looks whether sampling samples.

    Suspicious are samples under different seeds at a temperature above 0 of which not one row has two different ones,
    unless the model is so sure of its answers that this has a chance of at least 1 %. The chance is the product, over
    rows and further samples, of the probability of the answer that was given; if that is not known, 5 rows must show it
    (UniRL #208: a fixed default seed made clones of all n samples).

    Args:
        samples: several rounds of each row, each with another seed.
        temperature: of the sampling; at 0 equal samples are what is wanted.
    """
    outputs = outputs_by_row(samples)
    equal = [row for row, given in outputs.items() if len(set(given)) == 1]
    alike = rate(len(equal), len(outputs))
    if temperature <= 0 or not outputs or len(equal) < len(outputs):
        return Sameness(alike, None, False, "")
    chance = _chance(samples, temperature)
    likely = len(outputs) < FEW_ROWS if chance is None else chance >= UNLIKELY
    if likely:
        return Sameness(alike, chance, False, "")
    why = f"by the model's own probabilities the chance of that is {chance:.1g}" if chance is not None else (
        "whether the model is just sure of its answers is not known without log-probabilities")  # fmt: skip
    remark = f"all samples are equal in {len(equal)} of {len(outputs)} rows at temperature {temperature:g}: {why}"
    return Sameness(alike, chance, True, remark)


def _chance(samples: Sequence[Observation], temperature: float) -> float | None:
    """Upper bound of the probability that all further samples of each row equal its first one."""
    total = 0.0
    by_row: dict[int, list[Observation]] = {}
    for sample in samples:
        if answered(sample):
            by_row.setdefault(sample.row_id, []).append(sample)
    for given in by_row.values():
        if len(given) < 2:
            continue
        logprobs = [_answer_logprob(sample, temperature) for sample in given]
        known = [logprob for logprob in logprobs if logprob is not None]
        if not known:
            return None
        total += (len(given) - 1) * max(known)
    return math.exp(total)


def _answer_logprob(sample: Observation, temperature: float) -> float | None:
    """Most that the answer's log-probability can be at this temperature, from those at temperature 1.

    Above 1 a most likely token only loses. Below 1 the probability of a token is p^(1/T) over the sum of all of them;
    those that are told bound the sum from below.
    """
    if sample.logprobs is None or not fitting_logprobs(sample):
        return None
    if temperature >= 1:
        return math.fsum(logprob for logprob in sample.logprobs if not math.isnan(logprob))
    if sample.top is None or len(sample.top) < len(sample.logprobs):
        return None
    each = zip(sample.logprobs, sample.token_ids, sample.top, strict=False)
    return math.fsum(_sharpened(logprob, token, dict(ranked(top)), temperature) for logprob, token, top in each)


def _sharpened(logprob: float, token: int, told: dict[int, float], temperature: float) -> float:
    scaled = [value / temperature for value in {**told, token: logprob}.values()]
    highest = max(scaled)
    if not math.isfinite(highest):
        return 0.0
    return logprob / temperature - highest - math.log(math.fsum(math.exp(value - highest) for value in scaled))
