"""The search for causes: which knob, alone, turns an effect on and off again, and from which value on.

Everything here asks the lab for arms and reads comparisons. A knob is a cause only where the effect shows in every
round with it and in no round without it; what could not be tried is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import msgspec

from proctor.audit.blank import BLANK, IMAGES
from proctor.audit.design import name_of
from proctor.audit.further import Further
from proctor.audit.lab import Lab
from proctor.audit.lengths import longest_prompt, most_together, spanned
from proctor.audit.model import BASELINE, Arm, Comparison, Layer, Threshold
from proctor.audit.noise import Noise, noise_of, switches
from proctor.audit.sight import BLANKED, blind_rows
from proctor.audit.thresholds import bisected, threshold
from proctor.engines.knobs import Knob, Value


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """An arm that differs from its reference, though both agree with themselves.

    Attributes:
        causes: the knobs that have to be turned together for it; one where one is enough.
        steady: it shows in every round.
        thresholds: where it begins, for each ordered knob among the causes.
        switches: engine settings that make it vanish, each by itself.
        dampers: engine settings that make it rarer, but leave some.
        blind: rows whose images no longer matter with it (see `proctor.audit.sight`).
    """

    arm: str
    against: str
    layer: Layer
    causes: tuple[str, ...]
    steady: bool
    thresholds: tuple[Threshold, ...] = ()
    switches: tuple[str, ...] = ()
    dampers: tuple[str, ...] = ()
    blind: tuple[int, ...] = ()


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What the search has found: noise, or else effects, the strongest first; and what the limit left out."""

    noise: Noise = Noise()
    effects: tuple[Effect, ...] = ()
    not_tried: tuple[tuple[str, str], ...] = ()


class Search:
    """Looks for causes in what the design's arms gave, with further arms where they are needed."""

    def __init__(self, lab: Lab, further: Further) -> None:
        self._lab, self._further = lab, further
        self._knobs = {knob.name: knob for knob in lab.setting.knobs}

    def run(self) -> Found:
        """The whole search: run-to-run first, since nothing else can be read before it is clean."""
        planned = list(self._lab.arms.values())
        if not self._lab.repeats(BASELINE).rows:  # whatever an arm gave, there is nothing to hold it against
            return Found()
        noise = noise_of(self._lab, self._further, planned)
        effects = [] if noise.arms else self._effects(planned) or self._together(planned)
        return Found(noise=noise, effects=tuple(effects), not_tried=tuple(self._further.not_tried))

    # --- effects of the design's arms

    def _effects(self, planned: Sequence[Arm]) -> list[Effect]:
        judged = [arm for arm in planned if arm.against and arm.layer not in ("repeat", "control")]
        found: list[Effect] = []
        for names, arms in _by_knobs([arm for arm in judged if self._shows(arm)]):
            if not any(set(other.causes) < set(names) for other in found):  # that one explains this one
                strongest = max(arms, key=lambda arm: size(self._lab.comparison(arm.name)))
                found.append(self._effect(strongest, self._causes(strongest), planned))
        found = self._beside_the_cache(found)
        return sorted(found, key=lambda effect: (effect.layer == "engine", -size(self._lab.comparison(effect.arm))))

    def _beside_the_cache(self, found: list[Effect]) -> list[Effect]:
        """Without effects that a cache may have made: rows that share a prefix warm it for those that come later."""
        if ("cache",) not in [effect.causes for effect in found]:
            return found
        shared = [effect for effect in found if "prefix" in effect.causes]
        why = "cannot be told from the cache's own effect: rows that share a prefix warm it for each other"
        self._further.not_tried += [(effect.arm, why) for effect in shared]
        return [effect for effect in found if effect not in shared]

    def _effect(self, arm: Arm, causes: tuple[str, ...], planned: Sequence[Arm]) -> Effect:
        ends, dampens = self._moderators(arm) if arm.layer != "engine" else ([], [])
        ordered = [self._knobs[name] for name in causes if self._knobs[name].ordered]
        thresholds = [self._threshold(knob, arm, planned) for knob in ordered]
        return Effect(
            arm=arm.name,
            against=arm.against,
            layer=arm.layer,
            causes=causes,
            steady=all(one.differs for one in self._lab.by_round(arm.name) if one.rows),
            thresholds=tuple(found for found in thresholds if found is not None),
            switches=tuple(ends),
            dampers=tuple(dampens),
            blind=self._blind(arm),
        )

    def _blind(self, arm: Arm) -> tuple[int, ...]:
        """Rows that are answered alike with blank images in this arm, and otherwise without it."""
        if not self._lab.has_sat(BLANKED):
            return ()
        rows = []
        for one in (arm, self._lab.arms[arm.against]):
            blanked = self._further.arm({**one.changes, IMAGES: BLANK}, against=one.name, layer="control")
            if not self._further.sit(blanked):
                return ()
            rows.append(set(blind_rows(self._lab, one.name, blanked.name)))
        return tuple(sorted(rows[0] - rows[1]))

    def _shows(self, arm: Arm) -> bool:
        return self._lab.comparison(arm.name).differs

    def _told(self, arm: Arm) -> bool | None:
        """Whether an arm that has sat shows an effect; None where it has no answers to tell by."""
        return self._shows(arm) if self._lab.comparison(arm.name).rows else None

    def _causes(self, arm: Arm) -> tuple[str, ...]:
        """What differs between an arm and its reference, and what had to be turned in both for it to show."""
        reference = self._lab.arms[arm.against].changes
        turned = [name for name, value in arm.changes.items() if reference.get(name) != value]
        condition = [name for name in arm.changes if name not in turned and self._needed(arm, name)]
        return (*condition, *turned)

    def _needed(self, arm: Arm, condition: str) -> bool:
        """Whether the effect is gone without the condition that both the arm and its reference have."""
        plain = self._further.arm({name: value for name, value in arm.changes.items() if name != condition})
        return self._further.sit(plain) and self._told(plain) is False

    # --- where an effect begins

    def _threshold(self, knob: Knob, arm: Arm, planned: Sequence[Arm]) -> Threshold | None:
        others = {name: value for name, value in arm.changes.items() if name != knob.name}
        tried: dict[int, bool | None] = {_number(knob.baseline): False, _number(arm.changes[knob.name]): True}
        for one in planned:
            rest = {name: value for name, value in one.changes.items() if name != knob.name}
            if knob.name in one.changes and rest == others and one.against:
                tried[_number(one.changes[knob.name])] = self._told(one)

        def has_effect(value: int) -> bool | None:
            at = self._at(arm, knob, value)
            return self._told(at) if self._further.sit(at, rounds=1) else None  # there is no noise to be averaged

        told = {value: shows for value, shows in tried.items() if shows is not None}
        listed = [_number(value) for value in knob.values] if knob.listed else None
        found = bisected(told, has_effect, listed=listed)
        if found is None:
            return None
        if knob.name not in ("batch", "prefix"):
            return threshold(knob.name, *found)
        below, above = (self._at(arm, knob, value).name for value in found)
        tokens = spanned(longest_prompt, self._lab, below, above) if knob.name == "prefix" else None
        return threshold(knob.name, *found, tokens=tokens, together=spanned(most_together, self._lab, below, above))

    def _at(self, arm: Arm, knob: Knob, value: int) -> Arm:
        """The same arm with the knob at another value; where its reference has the knob too, that one as well."""
        against = self._lab.arms[arm.against]
        if knob.name in against.changes:
            against = self._further.arm({**against.changes, knob.name: value}, against="", layer=arm.layer)
            self._lab.arms.setdefault(against.name, against)
        changes = {**arm.changes, knob.name: value}
        if value == _number(knob.baseline):
            del changes[knob.name]
        return self._further.arm(changes, against=against.name, layer=arm.layer)

    # --- settings of the engine that make an effect vanish

    def _moderators(self, arm: Arm) -> tuple[list[str], list[str]]:
        ends: list[str] = []
        dampens: list[str] = []
        before = self._lab.comparison(arm.name)
        for knob, value in switches(self._lab, but=arm.changes):
            after = self._under(arm, {knob.name: value})
            if after is not None and after.rows and not after.differs:
                ends.append(name_of({knob.name: value}))
            elif after is not None and _rarer(after, before):
                dampens.append(name_of({knob.name: value}))
        return ends, dampens

    def _under(self, arm: Arm, setting: dict[str, Value]) -> Comparison | None:
        """The effect's comparison with the setting on both sides; None if it may not be tried any more."""
        reference = self._further.arm({**self._lab.arms[arm.against].changes, **setting}, against="")
        self._lab.arms.setdefault(reference.name, reference)
        turned = self._further.arm({**arm.changes, **setting}, against=reference.name)
        if not self._further.sit(reference, turned):
            return None
        return self._lab.comparison(turned.name, reference.name)

    # --- two knobs, where one is not enough

    def _together(self, planned: Sequence[Arm]) -> list[Effect]:
        """Pairs of knobs that show nothing alone: both turned, against one of them turned."""
        single = [
            arm for arm in planned if len(arm.changes) == 1 and arm.layer not in ("repeat", "control", "observer")
        ]
        extreme = {next(iter(arm.changes)): arm for arm in single}  # the last value of a knob is its most extreme
        found = []
        for first, second in combinations(extreme.values(), 2):
            changes = {**first.changes, **second.changes}
            if name_of(changes) in self._lab.arms:
                continue
            # What changes the question itself must stand on both sides.
            reference = next((one for one in (first, second) if not one.against), first)
            arm = self._further.arm(changes, against=reference.name, layer=first.layer)
            if self._further.sit(arm) and self._shows(arm):
                found.append(self._effect(arm, tuple(changes), [arm]))
        return found


def size(comparison: Comparison) -> float:
    """How large an effect is: the share of positions, else of answers, that differ."""
    for rate in (comparison.logprob_equal, comparison.token_equal, comparison.text_equal):
        if rate is not None and rate.value is not None:
            return 1 - rate.value
    return 0.0


def _by_knobs(arms: Sequence[Arm]) -> Iterator[tuple[tuple[str, ...], list[Arm]]]:
    """Arms by which knobs they turn, those that turn few first: an effect of one knob explains those with two."""
    groups: dict[tuple[str, ...], list[Arm]] = {}
    for arm in arms:
        groups.setdefault(tuple(sorted(arm.changes)), []).append(arm)
    yield from sorted(groups.items(), key=lambda group: len(group[0]))


def _rarer(after: Comparison, before: Comparison) -> bool:
    """Whether positions are equal more often, beyond what their intervals allow for."""
    if after.logprob_equal is None or before.logprob_equal is None:
        return False
    return after.logprob_equal.low > before.logprob_equal.high


def _number(value: Value) -> int:
    return int(value or 0)
