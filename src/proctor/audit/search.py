"""The search for causes: which knob, alone, turns an effect on and off again, and from which value on.

Everything here asks the lab for arms and reads comparisons. A knob is a cause only where the effect shows in every
round with it and in no round without it; what could not be tried is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import msgspec

from proctor.audit.design import name_of
from proctor.audit.lab import Lab
from proctor.audit.model import BASELINE, REPEAT, Arm, Comparison, Threshold
from proctor.audit.thresholds import bisected, threshold
from proctor.engines.knobs import Knob, Value


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """An arm that differs from its reference, though both agree with themselves.

    Attributes:
        causes: the knobs that have to be turned together for it; one where one is enough.
        steady: it shows in every round.
        threshold: where it begins, for an ordered knob.
        switches: engine knobs (with value) that make it vanish, each by itself.
        dampers: engine knobs that make it rarer, but leave some.
    """

    arm: str
    against: str
    layer: str
    causes: tuple[str, ...]
    steady: bool
    threshold: Threshold | None = None
    switches: tuple[str, ...] = ()
    dampers: tuple[str, ...] = ()


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What the search has found.

    Attributes:
        noisy: arms that do not agree with themselves from round to round.
        noise_threshold: load from which on they do not.
        quieted: engine knobs that end the noise.
        warming: only the very first sitting differs from all later ones.
        effects: the strongest first.
        not_tried: what the limit on sittings left out.
    """

    noisy: tuple[str, ...] = ()
    noise_threshold: Threshold | None = None
    quieted: tuple[str, ...] = ()
    warming: bool = False
    effects: tuple[Effect, ...] = ()
    not_tried: tuple[tuple[str, str], ...] = ()


class Search:
    """Looks for causes in what the design's arms gave, with further arms where they are needed.

    Args:
        lab: where the design's sittings have been run.
        rounds: of every further arm.
        most_sittings: that it may add.
    """

    def __init__(self, lab: Lab, *, rounds: int, most_sittings: int) -> None:
        self._lab = lab
        self._rounds = rounds
        self._left = most_sittings
        self._knobs = {knob.name: knob for knob in lab.setting.knobs}
        self._not_tried: list[tuple[str, str]] = []

    def run(self) -> Found:
        """The whole search: run-to-run first, since nothing else can be read before it is clean."""
        planned = list(self._lab.arms.values())
        noisy = [arm.name for arm in planned if self._noisy(arm.name)]
        if noisy:
            return self._noise(planned, noisy)
        effects = self._effects(planned) or self._together(planned)
        return Found(effects=tuple(effects), not_tried=tuple(self._not_tried))

    # --- run to run

    def _noisy(self, arm: str) -> bool:
        """Whether an arm disagrees with itself: from round to round, or asked twice in one process."""
        if arm in (BASELINE, REPEAT) and self._lab.comparison(REPEAT, BASELINE).differs:
            return True
        return self._lab.repeats(arm).differs

    def _noise(self, planned: Sequence[Arm], noisy: Sequence[str]) -> Found:
        if BASELINE in noisy and self._only_the_first(planned):
            return Found(noisy=tuple(noisy), warming=True)
        switches = [self._quiet(knob, value, noisy) for knob, value in self._switches()]
        return Found(
            noisy=tuple(noisy),
            noise_threshold=None if BASELINE in noisy else self._noise_threshold(planned, noisy),
            quieted=tuple(name for name in switches if name),
            not_tried=tuple(self._not_tried),
        )

    def _only_the_first(self, planned: Sequence[Arm]) -> bool:
        """Whether the first round's baseline stands alone: an engine that cannot be started anew was cold only once."""
        first = self._lab.sat[0].sitting
        if first.arm != BASELINE or any(
            arm.name not in (BASELINE, REPEAT) and self._noisy(arm.name) for arm in planned
        ):
            return False
        return self._lab.rounds > 2 and not self._lab.repeats_without(BASELINE, first.round).differs

    def _noise_threshold(self, planned: Sequence[Arm], noisy: Sequence[str]) -> Threshold | None:
        tried = {int(arm.changes["batch"] or 1): arm.name in noisy for arm in planned if list(arm.changes) == ["batch"]}

        def is_noisy(size: int) -> bool | None:
            arm = self._arm({"batch": size})
            return self._noisy(arm.name) if self._sit([arm]) else None

        found = bisected({1: False, **tried}, is_noisy)
        return None if found is None else threshold("batch", *found)

    def _quiet(self, knob: Knob, value: Value, noisy: Sequence[str]) -> str | None:
        """The setting's name, if the noisiest arm agrees with itself under it."""
        loudest = self._lab.arms[BASELINE if BASELINE in noisy else noisy[-1]]
        arm = self._arm({**loudest.changes, knob.name: value}, against="")
        if not self._sit([arm]):
            return None
        return None if self._noisy(arm.name) else name_of({knob.name: value})

    # --- one knob, on and off

    def _effects(self, planned: Sequence[Arm]) -> list[Effect]:
        shown = [arm for arm in planned if arm.against and arm.layer not in ("repeat", "control") and self._shows(arm)]
        found: list[Effect] = []
        for names, arms in _by_knobs(shown):
            explained = any(set(other.causes) < set(names) for other in found)
            if not explained:
                found.append(self._effect(arms, planned))
        return sorted(found, key=lambda effect: (effect.layer == "engine", -_size(self._lab.comparison(effect.arm))))

    def _effect(self, arms: Sequence[Arm], planned: Sequence[Arm]) -> Effect:
        """One knob's effect, from its strongest arm."""
        arm = max(arms, key=lambda one: _size(self._lab.comparison(one.name)))
        steady = all(one.differs for one in self._lab.by_round(arm.name))
        causes = self._causes(arm)
        knob = self._knobs[causes[0]]
        found = self._threshold(knob, arm, planned) if knob.ordered else None
        switches, dampers = self._moderators(arm) if arm.layer != "engine" else ([], [])
        return Effect(
            arm=arm.name,
            against=arm.against,
            layer=arm.layer,
            causes=causes,
            steady=steady,
            threshold=found,
            switches=tuple(switches),
            dampers=tuple(dampers),
        )

    def _shows(self, arm: Arm) -> bool:
        return self._lab.comparison(arm.name).differs

    def _causes(self, arm: Arm) -> tuple[str, ...]:
        """What differs between an arm and its reference, and what had to be turned in both for it to show."""
        reference = self._lab.arms[arm.against].changes
        turned = [name for name, value in arm.changes.items() if reference.get(name) != value]
        condition = [name for name in arm.changes if name not in turned and self._needed(arm, name)]
        return (*condition, *turned)

    def _needed(self, arm: Arm, condition: str) -> bool:
        """Whether the effect is gone without the condition that both the arm and its reference have."""
        changes = {name: value for name, value in arm.changes.items() if name != condition}
        known = self._lab.arms.get(name_of(changes))
        plain = known or self._arm(changes)
        if known is None and not self._sit([plain]):
            return False
        return not self._lab.comparison(plain.name).differs

    def _threshold(self, knob: Knob, arm: Arm, planned: Sequence[Arm]) -> Threshold | None:
        others = {name: value for name, value in arm.changes.items() if name != knob.name}
        tried = {_number(knob.baseline): False}
        for one in planned:
            rest = {name: value for name, value in one.changes.items() if name != knob.name}
            if knob.name in one.changes and rest == others and one.against:
                tried[_number(one.changes[knob.name])] = self._shows(one)

        def has_effect(value: int) -> bool | None:
            at = self._at(arm, knob, value)
            return self._shows(at) if self._sit([at]) else None

        found = bisected(tried, has_effect)
        if found is None:
            return None
        lengths = [self._longest(self._at(arm, knob, value)) for value in found] if knob.name == "prefix" else []
        tokens = (lengths[0], lengths[1]) if lengths and None not in lengths else None
        return threshold(knob.name, *found, tokens=tokens)  # type: ignore[arg-type]

    def _at(self, arm: Arm, knob: Knob, value: int) -> Arm:
        """The same arm with the knob at another value; where its reference has the knob too, that one as well."""
        reference = self._lab.arms[arm.against]
        against = reference
        if knob.name in reference.changes:
            against = self._arm({**reference.changes, knob.name: value}, against="")
            self._lab.arms.setdefault(against.name, against)
        return self._arm({**arm.changes, knob.name: value}, against=against.name, layer=arm.layer)

    def _longest(self, arm: Arm) -> int | None:
        seen = self._lab.observations(arm.name) if arm.name in self._lab.arms else []
        return max((one.prompt_tokens for one in seen if one.prompt_tokens is not None), default=None)

    # --- knobs of the engine that make an effect vanish

    def _switches(self) -> Iterator[tuple[Knob, Value]]:
        for knob in self._knobs.values():
            if knob.place != "traffic":
                for value in knob.values:
                    yield knob, value

    def _moderators(self, arm: Arm) -> tuple[list[str], list[str]]:
        switches, dampers = [], []
        before = self._lab.comparison(arm.name)
        for knob, value in self._switches():
            setting = {knob.name: value}
            reference = self._arm({**self._lab.arms[arm.against].changes, **setting}, against="")
            turned = self._arm({**arm.changes, **setting}, against=reference.name)
            if not self._sit([reference, turned]):
                continue
            after = self._lab.comparison(turned.name)
            if after.rows and not after.differs:
                switches.append(name_of(setting))
            elif _rarer(after, before):
                dampers.append(name_of(setting))
        return switches, dampers

    # --- two knobs, where one is not enough

    def _together(self, planned: Sequence[Arm]) -> list[Effect]:
        """Pairs of knobs whose single arms show nothing, each compared with the arm that has one of them."""
        single = [arm for arm in planned if len(arm.changes) == 1 and arm.layer not in ("repeat", "control")]
        strongest = {next(iter(arm.changes)): arm for arm in single}  # the last value of a knob is its most extreme
        found: list[Effect] = []
        for first, second in combinations(strongest.values(), 2):
            changes = {**first.changes, **second.changes}
            if name_of(changes) in self._lab.arms or "logprobs" in changes:
                continue
            reference = next((one for one in (first, second) if "prefix" not in one.changes), first)
            if "prefix" in changes:  # a condition that changes the question stands on both sides
                reference = first if "prefix" in first.changes else second
            arm = self._arm(changes, against=reference.name)
            if self._sit([arm]) and self._shows(arm):
                found.append(self._pair(arm))
        return found

    def _pair(self, arm: Arm) -> Effect:
        steady = all(one.differs for one in self._lab.by_round(arm.name))
        ordered = next((self._knobs[name] for name in arm.changes if self._knobs[name].ordered), None)
        at = None if ordered is None else self._threshold(ordered, arm, [])
        if at is None and ordered is not None:
            at = self._threshold(ordered, arm, [arm])
        causes = tuple(arm.changes)
        return Effect(arm=arm.name, against=arm.against, layer=arm.layer, causes=causes, steady=steady, threshold=at)

    # --- further arms

    def _arm(self, changes: dict[str, Value], against: str = BASELINE, layer: str = "engine") -> Arm:
        return Arm(name=name_of(changes), changes=changes, against=against, layer=layer)  # type: ignore[arg-type]

    def _sit(self, arms: Sequence[Arm]) -> bool:
        """Runs arms that have not sat yet, if the limit allows; False if it does not."""
        new = [arm for arm in arms if not self._lab.has_sat(arm.name)]
        if not new:
            return True
        needed = 2 * self._rounds * len(new)
        if needed > self._left:
            self._not_tried += [(arm.name, "the limit on further sittings was reached") for arm in new]
            return False
        self._left -= needed
        self._lab.again(new, self._rounds)
        return True


def _by_knobs(arms: Sequence[Arm]) -> list[tuple[tuple[str, ...], list[Arm]]]:
    """Arms by which knobs they turn, those that turn few first: an effect of one knob explains those with two."""
    groups: dict[tuple[str, ...], list[Arm]] = {}
    for arm in arms:
        groups.setdefault(tuple(sorted(arm.changes)), []).append(arm)
    return sorted(groups.items(), key=lambda group: len(group[0]))


def _size(comparison: Comparison) -> float:
    """How large an effect is: the share of positions, else of answers, that differ."""
    for rate in (comparison.logprob_equal, comparison.token_equal, comparison.text_equal):
        if rate is not None and rate.value is not None:
            return 1 - rate.value
    return 0.0


def _rarer(after: Comparison, before: Comparison) -> bool:
    """Whether positions are equal more often, beyond what their intervals allow for."""
    if after.logprob_equal is None or before.logprob_equal is None:
        return False
    return after.logprob_equal.low > before.logprob_equal.high


def _number(value: Value) -> int:
    return int(value or 0)
