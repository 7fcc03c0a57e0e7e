"""The verdict: one sentence, what it rests on, what was ruled out, and what was not tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec.structs import replace

from proctor.audit.compare import not_excluded
from proctor.audit.design import NOTHING_TO_TRY
from proctor.audit.evidence import blindness, evidence
from proctor.audit.lab import Lab
from proctor.audit.model import BASELINE, REPEAT, Comparison, Design, Rate, Threshold, Verdict
from proctor.audit.noise import Noise
from proctor.audit.sampled import clones
from proctor.audit.search import Effect, Found
from proctor.audit.sight import BLANKED
from proctor.audit.thresholds import lengths_told
from proctor.audit.unanswered import gaps, silent_arms, unanswered

Nature = Literal["rounding", "wrong results", "unknown"]
_MOST_ARMS = 3
_MOST_KNOBS = 6
"""Arms, and knobs, that a sentence names; all of them are in the lists beside it."""


def verdict_of(lab: Lab, design: Design, found: Found, nature: Nature = "unknown") -> Verdict:
    """What the audit found, never more than its arms support."""
    silent = dict(silent_arms(lab))
    base = Verdict(
        kind="could not tell",
        sentence=_of_silence(lab),
        untried=(*design.untried, *found.not_tried, *silent.items()),
        ruled_out=tuple(_ruled_out(lab, design, found)),
        evidence=(*evidence(lab, found), *gaps(lab), *blindness(lab, design, silent)),
    )
    if not lab.repeats(BASELINE).rows:
        return base
    if found.noise.arms:
        thresholds = (found.noise.threshold,) if found.noise.threshold else ()
        causes = (("batch",),) if found.noise.threshold else ()
        return replace(
            base, kind="run-to-run", sentence=_of_noise(lab, found.noise), thresholds=thresholds, causes=causes
        )
    if not found.effects:
        missing = {arm.name: silent[arm.name] for arm in design.arms if arm.name in silent and arm.layer != "control"}
        sentence = _of_nothing(lab, design)
        if missing:  # a knob that was wanted and cannot be judged is no knob without effect
            return replace(base, sentence=f"Could not tell: {_of_missing(missing)}. The rest: {sentence}")
        drawn = clones(lab)
        if drawn is not None and drawn.suspicious:
            return replace(base, kind="too identical", sentence=f"Too identical: {drawn.remark}. The rest: {sentence}")
        return replace(base, kind="no effect found", sentence=sentence)
    return replace(
        base,
        kind=_kind(found.effects),
        sentence=_of_effects(lab, found.effects, nature),
        causes=tuple(effect.causes for effect in found.effects if effect.steady),
        thresholds=tuple(threshold for effect in found.effects for threshold in effect.thresholds),
        nature=nature,
    )


def _kind(effects: Sequence[Effect]) -> Literal["isolated", "not isolated", "observer"]:
    if not all(effect.steady for effect in effects):
        return "not isolated"
    return "observer" if all(effect.layer == "observer" for effect in effects) else "isolated"


def _of_silence(lab: Lab) -> str:
    why = unanswered(lab, BASELINE)
    return f"Could not tell: no row got an answer twice{why and f'; {why}'}."


def _of_missing(silent: Mapping[str, str]) -> str:
    """Arms in which nothing was answered, those with the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for arm, why in silent.items():
        by_reason.setdefault(why, []).append(arm)
    return "; ".join(f"in {_listed(arms)} {why}" for why, arms in by_reason.items())


def _listed(names: Sequence[str], most: int = _MOST_ARMS) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def _of_nothing(lab: Lab, design: Design) -> str:
    judged = [lab.comparison(arm.name) for arm in design.arms if arm.against and arm.layer != "control"]
    compared = [one for one in judged if one.rows]
    rows = sum(one.rows for one in compared)
    digits = min((one.digits for one in compared if one.digits), default=None)
    how = "bit for bit" if digits is None else f"to the {digits} digits that were sent"
    with_logprobs = any(one.logprob_equal is not None and one.logprob_equal.of for one in compared)
    what = "tokens and log-probabilities" if with_logprobs else "answers"
    limit = _percent(not_excluded(lab.comparison(REPEAT, BASELINE).text_equal or Rate(0, 0, 0.0, 1.0)))
    return (
        f"No effect found: {len(design.rows)} rows gave the same {what}, {how}, in all {len(compared)} comparisons "
        f"({rows:,} pairs); for each of them, up to {limit} of rows that differ is not excluded."
        f"{_unseen_images(lab)}{_unturned(design)}"
    )


def _unseen_images(lab: Lab) -> str:
    blank = lab.comparison(BLANKED) if lab.has_sat(BLANKED) else None
    return "" if blank is None or blank.differs or not blank.rows else " No answer depends on the images."


def _unturned(design: Design) -> str:
    """Knobs that nobody turned: "no effect" says nothing about them."""
    knobs = [name for name, why in design.untried if "=" not in name and why != NOTHING_TO_TRY]
    return f" Not tried: {_listed(knobs, _MOST_KNOBS)}." if knobs else ""


def _of_noise(lab: Lab, noise: Noise) -> str:
    if noise.warming:
        return (
            "Run to run: the first asking differs from all later ones, which agree with each other: the engine answers "
            "from a cache that it keeps, and it cannot be started anew from here."
        )
    if BASELINE in noise.arms:
        seen = _differing(lab.comparison(REPEAT, BASELINE)) or _differing(lab.repeats(BASELINE))
        text = f"Run to run: the same requests, asked again with nothing changed, came back different ({seen})"
    else:
        arm = noise.loudest
        text = f"Run to run: {arm} does not agree with itself ({_differing(lab.repeats(arm))})"
        if noise.threshold is not None:
            text += f"; {noise.threshold.below} rows at once agree, {noise.threshold.above} do not"
    quiet = f"; {' or '.join(noise.quieted)} ends it" if noise.quieted else ""
    return f"{text}{quiet}. No other knob can be judged before this is mended."


def _of_effects(lab: Lab, effects: Sequence[Effect], nature: Nature) -> str:
    """The effects of the traffic one by one, then the engine's settings that change outputs by themselves."""
    own = [effect for effect in effects if effect.layer != "engine"]
    settings = [effect for effect in effects if effect.layer == "engine"]
    parts = [_of_effect(lab, effect) for effect in own[:3]]
    if len(own) > 3:
        parts.append(f"{len(own) - 3} more effects are in the table.")
    if settings:
        listed = "; ".join(f"{effect.arm} ({_of_setting(lab, effect)})" for effect in settings)
        parts.append(
            f"{'Settings' if own else 'Only settings'} of the engine change outputs{' too' * bool(own)}: {listed}."
        )
    parts += [
        f"With {one.arm} {len(one.blind)} rows are answered as if they had no images." for one in effects if one.blind
    ]
    parts += _of_instrument(lab, effects)
    told = {"rounding": "Its size is that of rounding.", "wrong results": "Rounding does not explain its size."}
    return " ".join([*parts, told[nature]] if nature in told else parts)


def _of_instrument(lab: Lab, effects: Sequence[Effect]) -> list[str]:
    """What an effect of the observer means for everything else that is read from log-probabilities."""
    seen = [lab.comparison(effect.arm) for effect in effects if effect.layer == "observer"]
    if not seen:
        return []
    rates = [rate for one in seen for rate in (one.token_equal, one.text_equal) if rate is not None]
    if any(rate.hits < rate.of for rate in rates):
        return ["The measurement changes the answers: what is told with log-probabilities is not what is told without."]
    return ["The instrument is not stable: the same tokens get other log-probabilities if more of them are asked for."]


def _of_effect(lab: Lab, effect: Effect) -> str:
    knob = " together with ".join(effect.causes)
    seen = _differing(lab.comparison(effect.arm))
    where = " and".join(_where(found, named=len(effect.thresholds) > 1) for found in effect.thresholds)
    certain = "changes outputs" if effect.steady else "goes with changed outputs, though not in every round,"
    switch = f"; {' or '.join(effect.switches)} switches it off" if effect.switches else ""
    return f"{knob} {certain}{where or f' ({effect.arm})'}: {seen}{switch}."


def _where(found: Threshold, *, named: bool) -> str:
    knob = f" {found.knob}" if named else ""
    return f" from{knob} {found.above} on, not up to {found.below}{lengths_told(found)}"


def _of_setting(lab: Lab, effect: Effect) -> str:
    """Where the effect begins, and the weightiest of what differs."""
    begins = [_where(found, named=False).strip() for found in effect.thresholds]
    return "; ".join([*begins, _differing(lab.comparison(effect.arm)).partition(", ")[0]])


def _differing(comparison: Comparison) -> str:
    """How much differs, the weightiest first."""
    parts = []
    for rate, what in (
        (comparison.parsed_equal, "read differently by the task"),
        (comparison.text_equal, "with another text"),
        (comparison.token_equal, "with other tokens"),
    ):
        if rate is not None and rate.of > rate.hits:
            parts.append(f"{rate.of - rate.hits} of {rate.of} answers {what}")
    equal = comparison.logprob_equal
    if equal is not None and equal.of > equal.hits:
        parts.append(f"{equal.of - equal.hits:,} of {equal.of:,} log-probabilities differ")
    if comparison.shift and comparison.shift[-1] > 0:
        parts.append(f"by up to {comparison.shift[-1]:.2g}")
    return ", ".join(parts)


def _ruled_out(lab: Lab, design: Design, found: Found) -> list[str]:
    """Knobs that were turned and changed nothing, with what is not excluded."""
    if found.noise.arms:
        return []
    guilty = {name for effect in found.effects for name in effect.causes}
    by_knob: dict[str, list[Comparison]] = {}
    for arm in design.arms:
        if arm.against and arm.layer not in ("repeat", "control"):
            reference = design.arm(arm.against).changes
            for name in (name for name, value in arm.changes.items() if reference.get(name) != value):
                by_knob.setdefault(name, []).append(lab.comparison(arm.name))
    clean = {name: seen for name, seen in by_knob.items() if name not in guilty and not any(c.differs for c in seen)}
    told = []
    for name, seen in clean.items():
        rate = next((one.text_equal for one in reversed(seen) if one.text_equal is not None and one.rows), None)
        if rate is not None and rate.of:
            told.append(
                f"{name}: {rate.hits} of {rate.of} answers equal, up to {_percent(not_excluded(rate))} not excluded"
            )
    return told


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"
