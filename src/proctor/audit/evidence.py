"""What a verdict rests on, in words with figures: how effects show, what they cost, and what cannot be seen."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

from proctor.audit.blank import IMAGES
from proctor.audit.lab import Lab
from proctor.audit.model import BASELINE, REPEAT, Arm, Comparison, Design
from proctor.audit.sampled import SEED, clones
from proctor.audit.search import Effect, Found
from proctor.audit.sight import BLANKED, blind_rows
from proctor.audit.unanswered import rows_told

_SURE = 0.05
"""A p-value above this is no evidence that a score moved."""


def evidence(lab: Lab, found: Found) -> Iterator[str]:
    """For each effect how steadily it shows, where answers part, what becomes of the score, and what ends it."""
    again = lab.comparison(REPEAT, BASELINE)
    if not found.noise.arms and again.rows:
        yield f"asked again with nothing changed: {again.rows} of {again.rows} pairs of answers are equal"
    for effect in found.effects:
        yield from _of_effect(lab, effect)
    blind = blind_rows(lab, BASELINE, BLANKED)
    if blind:
        yield f"{rows_told(blind)} get the same answer, bit for bit, with blank images"
    yield from _not_numbers(lab)
    yield from _missing_leaders(lab)


def blindness(lab: Lab, design: Design, silent: Collection[str]) -> Iterator[str]:
    """Controls that had to show and did not: what this audit cannot see.

    Args:
        lab: what was run.
        design: whose controls they are.
        silent: arms in which no row got an answer.
    """
    controls = [arm for arm in design.arms if arm.layer == "control" and arm.name not in silent]
    for arm in controls:
        if lab.has_sat(arm.name) and not lab.comparison(arm.name).differs:
            yield f"control {arm.name} was not seen: {_why_unseen(lab, arm)}"


def _of_effect(lab: Lab, effect: Effect) -> Iterator[str]:
    seen, comparison = lab.by_round(effect.arm), lab.comparison(effect.arm)
    shows = sum(one.differs for one in seen)
    yield f"{effect.arm} against {effect.against}: the effect shows in {shows} of {len(seen)} rounds"
    if comparison.flips:
        yield f"{effect.arm}: {_parting(comparison)}"
    if comparison.score_flips is not None and comparison.score_flips != (0, 0):
        yield f"{effect.arm}: {_score(comparison)}"
    for at in effect.thresholds:
        if at.known_as:
            yield f"a switch at {at.knob} {at.above} is known, which is a hint and no proof: {at.known_as}"
    if effect.blind:
        yield f"{effect.arm}: {rows_told(effect.blind)} get the same answer with blank images, and only there"
    for setting in effect.switches:
        yield f"{setting}: the effect of {effect.arm} is gone"
    for setting in effect.dampers:
        yield f"{setting}: the effect of {effect.arm} is rarer, not gone"


def _parting(comparison: Comparison) -> str:
    at = [flip.position for flip in comparison.flips]
    unit = "character" if comparison.token_equal is None else "token"
    where = f"{unit} {min(at)}" if min(at) == max(at) else f"{unit}s {min(at)} to {max(at)}"
    return f"{len(at)} of {comparison.rows} pairs of answers part, at {where} (counted from 0)"


def _score(comparison: Comparison) -> str:
    worse, better = comparison.score_flips or (0, 0)
    mean, low, high = comparison.score_change or (0.0, 0.0, 0.0)
    p = 1.0 if comparison.mcnemar is None else comparison.mcnemar
    doubt = ", which is no evidence that the score moves" if p > _SURE else ""
    return (
        f"{worse} rows score worse and {better} better (McNemar p = {p:.2g}{doubt}), "
        f"on average {mean:+.3g} ({low:+.3g} to {high:+.3g})"
    )


def _not_numbers(lab: Lab) -> Iterator[str]:
    """Rows with log-probabilities that are not numbers: what they are compared with says nothing of them."""
    where: dict[tuple[int, ...], list[str]] = {}
    for arm in lab.arms:
        seen = lab.observations(arm) if lab.has_sat(arm) else []
        strange = {one.row_id for one in seen if any(map(math.isnan, one.logprobs or ()))}
        if strange:
            where.setdefault(tuple(sorted(strange)), []).append(arm)
    for rows, arms in where.items():
        more = f" and {len(arms) - 1} more arms" if len(arms) > 1 else ""
        yield f"log-probabilities of {rows_told(rows)} are not numbers in {arms[0]}{more}: they are kept apart"


def _missing_leaders(lab: Lab) -> Iterator[str]:
    """Arms in which fewer of the most likely tokens came than were asked for."""
    for name, arm in lab.arms.items():
        wanted = int(arm.changes.get("top") or lab.setting.top)
        told = [len(leaders) for one in lab.observations(name) for leaders in one.top or ()]
        fewer = [count for count in told if count < wanted]
        if fewer:
            where = f"{len(fewer):,} of {len(told):,} positions"
            yield f"{name}: {wanted} most likely tokens were asked for, and {min(fewer)} came at {where}"


def _why_unseen(lab: Lab, control: Arm) -> str:
    if IMAGES in control.changes:
        return "no answer depends on the images"
    drawn = clones(lab) if SEED in control.changes else None
    if drawn is None:
        return "this engine shows too little for an effect of that size"
    return drawn.remark or "the draws do not heed the seed, or the model is sure of its answers"
