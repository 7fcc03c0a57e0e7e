"""Replays: arms sit once more with given tokens forced, so that every position is compared, also behind a flip.

Free answers say whether and when tokens part; what follows a flip is an answer to another question. With the same
tokens forced on both sides (`Sampling.forced`) each position asks the same of both. What is forced are the answers of
the arm that asks the plain question: the baseline, or for a shared prefix that prefix asked alone.

A replay is compared with a replay only. An engine may score forced tokens as it reads a prompt, or need options for it
(`Capabilities.replay_options`), and has other numerics then than in decoding: such a value beside one of a free answer
would show that difference, and blame the arm for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from proctor.audit.bench import Sat
from proctor.audit.blank import IMAGES
from proctor.audit.compare import compare
from proctor.audit.compare.pairs import answered
from proctor.audit.lab import Forced, Lab
from proctor.audit.model import Arm, Comparison, ReplayPlan, Sitting
from proctor.engines.capabilities import Capabilities
from proctor.rows import UserError

MOST_FLIPS = 50
"""Positions at which another token leads that are kept of a replayed comparison, those of the largest margin."""
_FOUND = 2
"""An arm that only the search finds, and its reference."""


def root_of(arms: Mapping[str, Arm], name: str) -> Arm:
    """The arm that asks the same question with nothing else turned: whose answers are forced in a replay."""
    arm = arms[name]
    while arm.against not in ("", arm.name):
        arm = arms[arm.against]
    return arm


def replayable(arm: Arm) -> bool:
    """Whether a replay can tell anything: there is a reference with the same question, and log-probabilities."""
    asked_alike = arm.against not in ("", arm.name) and IMAGES not in arm.changes
    return asked_alike and arm.changes.get("logprobs") is not False


def replay_plan(arms: Sequence[Arm], can: Capabilities) -> ReplayPlan:
    """What would be replayed of a design.

    Args:
        arms: of the design.
        can: what the engine can do.
    """
    if not can.replay or not can.logprobs or not can.top_logprobs:
        return ReplayPlan(why_not=can.why_no_replay or "the engine tells no log-probabilities of most likely tokens")
    by_name = {arm.name: arm for arm in arms}
    wanted = [arm for arm in arms if replayable(arm)]
    roots = {root_of(by_name, arm.name).name for arm in wanted}
    sitting = {name for arm in wanted for name in (arm.name, arm.against)} | roots
    exact = len(roots) if can.reference else 0
    return ReplayPlan(arms=tuple(arm.name for arm in wanted), sittings=len(sitting) + exact + _FOUND)


class Replays:
    """Runs replays and compares them with each other.

    Args:
        lab: whose arms and answers they are of; what is replayed does not count among its rounds.
        options: that the engine must be started with to follow forced tokens.
    """

    def __init__(self, lab: Lab, options: Mapping[str, object]) -> None:
        self._lab, self._options = lab, options
        self.troubles: dict[str, str] = {}
        """Why an arm could not be replayed, by name."""

    def run(self, names: Iterable[str]) -> None:
        """Runs arms of the lab with their references, once each; those that were replayed before are not again."""
        arms = self._lab.arms
        wanted = dict.fromkeys(one for name in names for one in (arms[name].against, name) if one)
        number = self._lab.rounds
        new = [Sitting(name, number) for name in wanted if self._lab.replay(name) is None]
        forced = {name: self._tokens(root_of(arms, name).name) for name in wanted}
        for group in self._lab.groups(new):
            try:
                for sat in self._lab.apart(group, forced, self._options):
                    self._keep(sat, forced[sat.sitting.arm])
            except UserError as error:  # what was found without replays is not to be lost with them
                self.troubles |= {name: error.what for name, _ in group if self._lab.replay(name) is None}

    def _keep(self, sat: Sat, forced: Forced) -> None:
        """Keeps the rows that were forced; the others were only company."""
        arm, seen = sat.sitting.arm, [one for one in sat.observations if one.row_id in forced]
        if any(map(answered, seen)):
            self._lab.keep_replay(arm, seen)
        else:
            self.troubles[arm] = next((one.failure[1] for one in seen if one.failure), "there are no tokens to force")

    def compared(self) -> Iterator[str]:
        """Arms that were replayed beside their references, without runs that only serve as a measure."""
        for name in self._lab.replayed:
            arm = self._lab.arms[name]
            if replayable(arm) and arm.against in self._lab.replayed and self._lab.has_sat(name):
                yield name

    def comparison(self, arm: str) -> Comparison | None:
        """An arm's replay against the replay of its reference; None where one of them is missing.

        Of the positions at which another token leads, `MOST_FLIPS` are kept.
        """
        against = self._lab.arms[arm].against
        ours, theirs = self._lab.replay(arm), self._lab.replay(against)
        if ours is None or theirs is None or arm == against:
            return None
        found = compare(ours, theirs, replayed=True, arm=arm, against=against)
        left_out = len(found.flips) - MOST_FLIPS
        if left_out <= 0:
            return found
        remark = f"{left_out} more positions at which another token leads, with smaller margins, are not kept"
        return replace(found, flips=found.flips[:MOST_FLIPS], remarks=(*found.remarks, remark))

    def _tokens(self, root: str) -> Forced:
        """The first answer that each row got in an arm, as tokens; rows without one are left out."""
        given: dict[int, tuple[int, ...]] = {}
        for one in self._lab.observations(root):
            if answered(one) and one.token_ids and min(one.token_ids) >= 0:
                given.setdefault(one.row_id, one.token_ids)
        return given


def told_of(plan: ReplayPlan, replays: Replays | None, parted: Iterable[str] = ()) -> str:
    """In a sentence or two, what was replayed, or why nothing was.

    Args:
        plan: of the design.
        replays: that were made; None where there can be none.
        parted: arms in which an answer parts from its reference's.
    """
    if replays is None:
        return f"Not replayed: {plan.why_not}. What follows an answer's first other token is not compared."
    parts = []
    compared = list(replays.compared())
    if compared:
        parts.append(
            "Replayed, with the baseline's tokens (for a shared prefix: those it gets alone) forced on each arm and on "
            f"its reference: {', '.join(compared)}. There every position is compared, also after the first other token."
        )
    left = [name for name in parted if name not in compared and name not in replays.troubles]
    if left:
        parts.append(f"Not replayed, and so compared up to an answer's first other token: {', '.join(left)}.")
    parts += [f"{name} could not be replayed: {why}." for name, why in replays.troubles.items()]
    return " ".join(parts) or "Nothing to replay: no answer parts from its reference's, so every position is compared."
