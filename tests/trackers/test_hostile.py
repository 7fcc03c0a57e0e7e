"""The real libraries against servers that hang, throttle, fail, break off or drip: the close returns in time, and
everything is on disk."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from proctor.rows import Event
from proctor.spec import CometTrackerSpec, MlflowTrackerSpec, TrackerSpec, WandbTrackerSpec, tracker_name
from proctor.storage.local import LocalFolder
from proctor.trackers import Trackers
from tests.trackers.helpers import eventually, written
from tests.trackers.hostile import MANNERS, server

pytestmark = pytest.mark.slow
KEY = "0123456789abcdef0123456789abcdef01234567"
CLOSE_SECONDS = 3.0
SLACK = 30.0
"""A loaded machine may need a while to end processes."""


def mlflow(address: str, _patch: pytest.MonkeyPatch) -> TrackerSpec:
    return MlflowTrackerSpec(kind="mlflow", uri=address, close_seconds=CLOSE_SECONDS)


def wandb(address: str, patch: pytest.MonkeyPatch) -> TrackerSpec:
    patch.setenv("WANDB_BASE_URL", address)
    patch.setenv("WANDB_API_KEY", KEY)
    return WandbTrackerSpec(kind="wandb", close_seconds=CLOSE_SECONDS)


def comet(address: str, patch: pytest.MonkeyPatch) -> TrackerSpec:
    patch.setenv("COMET_URL_OVERRIDE", f"{address}/clientlib/")
    patch.setenv("COMET_API_KEY", KEY)
    return CometTrackerSpec(kind="comet", close_seconds=CLOSE_SECONDS)


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("make", [mlflow, wandb, comet])
def test_the_close_returns_in_time_with_everything_on_disk(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    manner: str,
    make: Callable[[str, pytest.MonkeyPatch], TrackerSpec],
) -> None:
    pytest.importorskip({"mlflow": "mlflow.version", "wandb": "wandb", "comet": "comet_ml._typing"}[make.__name__])
    run, events = tmp_path / "run", list[Event]()
    with server(MANNERS[manner]) as hostile:
        spec = make(hostile.address, monkeypatch)
        trackers = Trackers([spec], LocalFolder(run), events.append)
        trackers.params({"engine.kind": "scripted"})
        for step in range(20):
            trackers.log(step, {"rows.done": step}, always=True)
        trackers.summary(20, {"accuracy": 0.5})
        eventually(lambda: len(hostile.asked) > 0, 90)
        time.sleep(0.5)
        began = time.monotonic()
        (closed,) = trackers.close(ok=True)
        took = time.monotonic() - began
    assert took < CLOSE_SECONDS + SLACK
    assert not closed.complete
    lines = written(run, tracker_name(spec))
    assert [line["kind"] for line in lines] == ["params", *["metrics"] * 20, "summary"]
    assert [line["step"] for line in lines] == [0, *range(20), 20]
    assert [event.kind for event in events][-1] == "tracker.incomplete"
    assert not any(KEY in event.message for event in events)
    assert KEY.encode() not in b"".join(path.read_bytes() for path in run.rglob("*") if path.is_file())
