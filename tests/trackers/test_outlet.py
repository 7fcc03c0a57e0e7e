"""The queue and the thread in front of a tracker, without any library."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from proctor.rows import Event, UserError
from proctor.spec import JsonlTrackerSpec, MlflowTrackerSpec, WandbTrackerSpec, build_spec, differences
from proctor.spec.load import anchored
from proctor.storage.folder import open_folder
from proctor.storage.local import LocalFolder
from proctor.trackers import Trackers, check_trackers, sync
from proctor.trackers.book import Book
from proctor.trackers.outlet import Outlet
from proctor.trackers.redaction import redacted
from tests.trackers.helpers import eventually, written

JSONL = JsonlTrackerSpec(kind="jsonl", every_seconds=1000)


def test_json_lines_are_all_there_is_to_the_plain_tracker(tmp_path: Path) -> None:
    events: list[Event] = []
    trackers = Trackers([JSONL], LocalFolder(tmp_path), events.append)
    trackers.params({"a": 1})
    trackers.log(3, {"rows.done": 3})
    trackers.log(4, {"rows.done": 4})  # too soon after the one before
    trackers.log(5, {"rows.done": 5}, always=True)
    trackers.summary(5, {"verdict": "complete"})
    (closed,) = trackers.close(30)
    assert closed.complete
    assert [(x["kind"], x["step"]) for x in written(tmp_path, "jsonl")] == [
        ("params", 0),
        ("metrics", 3),
        ("metrics", 5),
        ("summary", 5),
    ]
    assert events == []
    assert sync([JSONL], LocalFolder(tmp_path)) == [closed]


def test_entries_are_on_disk_before_anybody_closes(tmp_path: Path) -> None:
    trackers = Trackers([JSONL], LocalFolder(tmp_path), lambda _: None)
    trackers.log(3, {"rows.done": 3})
    eventually(lambda: (tmp_path / "trackers" / "jsonl.jsonl").exists() and len(written(tmp_path, "jsonl")) == 1)
    trackers.close(30)


def test_a_disk_that_hangs_holds_nobody_up_and_what_it_costs_is_counted(tmp_path: Path) -> None:
    disk = threading.Event()

    def hang() -> Book:
        disk.wait()
        return Book(LocalFolder(tmp_path), "t")

    outlet = Outlet("t", hang, None, lambda _: None)
    for step in range(1200):
        outlet.put("metrics", step, {"rows.done": step})
    outlet.begin_close(0.1, ok=True)
    state = outlet.end_close()
    disk.set()
    assert not state.complete
    assert state.lost == 1200  # 1,000 wait in the queue, and 200 had no room


def test_a_disk_that_fails_is_an_event(tmp_path: Path) -> None:
    (tmp_path / "trackers").write_text("a file where the folder should be")
    events: list[Event] = []
    trackers = Trackers([JSONL], LocalFolder(tmp_path), events.append)
    trackers.log(1, {"a": 1})
    (closed,) = trackers.close(30)
    assert not closed.complete
    assert [event.kind for event in events] == ["tracker.failed", "tracker.incomplete"]


def test_nothing_is_written_or_told_in_a_directory_that_is_lost(tmp_path: Path) -> None:
    held = True
    events: list[Event] = []
    trackers = Trackers([JSONL], LocalFolder(tmp_path), events.append, lambda: held)
    trackers.log(1, {"a": 1})
    eventually(lambda: (tmp_path / "trackers" / "jsonl.jsonl").exists())
    held = False
    trackers.log(2, {"a": 2}, always=True)
    trackers.close(30)
    assert [entry["step"] for entry in written(tmp_path, "jsonl")] == [1]
    assert events == []


def test_what_cannot_be_opened_is_refused_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr("proctor.trackers.trackers.find_spec", lambda name: None if name == "wandb" else object())
    folder = LocalFolder(tmp_path)
    with pytest.raises(UserError, match=r"wandb is not installed.*trackers\.0|trackers\.0.*wandb is not installed"):
        check_trackers([WandbTrackerSpec(kind="wandb")], folder)
    with pytest.raises(UserError, match="no server to send to"):
        check_trackers([JSONL, MlflowTrackerSpec(kind="mlflow")], folder)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    check_trackers([JSONL, MlflowTrackerSpec(kind="mlflow")], folder)


def test_files_of_a_library_need_a_local_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.trackers.trackers.find_spec", lambda _name: object())
    bucket = open_folder("s3://bucket/run")
    with pytest.raises(UserError, match="no local one"):
        check_trackers([WandbTrackerSpec(kind="wandb", mode="offline")], bucket)
    check_trackers([WandbTrackerSpec(kind="wandb", mode="offline", dir="/somewhere")], bucket)


def test_an_unknown_tracker_cannot_be_synced(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the run has: jsonl"):
        sync([JSONL], LocalFolder(tmp_path), only="mlflow")


def plain(**parts: Any) -> dict[str, Any]:
    return {
        "run_dir": "run",
        "source": {"kind": "jsonl", "path": "rows.jsonl"},
        "engine": {"kind": "scripted", "checkpoints": ["ck"]},
        "task": {"kind": "exact"},
        **parts,
    }


@pytest.mark.parametrize(
    ("trackers", "message"),
    [
        ([{"kind": "jsonl"}, {"kind": "jsonl"}], "two trackers are named 'jsonl'"),
        ([{"kind": "mlflow", "uri": "http://me:pass@host"}], "credentials"),
        ([{"kind": "jsonl", "name": "../up"}], "name"),
        ([{"kind": "wandb", "api_key": "x"}], "api_key"),
    ],
)
def test_a_wrong_tracker_is_refused(trackers: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build_spec(plain(trackers=trackers))


def test_trackers_may_change_between_a_run_and_its_resume() -> None:
    assert differences(build_spec(plain()), build_spec(plain(trackers=[{"kind": "jsonl"}]))) == []


def test_a_relative_directory_starts_at_the_spec(tmp_path: Path) -> None:
    spec = anchored(build_spec(plain(trackers=[{"kind": "comet", "dir": "files"}])), tmp_path)
    assert spec.trackers[0].dir == str(tmp_path / "files")  # type: ignore[union-attr]


def test_secrets_are_taken_out_of_what_a_library_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMET_API_KEY", "abcdef123456")
    text = "401 for abcdef123456\nat http://me:pw@host/?api_key=zzz with Authorization: Bearer qqqq"
    said = redacted(text)
    assert not any(secret in said for secret in ("abcdef123456", "me:pw", "zzz", "qqqq"))
    assert said.startswith("401 for *** at http://***@host/?api_key=***")
    assert "\n" not in said
