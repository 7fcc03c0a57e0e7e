"""``proctor fleet submit``, ``watch``, ``reap`` and ``stop``, in this process and with a cluster that is plain data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result
from typing_extensions import override

from proctor.cli.app import app
from proctor.fleet import examined, jobs, loop, notify, words
from proctor.fleet.jobs import Order, Sighting, UnreachableError
from proctor.fleet.notes import Notes
from proctor.fleet.view import Job, JobState
from proctor.rows import Event, UserError
from tests.fleet.staged import FakeCluster, Stage


class QuickCluster(FakeCluster):
    """Every job that was submitted has ended by the next look, complete unless its unit is named."""

    def __init__(self, stage: Stage, incomplete: tuple[str, ...] = ()) -> None:
        super().__init__()
        self._stage, self._incomplete = stage, incomplete
        stage.cluster = self

    @override
    def look(self) -> Sighting:
        for order in self.orders:
            unit, attempt = order.submission.split("-")[-2:]
            bad = unit in self._incomplete
            self._stage.finish(unit, int(attempt), code=3 if bad else 0, complete=not bad)
        return super().look()


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    stage = Stage(tmp_path, max_attempts=1)
    for name in ("_BUSY_SECONDS", "_IDLE_SECONDS"):
        monkeypatch.setattr(loop, name, 0.01)
    monkeypatch.setattr(examined, "ray_of_dashboard", _no_dashboard)
    take(monkeypatch, stage.cluster)
    return stage


def _no_dashboard(_address: str, _seconds: float) -> str:
    raise OSError("no dashboard")


def take(monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster) -> None:
    monkeypatch.setattr(jobs, "RayJobs", lambda _address: cluster)


def fleet(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["fleet", *map(str, arguments)])


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_submit_records_and_watches_to_the_end(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    detached = fleet("submit", stage.file, "--detach", "--json")
    assert detached.exit_code == 0
    assert lines(detached) == [
        {"event": "submitted", "fleet": stage.place.location, "created": False, "units": 3, "added": 0, "again": 0}
    ]
    take(monkeypatch, QuickCluster(stage, incomplete=("b",)))
    first = fleet("submit", stage.file)
    assert first.exit_code == 3
    assert "unit.given_up  b (attempt 1) 1 attempts" in first.stdout
    assert "2 of 3 units complete" in first.stdout
    take(monkeypatch, whole := QuickCluster(stage))
    second = fleet("submit", stage.file, "--json")
    assert second.exit_code == 0
    assert lines(second)[0]["again"] == 1
    assert [order.submission for order in whole.orders] == [stage.id("b", 2)]
    assert lines(second)[-2]["event"] == words.FLEET_ENDED
    assert fleet("watch", stage.place.location).exit_code == 0


def test_one_watcher_is_enough(stage: Stage) -> None:
    with stage.watcher().watching():
        again = fleet("submit", stage.file)
        assert again.exit_code == 0
        assert "a watcher is at work there" in again.stdout
        held = fleet("stop", stage.file, "a")
        assert held.exit_code == 0
        assert Notes(stage.place.folder).held() == {"a"}
        assert isinstance(fleet("watch", stage.file).exception, UserError)


def test_reap_says_what_it_would_do_and_does_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    would = fleet("reap", stage.file, "--dry-run", "--admit")
    assert would.stdout.splitlines() == ["would admit a, attempt 1", "would admit b, attempt 1"]
    assert lines(fleet("reap", stage.file, "--dry-run", "--admit", "--json"))[0] == {
        "event": "would",
        "action": "Admit",
        "unit": "a",
        "attempt": 1,
    }
    assert fleet("reap", stage.file, "--dry-run").stdout == "nothing would be done\n"
    assert fleet("reap", stage.file, "--once", "--admit").exit_code == 0
    assert set(stage.cluster.jobs) == {stage.id("a"), stage.id("b")}
    stage.finish("a")
    assert fleet("reap", stage.file, "--once").exit_code == 0
    assert stage.kinds("a")[-1] == words.UNIT_ENDED
    stage.cluster.down = "no route"
    assert isinstance(fleet("reap", stage.file, "--once").exception, UserError)


class ObedientCluster(FakeCluster):
    """A job ends as soon as it is asked to: its notes are read at every look."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self._stage = stage

    @override
    def submit(self, order: Order) -> None:
        raise UnreachableError("nothing is to be submitted")

    @override
    def look(self) -> Sighting:
        for submission in self.jobs:
            if Notes(self._stage.place.folder).stop_asked(submission):
                self.jobs[submission] = Job(submission, JobState.FAILED)
        return super().look()


def test_stop_waits_until_nothing_is_left_and_submit_goes_on(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    take(monkeypatch, cluster := ObedientCluster(stage))
    for name in ("a", "b"):
        data = {"unit": name, "attempt": 1, "submission": stage.id(name)}
        stage.place.append_event(Event(words.UNIT_ADMITTED, data=data))
        cluster.move(stage.id(name), JobState.RUNNING)
    stopped = fleet("stop", stage.file, "a")
    assert stopped.exit_code == 0
    assert stopped.stdout.splitlines()[-1] == "stopped: a"
    assert stage.kinds("a")[-2:] == [words.UNIT_STOPPING, words.UNIT_GONE]
    assert stage.last(words.UNIT_GONE).data["counts"] is False
    assert stage.kinds("b") == [words.UNIT_ADMITTED]
    assert isinstance(fleet("stop", stage.file, "z").exception, UserError)
    assert fleet("submit", stage.file, "--detach").exit_code == 0
    assert Notes(stage.place.folder).held() == set()


def test_stop_has_a_limit_and_holds_stay(stage: Stage) -> None:
    stage.place.append_event(Event(words.UNIT_ADMITTED, data={"unit": "a", "attempt": 1, "submission": stage.id("a")}))
    stage.cluster.down = "no route to host"
    away = fleet("stop", stage.file, "--wait", "0")
    assert away.exit_code == 3
    assert "the cluster cannot be reached, nothing is decided until it is back: no route" in away.stderr
    assert "not stopped: a; they stay held back" in away.stderr
    assert Notes(stage.place.folder).held() == {"a", "b", "c"}
    stage.cluster.down = ""
    stage.cluster.move(stage.id("a"), JobState.RUNNING)  # it heeds nobody
    late = fleet("stop", stage.file, "a", "--wait", "0.05")
    assert (late.exit_code, stage.kinds("a")[-1]) == (3, words.UNIT_STOPPING)
    stage.cluster.move(stage.id("a"), JobState.STOPPED)
    assert fleet("stop", stage.file, "a").exit_code == 0


def test_a_fleet_that_is_none(tmp_path: Path) -> None:
    assert isinstance(fleet("watch", tmp_path).exception, UserError)


class InterruptedCluster(FakeCluster):
    """A person presses Ctrl-C at the second look."""

    looks = 0

    @override
    def look(self) -> Sighting:
        self.looks += 1
        if self.looks > 1:
            raise KeyboardInterrupt
        return super().look()


def test_an_interrupted_watcher_leaves_its_jobs_running_and_says_so(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(monkeypatch, cluster := InterruptedCluster())
    result = fleet("watch", stage.file)
    assert result.exit_code == 130
    assert "jobs that run go on" in result.stdout
    assert [job.state for job in cluster.jobs.values()] == [JobState.PENDING, JobState.PENDING]
    assert not cluster.stopped
    assert stage.kinds()[-1] == words.WATCHER_STOPPED
    assert not stage.place.watched


def test_ctrl_c_twice_is_no_more_than_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def again(_notifier: notify.Notifier, _seconds: float) -> notify.Told:
        raise KeyboardInterrupt

    take(monkeypatch, cluster := InterruptedCluster())
    monkeypatch.setattr(notify.Notifier, "close", again)
    result = fleet("watch", stage.file)
    assert (result.exit_code, "jobs that run go on" in result.stdout) == (130, True)
    assert not cluster.stopped
    assert not stage.place.watched
