"""Replays: with the same tokens forced, every position is compared; the reference then judges all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from proctor.audit import read_audit, write_audit
from proctor.audit.bench import Asking, EngineOrder
from proctor.audit.conduct import Audit, Auditor, Shown
from proctor.audit.lab import Lab
from proctor.audit.replay import MOST_FLIPS, root_of
from proctor.audit.store import REPLAYED
from proctor.engines.capabilities import capabilities
from proctor.rows import Request, Response, UserError
from proctor.spec import build_spec
from tests.audit.planted import InProcess, audited, spec_of

BATCH: dict[str, Any] = {"audit": {"arms": ["repeat", "batch"]}, "batch_size": 4}
LONG: dict[str, Any] = {"rows": 8, "shortest": 24, "longest": 30, "near_ties": 0.8}
"""Answers in which nearly every row parts early, at a near-tie."""
EARLY = {"ulps": 16.0, "batch": 4}
LATE = {"nats": 1.0, "batch": 4, "step": 19}
"""A wrong result behind the position up to which free answers go together."""


def able(**changed: Any) -> AbstractContextManager[object]:
    """Engines that declare other abilities than they have."""

    def declared(*arguments: Any) -> Any:
        return replace(capabilities(*arguments), **changed)

    return patch("proctor.audit.conduct.capabilities", declared)


def shown(audit: Audit, arm: str) -> Shown:
    return next(one for one in audit.arms if one.arm.name == arm)


class Recording(InProcess):
    """Keeps every request, and says of forced tokens what a prompt pass may say: something else."""

    asked: list[Request]
    shift = 0.0

    def ask(self, requests: Sequence[Request]) -> list[Response]:
        type(self).asked += requests
        return [
            self._told(request, response) for request, response in zip(requests, super().ask(requests), strict=True)
        ]

    def _told(self, request: Request, response: Response) -> Response:
        if not request.sampling.forced or response.logprobs is None:
            return response
        top = [tuple((token, value - self.shift) for token, value in place) for place in response.top_logprobs or ()]
        return replace(
            response, logprobs=tuple(value - self.shift for value in response.logprobs), top_logprobs=tuple(top)
        )


def recorded(folder: Path, *effects: dict[str, Any], shift: float = 0.0, **settings: Any) -> tuple[Audit, Lab]:
    Recording.asked, Recording.shift = [], shift

    @contextmanager
    def start(order: EngineOrder) -> Iterator[Asking]:
        yield Recording(order)

    return Auditor(build_spec(spec_of(folder, *effects, **settings)), start=start).run()


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
        clue.startswith("batch=4 with the same tokens forced on it and on baseline: ") for clue in evidence(audit)
    )
    with able(replay=False, why_no_replay="it has no way to force tokens"):
        blind, _ = audited(tmp_path, EARLY, LATE, seed=seed, **ties, **BATCH)
    assert blind.verdict.nature == "rounding"


def evidence(audit: Audit) -> tuple[str, ...]:
    return audit.verdict.evidence


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


def test_an_arm_is_forced_to_what_its_question_got_and_sits_as_it_did(tmp_path: Path) -> None:
    audit, lab = recorded(tmp_path, {"nats": 3.0, "batch": 2}, rows=6, batch_size=4, audit={"prefix_words": [8]})
    forced = [request for request in Recording.asked if request.sampling.forced]
    given = {
        (name, one.row_id): one.token_ids
        for name in ("baseline", "prefix=8")
        for one in lab.observations(name, lab.rounds_of(name)[:1])
    }
    roots = {"prefix=8" if request.prompt[0].parts[1:] else "baseline" for request in forced}
    assert roots == {"baseline", "prefix=8"}
    for request in forced:
        if request.id < 6:
            root = "prefix=8" if request.prompt[0].parts[1:] else "baseline"
            assert request.sampling.forced == given[root, request.id]
    assert {root_of(lab.arms, name).name for name in lab.replayed} == {"baseline", "prefix=8"}
    replayed = [one for one in audit.arms if one.replayed is not None]
    assert {one.arm.name for one in replayed} >= {"batch=2", "batch=4", "prefix=8 x batch=4"}
    assert all(one.replayed.against == one.arm.against for one in replayed if one.replayed is not None)


def test_replays_keep_to_the_design_and_count_for_nothing_else(tmp_path: Path) -> None:
    effect = {"nats": 0.5, "batch": 2}
    with able(replay=False):
        without, plain = audited(tmp_path, effect, rows=6, batch_size=4)
    told: list[tuple[int, int]] = []
    spec = build_spec(spec_of(tmp_path, effect, rows=6, batch_size=4))
    auditor = Auditor(spec, start=lambda order: _in_process(order))
    preparation = auditor.preparation()
    audit, lab = auditor.run(lambda _, done, planned: told.append((done, planned)))
    assert 0 < len(lab.replayed) <= preparation.design.replay.sittings == preparation.cost.most_replays
    assert [done for done, _ in told] == list(range(1, len(lab.sat) + len(lab.replayed) + 1))
    assert told[-1][0] == told[-1][1]
    assert len(plain.sat) == len(lab.sat) + 1, "without replays the reference sits freely"
    assert [one.arm for one in without.effects] == [one.arm for one in audit.effects]
    for one in audit.arms:
        assert one.comparison == shown(without, one.arm.name).comparison


@contextmanager
def _in_process(order: EngineOrder) -> Iterator[Asking]:
    yield InProcess(order)


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


def test_an_engine_that_cannot_replay_says_so_in_one_line(tmp_path: Path) -> None:
    with able(replay=False, why_no_replay="the protocol has no way to force tokens"):
        audit, lab = recorded(tmp_path, {"nats": 3.0, "batch": 4}, **BATCH)
    assert audit.replay.startswith("Not replayed: the protocol has no way to force tokens. What follows")
    assert (audit.design.replay.sittings, lab.replayed) == (0, [])
    assert not any(request.sampling.forced for request in Recording.asked)
    assert audit.verdict.nature == "wrong results", "the reference judges what comes before the flips"
    text_only = Auditor(build_spec({**spec_of(tmp_path), "engine": {"kind": "scripted", "checkpoints": ["a"]}}))
    assert text_only.preparation().design.replay.why_not == "scripted answers have no tokens"


def test_a_replay_that_fails_costs_the_replay(tmp_path: Path) -> None:
    class Refusing(InProcess):
        def ask(self, requests: Sequence[Request]) -> list[Response]:
            if any(request.sampling.forced for request in requests):
                raise UserError("the engine does not work: no such option", where="audit")
            return super().ask(requests)

    @contextmanager
    def start(order: EngineOrder) -> Iterator[Asking]:
        yield Refusing(order)

    spec = build_spec(spec_of(tmp_path, {"nats": 3.0, "batch": 4}, **BATCH))
    audit, lab = Auditor(spec, start=start).run()
    assert (audit.verdict.kind, audit.verdict.nature) == ("isolated", "wrong results")
    assert "batch=4 could not be replayed: the engine does not work: no such option." in audit.replay
    assert lab.replayed == []
    assert shown(audit, "batch=4").replayed is None


def test_arms_without_log_probabilities_are_named_as_not_replayed(tmp_path: Path) -> None:
    audit, _ = audited(tmp_path, {"nats": 2.0, "observed": True}, audit={"arms": ["repeat", "logprobs"]})
    assert audit.replay == "Not replayed, and so compared up to an answer's first other token: logprobs=off."
    quiet, _ = audited(tmp_path, audit={"arms": ["repeat", "logprobs"]})
    assert quiet.replay.startswith("Nothing to replay: no answer parts")


def test_of_noise_only_the_loudest_arm_is_replayed_and_nothing_is_judged(tmp_path: Path) -> None:
    audit, lab = audited(tmp_path, {"noise": True, "batch": 3, "nats": 1.0}, **BATCH)
    assert audit.verdict.kind == "run-to-run"
    assert sorted(lab.replayed) == ["baseline", "batch=4"]
    assert all(one.judged is None for one in audit.arms)
    everywhere, lab = audited(tmp_path, {"noise": True, "nats": 1.0}, **BATCH)
    assert everywhere.verdict.kind == "run-to-run"
    assert sorted(lab.replayed) == ["baseline", "repeat"]


def test_a_control_that_serves_as_the_reference_stays_a_control(tmp_path: Path) -> None:
    arms = {"arms": ["repeat", "batch", "dtype"]}
    with able(replay=False, reference="float16"):
        audit, lab = audited(tmp_path, {"nats": 0.5, "batch": 4}, audit=arms, batch_size=4)
    assert audit.verdict.nature != "unknown"
    assert lab.arms["dtype=float16"].against == "baseline"
    control = shown(audit, "dtype=float16").comparison
    assert control is not None
    assert control.differs
    assert not any("was not seen" in clue for clue in evidence(audit))


def test_every_replayed_position_is_in_a_file_of_its_own(tmp_path: Path) -> None:
    audit, lab = audited(tmp_path, {"nats": 0.5, "batch": 4}, **BATCH)
    write_audit(tmp_path / "audit", audit, lab)
    assert read_audit(tmp_path / "audit") == audit
    rows = pq.read_table(tmp_path / "audit" / REPLAYED).to_pylist()
    found = shown(audit, "batch=4").replayed
    assert found is not None
    assert found.logprob_equal is not None
    mine = [row for row in rows if row["arm"] == "batch=4"]
    assert len(mine) == found.logprob_equal.of
    assert sum(row["equal"] for row in mine) == found.logprob_equal.hits
    assert all(row["token"] == row["against_token"] for row in mine)
    assert {(row["arm"], row["against"]) for row in rows} == {("batch=4", "baseline"), ("dtype=float64", "baseline")}
    quiet = audited(tmp_path, **BATCH)
    write_audit(tmp_path / "audit", *quiet)
    assert not (tmp_path / "audit" / REPLAYED).exists()
