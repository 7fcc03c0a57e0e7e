"""The real libraries: an MLflow server on 127.0.0.1, and W&B, Comet and TensorBoard writing files."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.rows import Event
from proctor.spec import CometTrackerSpec, MlflowTrackerSpec, TensorBoardTrackerSpec, TrackerSpec, WandbTrackerSpec
from proctor.storage.local import LocalFolder
from proctor.trackers import Closed, Trackers, sync
from tests.trackers.helpers import eventually, marked

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
PATIENT = {"close_seconds": 120.0, "patience_seconds": 120.0}


def tell(spec: TrackerSpec, run: Path, events: list[Event], first: int = 0, seconds: float | None = None) -> Closed:
    """A small run, told to one tracker."""
    trackers = Trackers([spec], LocalFolder(run), events.append)
    if first == 0:
        trackers.params({"engine.kind": "scripted", "sampling.max_tokens": 64, "long": "x" * 3000})
    for step in range(first, first + 30, 10):
        trackers.log(step, {"rows.done": step, "ck/errors.infer.empty": 1, "seconds.left": None}, always=True)
    trackers.summary(first + 30, {"ck/accuracy": 0.75, "ck/accuracy.low": 0.5, "verdict": "complete", "exit_code": 0})
    (closed,) = trackers.close(seconds, ok=True)
    return closed


@pytest.fixture(scope="module")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    default = Path(__file__).parents[2] / ".venv-mlflow" / "bin" / "python"
    python = Path(os.environ.get("PROCTOR_MLFLOW_PYTHON", default))
    if not python.exists():
        pytest.skip(f"an MLflow server is not there: no {python} (`make setup-mlflow` makes it)")
    pytest.importorskip("mlflow.version", reason="needs the extra `mlflow`")
    home = tmp_path_factory.mktemp("mlflow")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    store = ["--backend-store-uri", f"sqlite:///{home}/mlflow.db", "--artifacts-destination", str(home / "artifacts")]
    command = [str(python), "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    with (home / "log").open("wb") as log:
        server = subprocess.Popen([*command, *store], stdout=log, stderr=log, cwd=home, start_new_session=True)
        address = f"http://127.0.0.1:{port}"
        try:
            eventually(lambda: server.poll() is not None or answers(f"{address}/health"), 180)
            assert server.poll() is None, (home / "log").read_text()[-2000:]
            yield address
        finally:
            os.killpg(server.pid, 9)
            server.wait()


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as reply:
            return bool(reply.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def ask(address: str, path: str, **body: Any) -> Any:
    request = urllib.request.Request(
        f"{address}/api/2.0/mlflow/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)


def the_run(address: str, experiment: str) -> Any:
    url = f"{address}/api/2.0/mlflow/experiments/get-by-name?experiment_name={experiment}"
    with urllib.request.urlopen(url, timeout=60) as reply:
        number = json.load(reply)["experiment"]["experiment_id"]
    runs = ask(address, "runs/search", experiment_ids=[number])["runs"]
    assert len(runs) == 1
    return runs[0]


def history(address: str, run: Any, metric: str) -> list[tuple[int, float]]:
    url = f"{address}/api/2.0/mlflow/metrics/get-history?run_id={run['info']['run_id']}&metric_key={metric}"
    with urllib.request.urlopen(url, timeout=60) as reply:
        return [(int(x.get("step", 0)), x["value"]) for x in json.load(reply)["metrics"]]


def test_mlflow_gets_everything_and_a_resume_goes_on_in_the_same_run(tmp_path: Path, mlflow_server: str) -> None:
    spec = MlflowTrackerSpec(kind="mlflow", uri=mlflow_server, experiment="night", run_name="ours", **PATIENT)
    events: list[Event] = []
    assert tell(spec, tmp_path / "run", events).complete
    run = the_run(mlflow_server, "night")
    assert (run["info"]["run_name"], run["info"]["status"]) == ("ours", "FINISHED")
    params = {x["key"]: x["value"] for x in run["data"]["params"]}
    assert params["engine.kind"] == "scripted"
    assert params["sampling.max_tokens"] == "64"
    metrics = {x["key"]: x["value"] for x in run["data"]["metrics"]}
    assert (metrics["ck/accuracy"], metrics["ck/accuracy.low"], metrics["exit_code"]) == (0.75, 0.5, 0)
    tags = {x["key"]: x["value"] for x in run["data"]["tags"]}
    assert tags["verdict"] == "complete"
    assert not any(name.startswith(("mlflow.source.git", "mlflow.user")) for name in tags)
    assert tell(spec, tmp_path / "run", events, first=30).complete
    run = the_run(mlflow_server, "night")
    assert history(mlflow_server, run, "rows.done") == [(step, float(step)) for step in range(0, 60, 10)]
    assert events == []


def test_what_mlflow_missed_is_synced_once(tmp_path: Path, mlflow_server: str) -> None:
    """The server is not there during the run."""
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    away = MlflowTrackerSpec(kind="mlflow", uri=f"http://127.0.0.1:{port}", experiment="later")
    run, events = LocalFolder(tmp_path / "run"), list[Event]()
    assert not tell(away, tmp_path / "run", events, seconds=2.0).complete
    assert events[-1].kind == "tracker.incomplete"
    there = MlflowTrackerSpec(kind="mlflow", uri=mlflow_server, experiment="later")
    (state,) = sync([there], run, seconds=200)
    assert state.complete, state
    assert sync([there], run, seconds=200) == [state]
    found = the_run(mlflow_server, "later")
    assert found["info"]["status"] == "FINISHED"
    assert history(mlflow_server, found, "rows.done") == [(0, 0.0), (10, 10.0), (20, 20.0)]


def test_what_arrived_without_being_acknowledged_is_not_there_twice(tmp_path: Path, mlflow_server: str) -> None:
    spec = MlflowTrackerSpec(kind="mlflow", uri=mlflow_server, experiment="twice", **PATIENT)
    assert tell(spec, tmp_path / "run", []).complete
    file = tmp_path / "run" / "trackers" / "mlflow.state.json"
    state = json.loads(file.read_text())
    file.write_text(json.dumps({**state, "arrived": 0}))
    assert sync([spec], LocalFolder(tmp_path / "run"), seconds=200)[0].complete
    assert history(mlflow_server, the_run(mlflow_server, "twice"), "rows.done") == [(0, 0.0), (10, 10.0), (20, 20.0)]


def wandb_records(log: Path) -> list[Any]:
    """W&B's transaction log: after a header of 7 bytes LevelDB's log format (blocks of 32 KB; each piece has a
    checksum, its length, and whether it is the whole, first, middle or last one of its record)."""
    from wandb.proto import wandb_internal_pb2

    data, place, pieces, records = log.read_bytes(), 7, b"", []
    while place + 7 <= len(data):
        if (left := 32768 - place % 32768) < 7:
            place += left
            continue
        length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        pieces += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(pieces)
            records.append(record)
            pieces = b""
    return records


def test_wandb_offline_writes_what_wandb_sync_reads(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="needs the extra `wandb`")
    spec = WandbTrackerSpec(kind="wandb", mode="offline", project="night", run_name="ours", **PATIENT)
    events: list[Event] = []
    assert tell(spec, tmp_path / "run", events).complete
    assert events == []
    (log,) = (tmp_path / "run" / "trackers" / "wandb").rglob("run-*.wandb")
    records = wandb_records(log)
    rows = [
        {(item.key or ".".join(item.nested_key)): json.loads(item.value_json) for item in record.history.item}
        for record in records
        if record.WhichOneof("record_type") == "history"
    ]
    assert [(row["_step"], row["rows.done"]) for row in rows] == [(0, 0), (10, 10), (20, 20)]
    (run,) = [record.run for record in records if record.WhichOneof("record_type") == "run"]
    assert (run.project, run.display_name) == ("night", "ours")
    assert not run.git.remote_url
    names = [path.name for path in log.parent.rglob("*")]
    assert not {"requirements.txt", "wandb-metadata.json", "output.log"} & set(names)


WANDB_DRIVER = """
import sys, time
from pathlib import Path
from proctor.spec import WandbTrackerSpec
from tests.trackers.helpers import opened
trackers = opened(Path(sys.argv[1]), [], WandbTrackerSpec(kind="wandb", mode="offline"))
trackers.log(1, {"rows.done": 1}, always=True)
time.sleep(1000)
"""


def test_the_service_that_wandb_starts_ends_with_a_driver_that_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb", reason="needs the extra `wandb`")
    mark = f"of-{tmp_path}-"
    monkeypatch.setenv("TRACKER_TEST", mark)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    driver = subprocess.Popen([sys.executable, "-c", WANDB_DRIVER, str(tmp_path / "run")])
    try:
        eventually(lambda: len(marked(mark)) == 3, 120)  # the driver, the tracker's process, and W&B's service
    finally:
        driver.kill()
        driver.wait()
    eventually(lambda: not marked(mark))


def test_comet_offline_writes_what_comet_upload_reads(tmp_path: Path) -> None:
    pytest.importorskip("comet_ml._typing", reason="needs the extra `comet`")
    spec = CometTrackerSpec(kind="comet", mode="offline", project="night", **PATIENT)
    events: list[Event] = []
    assert tell(spec, tmp_path / "run", events).complete
    assert events == []
    (archive,) = (tmp_path / "run" / "trackers" / "comet").glob("*.zip")
    with zipfile.ZipFile(archive) as file:
        names = file.namelist()
        messages = [json.loads(line) for line in file.read("messages.json").splitlines()]
    metrics = [m["payload"]["metric"] for m in messages if m["type"] == "metric_msg"]
    done = [(m["step"], m["metricValue"]) for m in metrics if m["metricName"] == "rows.done"]
    assert [(step, float(value)) for step, value in done] == [(0, 0.0), (10, 10.0), (20, 20.0)]
    assert not [name for name in names if "patch" in name or name.endswith(".py")]
    assert not {"git_metadata", "installed_packages", "os_packages"} & {m["type"] for m in messages}


def test_tensorboard_reads_the_event_files(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="needs the extra `tensorboard`")
    from tensorboardX.proto.event_pb2 import Event as Logged
    from tensorboardX.record_writer import masked_crc32c

    events: list[Event] = []
    assert tell(TensorBoardTrackerSpec(kind="tensorboard", **PATIENT), tmp_path / "run", events).complete
    assert events == []
    (file,) = (tmp_path / "run" / "trackers" / "tensorboard").glob("events.out.tfevents.*")
    data, scalars, place = file.read_bytes(), [], 0
    while place < len(data):
        length = int.from_bytes(data[place : place + 8], "little")
        body = data[place + 12 : place + 12 + length]
        assert int.from_bytes(data[place + 12 + length : place + 16 + length], "little") == masked_crc32c(body)
        logged = Logged.FromString(body)
        scalars += [(logged.step, v.tag, v.simple_value) for v in logged.summary.value if v.HasField("simple_value")]
        place += 16 + length
    assert [(step, value) for step, tag, value in scalars if tag == "rows.done"] == [(0, 0.0), (10, 10.0), (20, 20.0)]
    assert (30, "ck/accuracy", 0.75) in scalars


def test_what_mlflow_refuses_costs_nothing_else(tmp_path: Path, mlflow_server: str) -> None:
    spec = MlflowTrackerSpec(kind="mlflow", uri=mlflow_server, experiment="refused", **PATIENT)
    events: list[Event] = []
    trackers = Trackers([spec], LocalFolder(tmp_path / "run"), events.append)
    trackers.params({"seed": 1})
    state = tmp_path / "run" / "trackers" / "mlflow.state.json"
    eventually(lambda: state.exists() and json.loads(state.read_text())["arrived"] == 1, 120)
    trackers.params({"seed": 2})  # MLflow lets nobody change a parameter
    trackers.log(5, {"rows.done": 5, "ü:né/x": 1}, always=True)
    assert trackers.close(ok=False)[0].complete
    assert [event.kind for event in events] == ["tracker.refused"]
    assert "mlflow refused entry 2" in events[0].message
    run = the_run(mlflow_server, "refused")
    assert run["info"]["status"] == "FAILED"
    assert {x["key"]: x["value"] for x in run["data"]["params"]} == {"seed": "1"}
    assert {x["key"] for x in run["data"]["metrics"]} == {"rows.done", "ü_né/x"}


def test_the_time_of_a_point_is_when_it_was_told(tmp_path: Path, mlflow_server: str) -> None:
    spec = MlflowTrackerSpec(kind="mlflow", uri=mlflow_server, experiment="times", **PATIENT)
    before = time.time()
    assert tell(spec, tmp_path / "run", []).complete
    lines = [json.loads(x) for x in (tmp_path / "run" / "trackers" / "mlflow.jsonl").read_text().splitlines()]
    told = {x["step"]: round(x["time"] * 1000) for x in lines if x["kind"] == "metrics"}
    run = the_run(mlflow_server, "times")
    url = f"{mlflow_server}/api/2.0/mlflow/metrics/get-history?run_id={run['info']['run_id']}&metric_key=rows.done"
    with urllib.request.urlopen(url, timeout=60) as reply:
        found = {int(x.get("step", 0)): x["timestamp"] for x in json.load(reply)["metrics"]}
    assert found == told
    assert min(told.values()) >= before * 1000 - 1
