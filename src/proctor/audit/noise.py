"""Run to run: arms that do not agree with themselves. Nothing else means anything until there are none."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import msgspec

from proctor.audit.design import name_of
from proctor.audit.further import Further
from proctor.audit.lab import Lab
from proctor.audit.model import BASELINE, REPEAT, Arm, Threshold
from proctor.audit.thresholds import bisected, threshold
from proctor.audit.traffic import STOP
from proctor.engines.knobs import Knob, Value


class Noise(msgspec.Struct, frozen=True, kw_only=True):
    """What does not agree with itself.

    Attributes:
        arms: from round to round, or asked twice in one process.
        loudest: one of them: the baseline, or else the most extreme of those that turn few knobs.
        threshold: rows at once from which on it is so; None where one row alone is enough.
        quieted: engine settings that end it.
        warming: only the very first sitting differs from all later ones.
    """

    arms: tuple[str, ...] = ()
    loudest: str = ""
    threshold: Threshold | None = None
    quieted: tuple[str, ...] = ()
    warming: bool = False


def noise_of(lab: Lab, further: Further, planned: Sequence[Arm]) -> Noise:
    """Looks for noise, and if there is any, for the load at which it begins and for settings that end it."""
    noisy = [arm.name for arm in planned if is_noisy(lab, arm.name)]
    if not noisy:
        return Noise()
    if BASELINE in noisy and _only_the_first(lab, planned):
        return Noise(arms=tuple(noisy), loudest=BASELINE, warming=True)
    fewest = min(len(lab.arms[name].changes) for name in noisy)
    loudest = BASELINE if BASELINE in noisy else [name for name in noisy if len(lab.arms[name].changes) == fewest][-1]
    return Noise(
        arms=tuple(noisy),
        loudest=loudest,
        threshold=None if BASELINE in noisy else _threshold(lab, further, planned, noisy),
        quieted=tuple(_quieted(lab, further, lab.arms[loudest])),
    )


def is_noisy(lab: Lab, arm: str) -> bool:
    """Whether an arm disagrees with itself."""
    if arm in (BASELINE, REPEAT) and lab.comparison(REPEAT, BASELINE).differs:
        return True
    return lab.repeats(arm).differs


def switches(lab: Lab, but: Collection[str] = ()) -> Iterator[tuple[Knob, Value]]:
    """Every value that a wanted knob can be turned to that asks the same question, without those of the knobs `but`."""
    for knob in lab.setting.knobs:
        turns = knob.place not in ("traffic", "process") or knob.name == STOP
        if turns and knob.name in lab.setting.wanted and knob.name not in but:
            for value in knob.values:
                yield knob, value


def _only_the_first(lab: Lab, planned: Sequence[Arm]) -> bool:
    """Whether the first round's baseline stands alone: an engine that cannot be started anew was cold only once."""
    first = lab.sat[0].sitting
    others = [arm.name for arm in planned if arm.name not in (BASELINE, REPEAT)]
    if first.arm != BASELINE or any(is_noisy(lab, name) for name in others):
        return False
    return len(lab.rounds_of(BASELINE)) > 2 and not lab.repeats_without(BASELINE, first.round).differs


def _threshold(lab: Lab, further: Further, planned: Sequence[Arm], noisy: Sequence[str]) -> Threshold | None:
    sizes = [arm for arm in planned if list(arm.changes) == ["batch"] and lab.repeats(arm.name).rows]
    tried = {int(arm.changes["batch"] or 1): arm.name in noisy for arm in sizes}

    def at(size: int) -> bool | None:
        arm = further.arm({"batch": size}, layer="traffic")
        return is_noisy(lab, arm.name) if further.sit(arm) and lab.repeats(arm.name).rows else None

    found = bisected({1: False, **tried}, at)
    return None if found is None else threshold("batch", *found)


def _quieted(lab: Lab, further: Further, loudest: Arm) -> Iterator[str]:
    for knob, value in switches(lab):
        arm = further.arm({**loudest.changes, knob.name: value}, against="")
        if further.sit(arm) and lab.repeats(arm.name).rows and not is_noisy(lab, arm.name):
            yield name_of({knob.name: value})
