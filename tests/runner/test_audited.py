"""Runs that carry an audit: before the run's own engines, with one engine's resources, and never at the run's cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proctor.api import run
from proctor.audit import read_audit
from proctor.audit.standing import read_standing
from proctor.cli.outcome import outcome_json
from proctor.rows import UserError
from proctor.runner.exam import Exam
from proctor.runner.outcome import RunOutcome
from proctor.runner.plan import make_plan
from proctor.runner.snapshot import Progress
from proctor.spec import RunSpec
from tests.runner.helpers import MakeSpec

on_ray = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("local_ray")]
FROM_3 = {"batch": 3, "nats": 0.5}


def spec_of(
    make_spec: MakeSpec, *effects: dict[str, Any], audit: dict[str, Any] | None = None, **parts: Any
) -> RunSpec:
    engine = {"numerics": {"effects": list(effects)}, "batch_size": 4, **parts.pop("engine", {})}
    settings = {"sample": 6, "arms": ["repeat", "batch"], **(audit or {})}
    return make_spec(12, engine=engine, audit=settings, **parts)


def kinds(outcome: RunOutcome) -> list[str]:
    return [event.kind for event in outcome.run.events()]


def test_a_knob_that_there_is_not_is_refused_before_the_run(make_spec: MakeSpec, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"audit\.arms: there is no knob 'bacth'"):
        run(spec_of(make_spec, audit={"arms": ["bacth"]}))
    assert not (tmp_path / "run").exists()


def test_a_plan_says_what_the_audit_takes(make_spec: MakeSpec) -> None:
    planned = make_plan(Exam.of(spec_of(make_spec))).audit
    assert planned is not None
    assert (planned.checkpoint, planned.rows, planned.arms, planned.trouble) == ("ck", 6, 4, "")
    assert planned.cost is not None
    assert planned.cost["sittings"] == 8
    assert planned.others == ()
    several = make_plan(Exam.of(spec_of(make_spec, engine={"checkpoints": ["ck", "other", "third"]}))).audit
    assert several is not None
    assert several.others == ("other", "third")
    assert make_plan(Exam.of(make_spec(12))).audit is None


class TestOnRay:
    pytestmark = on_ray

    def test_the_verdict_stands_in_the_run_and_does_not_change_its_exit_code(
        self, make_spec: MakeSpec, tmp_path: Path
    ) -> None:
        seen: list[Progress] = []
        spec = spec_of(make_spec, FROM_3, engine={"checkpoints": ["ck", "other"]})
        outcome = run(spec, observer=seen.append)
        assert outcome.exit_code == 0, outcome.reasons
        assert outcome.audit is not None
        assert (outcome.audit.kind, outcome.audit.checkpoint, outcome.audit.exit_code) == ("isolated", "ck", 4)
        found = read_audit(tmp_path / "run")
        assert found.verdict.sentence == outcome.audit.sentence
        assert found.verdict.thresholds[0].above == 3
        happened = kinds(outcome)
        assert happened.index("audit.started") < happened.index("audit.verdict") < happened.index("engine.started")
        assert happened.count("audit.started") == 1, "the first checkpoint only"
        (verdict,) = [event for event in outcome.run.events() if event.kind == "audit.verdict"]
        assert verdict.data["not_audited"] == "other"
        assert (
            "Not audited, only run with the same engine and settings: other."
            in (tmp_path / "run" / "report.html").read_text()
        )
        for page in ("report.html", "audit/audit.html"):
            assert "batch changes outputs from 3 on, not up to 2" in (tmp_path / "run" / page).read_text()
        assert any(progress.note.startswith("audit: ") for progress in seen)
        assert seen[-1].note == ""
        told: Any = outcome_json(outcome)["audit"]
        assert told["sentence"] == outcome.audit.sentence
        assert told["not_audited"] == outcome.unaudited == ["other"]

    def test_a_resume_does_not_repeat_it_and_other_settings_do(self, make_spec: MakeSpec, tmp_path: Path) -> None:
        spec = spec_of(make_spec)
        first = run(spec)
        assert first.audit is not None
        assert first.audit.kind == "no effect found"
        _lose_a_part(tmp_path)
        again = run(spec)
        assert (again.exit_code, again.audit) == (0, first.audit)
        assert kinds(again).count("audit.started") == 1
        _lose_a_part(tmp_path)
        other = run(spec_of(make_spec, audit={"sample": 5}))
        assert kinds(other).count("audit.started") == 2
        assert len(read_audit(tmp_path / "run").design.rows) == 5
        (earlier,) = (tmp_path / "run" / "earlier").iterdir()
        assert len(read_audit(earlier).design.rows) == 6, "the earlier one is not lost"

    def test_an_audit_that_fails_costs_the_audit_and_not_the_run(self, make_spec: MakeSpec, tmp_path: Path) -> None:
        spec = spec_of(make_spec, audit={"sample": 1}, limits={"max_error_rate": 0.5})
        rows = Path(spec.source.path)
        first, _, rest = rows.read_text().partition("\n")
        rows.write_text(first.replace('"what is 0?"', "null") + "\n" + rest)  # the only row that would be asked
        outcome = run(spec)
        assert outcome.exit_code == 0, outcome.reasons
        assert outcome.audit is not None
        assert outcome.audit.kind == "failed"
        assert "no row of the sample can be asked; row 0: " in outcome.audit.failure
        (failed,) = [event for event in outcome.run.events() if event.kind == "audit.failed"]
        assert outcome.audit.failure in failed.message
        assert not (tmp_path / "run" / "audit" / "audit.json").exists()
        planned = make_plan(Exam.of(spec)).audit
        assert planned is not None
        assert "no row of the sample can be asked" in planned.trouble

    def test_a_stall_of_its_engine_is_an_event_that_names_the_dump(self, make_spec: MakeSpec, tmp_path: Path) -> None:
        fault = {"kind": "stall", "rows": [2], "times": 1}
        spec = spec_of(make_spec, engine={"faults": [fault]}, audit={"faults": True}, limits={"stall_seconds": 2})
        outcome = run(spec)
        assert outcome.exit_code == 0, outcome.reasons
        stalls = [event for event in outcome.run.events() if event.kind == "audit.engine.stalled"]
        assert stalls
        for event in stalls:
            dump = event.data["dump"]
            assert isinstance(dump, str)
            assert dump.startswith("audit/stalls/")
            assert "Python stacks" in (tmp_path / "run" / dump).read_text()
            assert dump in event.message

    def test_an_audit_whose_worker_dies_costs_the_audit_and_not_the_run(
        self, make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("proctor.runner.audited._audit", _dies)
        outcome = run(spec_of(make_spec))
        assert outcome.exit_code == 0, outcome.reasons
        assert outcome.audit is not None
        assert outcome.audit.kind == "failed"
        assert "audit.failed" in kinds(outcome)
        assert "audit.verdict" not in kinds(outcome)
        assert "The audit failed" in (tmp_path / "run" / "report.html").read_text()
        monkeypatch.undo()
        _lose_a_part(tmp_path)
        again = run(spec_of(make_spec))
        assert again.audit is not None
        assert again.audit.kind == "no effect found", "a failed one is tried again"

    def test_an_audit_by_hand_may_come_first(self, make_spec: MakeSpec, tmp_path: Path) -> None:
        from proctor.audit.standing import conduct_audit

        spec = spec_of(make_spec, FROM_3)
        audit = conduct_audit(spec, None, tmp_path / "run" / "audit")
        outcome = run(spec)
        assert outcome.exit_code == 0, outcome.reasons
        assert "audit.started" not in kinds(outcome)
        assert outcome.audit is not None
        assert outcome.audit.sentence == audit.verdict.sentence
        assert read_standing(outcome.run.folder) == outcome.audit


def _lose_a_part(folder: Path) -> None:
    """Something is left to do for the next run."""
    next((folder / "run" / "results").glob("part-*.parquet")).unlink()


def _dies(*_: Any) -> None:
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)
