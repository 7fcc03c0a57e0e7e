"""What a user's surroundings may do to a run: watchers that fail, tasks that return junk, directories in use."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.api import run
from proctor.runner import loop
from proctor.runner.outcome import RunOutcome
from proctor.runner.snapshot import Progress
from proctor.spec import PythonTaskSpec
from tests.runner.helpers import MakeSpec

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("local_ray")]


def test_an_observer_that_fails_is_told_of_once_and_costs_nothing(make_spec: MakeSpec) -> None:
    def fail(progress: Progress) -> None:
        raise OSError("nobody is there")

    outcome = run(make_spec(20), observer=fail)
    assert outcome.exit_code == 0
    told = [event.message for event in outcome.run.events() if event.kind == "progress.failed"]
    assert told == ["OSError: nobody is there"]


def with_task(make_spec: MakeSpec, name: str, rows: int = 20) -> RunOutcome:
    spec = make_spec(rows, limits={"max_error_rate": 0.0})
    task = PythonTaskSpec(kind="python", python=f"tests.runner.unruly:{name}")
    return run(spec.model_copy(update={"task": task}))


def test_prompts_that_are_none_cost_their_own_rows(make_spec: MakeSpec) -> None:
    outcome = with_task(make_spec, "JunkPrompts")
    (ledger,) = outcome.reconciliation.ledgers
    assert not outcome.reasons
    assert (outcome.exit_code, ledger.answered, ledger.errors) == (2, 10, {"prepare.failed": 10})
    assert outcome.summaries["ck"].metrics[0].n == 10


def test_a_task_that_exits_costs_the_row_and_not_the_worker(make_spec: MakeSpec) -> None:
    outcome = with_task(make_spec, "Exits")
    (ledger,) = outcome.reconciliation.ledgers
    assert (outcome.exit_code, ledger.answered) == (2, 17)
    assert ledger.errors == {"prepare.failed": 2, "score.failed": 1}


@pytest.mark.parametrize("name", ["NoSummary", "JunkSummary"])
def test_a_summary_that_fails_costs_the_metrics_and_not_the_account(make_spec: MakeSpec, name: str) -> None:
    outcome = with_task(make_spec, name)
    assert outcome.exit_code == 1
    assert outcome.reconciliation.complete
    assert outcome.summaries == {}
    assert outcome.reasons["ck"].startswith("no metrics, the task's summary failed: ")
    assert outcome.report is not None
    assert outcome.run.read("reconciliation")["exit_code"] == 1


def test_a_stream_that_ends_early_leaves_its_rows_to_the_next_sweep(
    make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make_spec(20)

    def fail_once(*arguments: Any) -> Any:
        monkeypatch.undo()
        raise TimeoutError("no progress")

    monkeypatch.setattr(loop, "stream", fail_once)
    outcome = run(spec)
    assert outcome.exit_code == 0
    assert outcome.reasons["ck"] == "sweep 1 ended early: TimeoutError: no progress"
    assert "sweep.cut_short" in {event.kind for event in outcome.run.events()}
