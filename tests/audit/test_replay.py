"""Replays: with the same tokens forced, every position is compared; the reference then judges all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proctor.audit.replay import MOST_FLIPS
from tests.audit.planted import audited
from tests.audit.replays import BATCH, able, recorded, shown

LONG: dict[str, Any] = {"rows": 8, "shortest": 24, "longest": 30, "near_ties": 0.8}
"""Answers in which nearly every row parts early, at a near-tie."""
EARLY = {"ulps": 16.0, "batch": 4}
LATE = {"nats": 1.0, "batch": 4, "step": 19}
"""A wrong result behind the position up to which free answers go together."""


@pytest.mark.parametrize("seed", range(4))
def test_a_bug_behind_a_near_tie_is_seen_in_the_replay_only(tmp_path: Path, seed: int) -> None:
    ties = {**LONG, "near_ties": 1.0}
    audit, _ = audited(tmp_path, EARLY, LATE, seed=seed, **ties, **BATCH)
    found = shown(audit, "batch=4")
    assert found.comparison is not None
    assert found.replayed is not None
    assert found.comparison.shift[-1] < 1e-3, "free answers part before the bug"
    assert found.replayed.shift[-1] > 0.1
    assert (audit.verdict.kind, audit.verdict.nature) == ("isolated", "wrong results")
    assert any(
        clue.startswith("batch=4 with the same tokens forced on it and on baseline: ")
        for clue in audit.verdict.evidence
    )
    with able(replay=False, why_no_replay="it has no way to force tokens"):
        blind, _ = audited(tmp_path, EARLY, LATE, seed=seed, **ties, **BATCH)
    assert blind.verdict.nature == "rounding"


@pytest.mark.parametrize("seed", range(4))
def test_rounding_stays_rounding_at_every_position(tmp_path: Path, seed: int) -> None:
    audit, lab = audited(tmp_path, EARLY, seed=seed, **LONG, **BATCH)
    found = shown(audit, "batch=4")
    baseline = [one.token_ids for one in lab.observations("baseline", [0])]
    assert audit.verdict.nature == "rounding"
    assert found.replayed is not None
    assert found.replayed.logprob_equal is not None
    assert found.replayed.top1_equal is not None
    assert found.replayed.logprob_equal.of == found.replayed.top1_equal.of == sum(map(len, baseline))
    assert found.replayed.shift[-1] < 1e-4
    assert found.comparison is not None
    assert found.comparison.logprob_equal is not None
    assert found.comparison.logprob_equal.of < 2 * found.replayed.logprob_equal.of, "free: two rounds, up to the flip"
    margins = [flip.margin or 0.0 for flip in found.replayed.flips]
    assert margins == sorted(margins, reverse=True)
    assert max(margins) < 1e-4
    assert {flip.texts for flip in found.replayed.flips} == {("", "")}


def test_only_the_largest_margins_are_kept(tmp_path: Path) -> None:
    audit, _ = audited(tmp_path, {"nats": 1.0, "batch": 4}, **{**LONG, "rows": 20}, **BATCH)
    found = shown(audit, "batch=4").replayed
    assert found is not None
    assert found.top1_equal is not None
    assert len(found.flips) == MOST_FLIPS < found.top1_equal.of - found.top1_equal.hits
    assert any("are not kept" in remark for remark in found.remarks)


@pytest.mark.parametrize("seed", range(3))
def test_number_formats_are_not_held_against_each_other(tmp_path: Path, seed: int) -> None:
    """Arms that change the format are judged by flips beyond their own noise, not by their distance."""
    settings = {"rows": 12, "shortest": 12, "longest": 16, "audit": {"arms": ["repeat", "dtype"]}, "seed": seed}
    audit, _ = audited(tmp_path, near_ties=0.3, **settings)
    assert audit.verdict.kind == "no effect found"
    kinds = {one.arm.name: one.judged.kind for one in audit.arms if one.judged is not None}
    assert kinds == {"dtype=bfloat16": "rounding", "dtype=float16": "rounding"}
    broken = {"nats": 6.0, "dtypes": ["bfloat16"], "every": 6}
    audit, _ = audited(tmp_path, broken, near_ties=0.3, **settings)
    kinds = {one.arm.name: one.judged.kind for one in audit.arms if one.judged is not None}
    assert kinds == {"dtype=bfloat16": "wrong results", "dtype=float16": "rounding"}


def test_a_replay_is_compared_with_a_replay_only(tmp_path: Path) -> None:
    """An engine that computes forced tokens in another way: the same on both sides, so it shows nowhere."""
    settings: dict[str, Any] = {"rows": 6, "batch_size": 4, "audit": {"arms": ["repeat", "batch"]}}
    effect = {"nats": 2.0, "batch": 4, "every": 3}
    plain, _ = recorded(tmp_path, effect, **settings)
    other, lab = recorded(tmp_path, effect, shift=0.25, **settings)
    ours, theirs = shown(other, "batch=4").replayed, shown(plain, "batch=4").replayed
    assert ours is not None
    assert theirs is not None
    assert ours.logprob_equal == theirs.logprob_equal
    assert ours.top1_equal == theirs.top1_equal
    assert ours.shift == pytest.approx(theirs.shift)
    assert other.verdict.nature == plain.verdict.nature == "wrong results"
    freely, again = lab.observations("baseline", [0])[0].logprobs, (lab.replay("baseline") or [])[0].logprobs
    assert freely is not None
    assert again is not None
    assert again[0] == freely[0] - 0.25


def test_a_control_that_serves_as_the_reference_stays_a_control(tmp_path: Path) -> None:
    arms = {"arms": ["repeat", "batch", "dtype"]}
    with able(replay=False, reference="float16"):
        audit, lab = audited(tmp_path, {"nats": 0.5, "batch": 4}, audit=arms, batch_size=4)
    assert audit.verdict.nature != "unknown"
    assert lab.arms["dtype=float16"].against == "baseline"
    control = shown(audit, "dtype=float16").comparison
    assert control is not None
    assert control.differs
    assert not any("was not seen" in clue for clue in audit.verdict.evidence)
