"""A tracker's real process, with a library that hangs, holds the GIL, dies or will not exit."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from proctor.rows import Event
from proctor.spec import TensorBoardTrackerSpec
from proctor.storage.local import LocalFolder
from proctor.trackers import sync
from tests.trackers.helpers import alive, eventually, got, marked, opened, plant_library, scalars, written

pytestmark = pytest.mark.slow
SECRET = "planted-secret-value"


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    plant_library(tmp_path / "library")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "library"))
    monkeypatch.syspath_prepend(str(tmp_path / "library"))
    monkeypatch.setenv("PLANTED_API_KEY", SECRET)
    return monkeypatch


def test_all_entries_arrive_in_order(tmp_path: Path, library: pytest.MonkeyPatch) -> None:
    events: list[Event] = []
    trackers = opened(tmp_path / "run", events)
    trackers.params({"engine.kind": "scripted"})
    for step in range(120):
        trackers.log(step, {"rows.done": step}, always=True)
    trackers.summary(120, {"accuracy": 0.5, "verdict": "complete"})
    (closed,) = trackers.close(30, ok=True)
    assert closed.complete
    assert (closed.written, closed.arrived, closed.lost) == (122, 122, 0)
    assert scalars(tmp_path / "run", "rows.done") == [(float(step), step) for step in range(120)]
    assert scalars(tmp_path / "run", "accuracy") == [(0.5, 120)]
    assert ["text", "verdict", "complete", 120] in got(tmp_path / "run")
    assert events == []


@pytest.mark.parametrize("manner", ["sleep", "hold the GIL", "raise", "die"])
@pytest.mark.parametrize("where", ["open", "send", "close"])
def test_whatever_the_library_does_the_close_returns_and_all_is_on_disk(
    tmp_path: Path, library: pytest.MonkeyPatch, manner: str, where: str
) -> None:
    library.setenv("BEHAVIOUR", f"{manner} in {where}")
    events: list[Event] = []
    run = tmp_path / "run"
    trackers = opened(run, events)
    for step in range(5):
        trackers.log(step, {"rows.done": step}, always=True)
    trackers.summary(5, {"accuracy": 0.5})
    if where == "close":
        eventually(lambda: len(scalars(run, "accuracy")) == 1)
    began = time.monotonic()
    (closed,) = trackers.close(3)
    assert time.monotonic() - began < 30
    assert [entry["n"] for entry in written(run)] == [1, 2, 3, 4, 5, 6]
    assert closed.written == 6
    assert closed.complete == (where == "close")  # event files are where they belong once they are written
    if where != "close":
        assert [event.kind for event in events][-1] == "tracker.incomplete"
        assert "`proctor tracker sync` sends the other 6" in events[-1].message
    assert not any(SECRET in event.message for event in events)
    everything = b"".join(path.read_bytes() for path in run.rglob("*") if path.is_file())
    assert SECRET.encode() not in everything


def test_what_did_not_arrive_is_sent_later_and_once(tmp_path: Path, library: pytest.MonkeyPatch) -> None:
    library.setenv("BEHAVIOUR", "sleep in open")
    run, spec = tmp_path / "run", TensorBoardTrackerSpec(kind="tensorboard")
    trackers = opened(run, [], spec)
    trackers.log(7, {"rows.done": 7}, always=True)
    trackers.summary(8, {"accuracy": 0.5, "exit_code": 0})
    assert not trackers.close(0.5)[0].complete
    library.setenv("BEHAVIOUR", "")
    (state,) = sync([spec], LocalFolder(run), seconds=60)
    assert state.complete
    assert scalars(run, "rows.done") == [(7.0, 7)]
    before = got(run)
    assert sync([spec], LocalFolder(run), seconds=60) == [state]
    assert got(run) == before


def test_a_sync_that_fails_says_why_and_returns(tmp_path: Path, library: pytest.MonkeyPatch) -> None:
    library.setenv("BEHAVIOUR", "raise in send")
    run, spec = tmp_path / "run", TensorBoardTrackerSpec(kind="tensorboard")
    trackers = opened(run, [], spec)
    trackers.log(1, {"rows.done": 1}, always=True)
    trackers.close(0)
    (state,) = sync([spec], LocalFolder(run), seconds=60)
    assert not state.complete
    assert "ConnectionError: no route" in state.trouble
    assert SECRET not in state.trouble


@pytest.mark.parametrize("behaviour", ["start a service", "never exit"])
def test_nothing_is_left_running(tmp_path: Path, library: pytest.MonkeyPatch, behaviour: str) -> None:
    library.setenv("BEHAVIOUR", behaviour)
    run = tmp_path / "run"
    trackers = opened(run, [])
    trackers.log(1, {"rows.done": 1}, always=True)
    assert trackers.close(30)[0].complete
    if behaviour == "start a service":
        service = int((run / "trackers" / "tensorboard" / "service").read_text())
        eventually(lambda: not alive(service))


def test_a_resumed_run_goes_on_where_the_first_one_stopped(tmp_path: Path, library: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    for step in (10, 20):
        trackers = opened(run, [])
        trackers.log(step, {"rows.done": step}, always=True)
        assert trackers.close(30)[0].complete
    assert scalars(run, "rows.done") == [(10.0, 10), (20.0, 20)]
    assert [entry["n"] for entry in written(run)] == [1, 2]


DRIVER = """
import sys, time
from pathlib import Path
from tests.trackers.helpers import opened
trackers = opened(Path(sys.argv[1]), [])
trackers.log(1, {"rows.done": 1}, always=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("behaviour", ["", "hold the GIL in open", "sleep in send", "never exit"])
def test_the_process_ends_with_a_driver_that_is_killed(
    tmp_path: Path, library: pytest.MonkeyPatch, behaviour: str
) -> None:
    mark = f"of-{tmp_path}-"
    library.setenv("BEHAVIOUR", behaviour)
    library.setenv("TRACKER_TEST", mark)
    library.setenv("PYTHONPATH", f"{tmp_path / 'library'}:{Path(__file__).parents[2]}")
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path / "run")])
    try:
        eventually(lambda: len(marked(mark)) == 2 and (tmp_path / "run" / "trackers" / "tensorboard").exists())
    finally:
        driver.kill()
        driver.wait()
    eventually(lambda: not marked(mark))
