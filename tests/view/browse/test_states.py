"""How a run stands, and the line of it in a list."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proctor.results import RunDir
from proctor.rows import UserError
from proctor.view.browse.runs import open_run, run_line
from proctor.view.browse.states import Counts, Last, Versions, headline, last_of, state_of
from proctor.view.verdict import Verdict
from tests.view.helpers import make_run

CLOSED = Verdict("good", "Complete", "All is there.", 0)


@pytest.mark.parametrize(
    ("last", "live", "exit_code", "word", "tone", "first"),
    [
        (None, False, None, "not started", "open", "Not started"),
        (None, True, None, "running", "open", "Running"),
        (None, False, 0, "complete", "good", "Complete"),
        (None, False, 130, "interrupted", "warn", "Complete"),
        (None, False, 77, "not started", "open", "Not started"),
        (Last("running"), True, 0, "running", "open", "Running"),
        (Last("running"), False, None, "crashed", "bad", "Crashed"),
        (Last("starting"), False, 3, "crashed", "bad", "Crashed"),
        (Last("too_many_errors"), False, 2, "too many errors", "warn", "Complete"),
        (Last("incomplete"), False, 3, "incomplete", "bad", "Complete"),
        (Last("something\nelse"), False, None, "something else", "open", "Complete"),
    ],
)
def test_how_a_run_stands(
    last: Last | None, live: bool, exit_code: int | None, word: str, tone: str, first: str
) -> None:
    state = state_of(last, live=live, exit_code=exit_code)
    assert state == (word, tone)
    assert headline(state, CLOSED, last).headline == first


def test_what_a_run_said_last_adds_up() -> None:
    last = Last(checkpoints={"a": Counts(100, 20, 60, 38, {"lost": 2}), "b": Counts(100)}, eta_seconds=12.0)
    assert (last.total, last.done, last.worked, last.errors, last.share, last.left) == (200, 60, 40, 2, 0.3, 12.0)
    assert "60 of 200 rows" in headline(state_of(last, live=True), CLOSED, last).detail
    for odd in (float("nan"), float("inf"), -1.0, 1e300, None):
        assert Last(eta_seconds=odd).left is None
    assert Last().share == 0.0
    assert Last(checkpoints={"a": Counts(total=-5, done=7)}).share == 0.0


def test_versions_name_what_the_engine_runs_on() -> None:
    assert Versions.of({"proctor": "1", "torch": "2", "engine: python": "3", "engine: vllm": "4"}) == Versions(
        "1", "vllm 4"
    )
    assert Versions.of({"torch": "2", "engine: python": "3"}) == Versions("", "")


def test_the_line_of_a_run_that_goes_on_tells_how_far_it_is(tmp_path: Path) -> None:
    run = make_run(tmp_path, 4)
    line = run_line(run.folder)
    assert line.state.word == "complete"
    assert not line.under_way
    assert line.metric is not None
    assert line.metric[0] == "exact"
    assert line.versions == Versions("0.1.0", "")
    counts = {"total": 4, "before": 0, "done": 1, "answered": 1, "errors": {}, "retries": {}, "output_tokens": 0}
    run.write("status", {"state": "running", "time": 1.0, "rate": 2.5, "checkpoints": {"step-0100": counts}})
    os.utime(run.root / "status.json", (2e9, 2e9))
    crashed = run_line(run.folder)
    assert crashed.state.word == "crashed"
    assert crashed.under_way
    assert crashed.changed == 2e9
    with run.locked(lambda _reason: None):
        live = run_line(run.folder)
    assert live.state.word == "running"
    assert live.last is not None
    assert (live.last.done, live.last.rate) == (1, 2.5)
    run.write("status", {"state": 5})
    assert "damaged: " in run_line(run.folder).problem


def test_a_run_that_never_said_anything_did_not_crash(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "young")
    run.folder.write("spec.yaml", b"source: {}")
    line = run_line(run.folder)
    assert (line.state.word, line.last, line.problem) == ("not started", None, "")
    assert last_of(run) is None


def test_who_opens_a_pipe_would_wait_for_ever(tmp_path: Path) -> None:
    run = make_run(tmp_path, 1)
    for name in ("status.json", "lease.json", ".lock"):
        (run.root / name).unlink(missing_ok=True)
        os.mkfifo(run.root / name)
        with pytest.raises(UserError, match="neither a file nor a folder"):
            open_run(run.folder)
        assert "neither a file" in run_line(run.folder).problem
        (run.root / name).unlink()
