"""How replays sit: which tokens are forced, on which engine, how often, and what becomes of those that fail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq

from proctor.audit import read_audit, write_audit
from proctor.audit.bench import Asking, EngineOrder
from proctor.audit.conduct import Auditor
from proctor.audit.replay import root_of
from proctor.audit.store import REPLAYED
from proctor.rows import Request, Response, UserError
from proctor.spec import build_spec
from tests.audit.planted import InProcess, audited, in_process, spec_of
from tests.audit.replays import BATCH, Recording, able, recorded, shown


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
    auditor = Auditor(spec, start=in_process)
    preparation = auditor.preparation()
    audit, lab = auditor.run(lambda _, done, planned: told.append((done, planned)))
    assert 0 < len(lab.replayed) <= preparation.design.replay.sittings == preparation.cost.most_replays
    assert [done for done, _ in told] == list(range(1, len(lab.sat) + len(lab.replayed) + 1))
    assert told[-1][0] == told[-1][1]
    assert len(plain.sat) == len(lab.sat) + 1, "without replays the reference sits freely"
    assert [one.arm for one in without.effects] == [one.arm for one in audit.effects]
    for one in audit.arms:
        assert one.comparison == shown(without, one.arm.name).comparison


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


def test_what_an_engine_needs_for_replays_it_is_started_with_for_those_only(tmp_path: Path) -> None:
    started: list[tuple[bool, bool]] = []

    class Listening(InProcess):
        def __init__(self, order: EngineOrder) -> None:
            super().__init__(order)
            self._option = order.config.options.get("row_ms") == 0.01

        def ask(self, requests: Sequence[Request]) -> list[Response]:
            started.append((self._option, any(request.sampling.forced for request in requests)))
            return super().ask(requests)

    @contextmanager
    def start(order: EngineOrder) -> Iterator[Asking]:
        yield Listening(order)

    with able(replay_options={"row_ms": 0.01}):
        Auditor(build_spec(spec_of(tmp_path, {"nats": 3.0, "batch": 4}, **BATCH)), start=start).run()
    assert set(started) == {(False, False), (True, True)}


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
