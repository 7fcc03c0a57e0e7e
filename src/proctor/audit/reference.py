"""Noise or bug: both sides of a difference against a run of higher precision, where the engine can give one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proctor.audit.compare import Judgement, nature
from proctor.audit.design import name_of
from proctor.audit.lab import Lab
from proctor.audit.model import BASELINE, REPEAT, Arm, Comparison, Observation, ReplayPlan, Sitting
from proctor.audit.replay import Replays, replayable, root_of
from proctor.audit.search import Found
from proctor.audit.unanswered import is_silent, unanswered

FORMATS = ("dtype", "kv_cache_dtype", "quantization")
"""Knobs that change the format in which an arm computes or keeps its numbers."""


class Referee:
    """Judges arms of a lab.

    Args:
        lab: whose arms they are; runs of higher precision become arms of it.
        plan: which arms may be replayed.
        replays: None where the engine cannot be made to choose given tokens: then only what comes before a flip counts.
        exact: number format of a run that is more exact; None where the engine has none, and nothing is judged.
    """

    def __init__(self, lab: Lab, plan: ReplayPlan, replays: Replays | None, exact: str | None) -> None:
        self._lab, self._plan, self._replays, self._exact = lab, plan, replays, exact
        self._judged: dict[str, Judgement] = {}
        self._trouble = ""

    def judge(self, found: Found) -> dict[str, Judgement]:
        """Replays every planned arm whose answers part, and judges those and the strongest effect.

        Where there is noise, only the loudest arm is replayed, which shows how far it goes, and nothing is judged.

        Returns:
            Judgements by arm, each of the arm and its reference together.
        """
        if found.noise.arms:  # an arm that does not agree with itself is as far from a reference as chance has it
            loudest = self._lab.arms[REPEAT if found.noise.loudest == BASELINE else found.noise.loudest]
            if self._replays is not None and replayable(loudest):
                self._replays.run([loudest.name])
            return {}
        strongest = found.effects[0].arm if found.effects else None
        if self._replays is not None:
            self._replay(self._replays, strongest)
        if self._exact is None:
            return {}
        found_of = {name: self._judged_by_replay(name) for name in self._compared()}
        if strongest is not None and found_of.get(strongest) is None:
            found_of[strongest] = self._judged_free(strongest)
        self._judged = {name: judgement for name, judgement in found_of.items() if judgement is not None}
        return self._judged

    def evidence(self, found: Found) -> Iterator[str]:
        """What replays and references say of the effects that were found, with figures."""
        for effect in found.effects:
            again = None if self._replays is None else self._replays.comparison(effect.arm)
            if again is not None:
                yield f"{effect.arm} with the same tokens forced on it and on {effect.against}: {_figures(again)}"
            if effect.arm in self._judged:
                yield f"{effect.arm} against {effect.against}: {self._judged[effect.arm].sentence}"
        if self._trouble:
            yield self._trouble

    def _replay(self, replays: Replays, strongest: str | None) -> None:
        lab = self._lab
        names = [name for name in self._plan.arms if lab.has_sat(name) and lab.comparison(name).flips]
        if strongest is not None and self._exact is not None and replayable(lab.arms[strongest]):
            names.append(strongest)  # it may be far from the reference where it is near to its own
        exact = [] if self._exact is None else [self._exact_of(name).name for name in names]
        replays.run([*names, *exact])

    def _compared(self) -> list[str]:
        return [] if self._replays is None else list(self._replays.compared())

    def _judged_by_replay(self, name: str) -> Judgement | None:
        """All positions, with the same tokens on all three sides."""
        against, exact = self._lab.arms[name].against, self._exact_of(name).name
        sides = [self._lab.replay(one) for one in (name, against, exact)]
        if exact in (name, against) or any(side is None for side in sides):
            return None
        return self._verdict(name, *(side or [] for side in sides), replayed=True)

    def _judged_free(self, name: str) -> Judgement | None:
        """Positions before the first flip, of free answers."""
        exact, against = self._exact_of(name), self._lab.arms[name].against
        if self._replays is not None and name not in self._replays.troubles and exact.name in self._replays.troubles:
            return None  # the arm was replayed, so that it is the precision which does not run
        if not self._lab.has_sat(exact.name):
            self._lab.run([exact], [Sitting(exact.name, self._lab.rounds)])
            if is_silent(self._lab, exact.name):  # the model may not fit in memory at that precision
                why = unanswered(self._lab, exact.name)
                self._trouble = f"{exact.name} could not be run as a reference: {why}"
                return None
        sides = (self._lab.observations(one) for one in (name, against, exact.name))
        return self._verdict(name, *sides, replayed=False)

    def _verdict(
        self,
        name: str,
        ours: Sequence[Observation],
        theirs: Sequence[Observation],
        exact: Sequence[Observation],
        *,
        replayed: bool,
    ) -> Judgement:
        arms = self._lab.arms
        here, there = arms[name].changes, arms[arms[name].against].changes
        alike = all(here.get(knob) == there.get(knob) for knob in FORMATS)
        return nature(ours, theirs, exact, same_format=alike, replayed=replayed)

    def _exact_of(self, name: str) -> Arm:
        """The arm that asks the same question at higher precision, and turns nothing else."""
        arms = self._lab.arms
        root = root_of(arms, name)
        changes = {**root.changes, "dtype": self._exact}
        named = name_of(changes)
        if named in arms and root_of(arms, named).name != root.name:  # known, and of another line
            named += " (reference)"
        return arms.setdefault(named, Arm(name=named, changes=changes, against=root.name, layer="control"))


def _figures(found: Comparison) -> str:
    """What a replay shows at all its positions."""
    told = []
    for rate, what in (
        (found.logprob_equal, "log-probabilities are equal"),
        (found.top1_equal, "times the same token leads"),
    ):
        if rate is not None and rate.of:
            told.append(f"{rate.hits:,} of {rate.of:,} {what}")
    if found.shift:
        told.append(f"the largest shift is {found.shift[-1]:.2g} nats")
    return ", ".join(told) or "nothing could be compared"
