"""Where a run writes: whole runs on object storage, two drivers in one place, and storage that fails on the way."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from proctor.results import RunDir
from proctor.results.parts import parts_of, read_ids
from proctor.results.settle import done_ids
from proctor.storage.holder import Holder
from proctor.storage.lease import NAME, read_lease
from tests.faults.helpers import run_here
from tests.runner.helpers import write_rows
from tests.storage.bucket import Bucket, served

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.usefixtures("local_ray")]
ROWS = 400


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    with served(tmp_path / "server") as bucket:
        yield bucket


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path, request.getfixturevalue("bucket") if request.param == "s3" else None)


@pytest.fixture
def on_s3(tmp_path: Path, bucket: Bucket) -> Place:
    return Place(tmp_path, bucket)


class Place:
    """A spec whose run directory lies on a local disk or in a bucket."""

    def __init__(self, folder: Path, bucket: Bucket | None) -> None:
        self.bucket = bucket
        self.file = folder / "spec.yaml"
        self.location = str(folder / "run") if bucket is None else bucket.url("runs/first")
        write_rows(folder / "rows.jsonl", ROWS)
        self.spec: dict[str, Any] = {
            "run_dir": self.location,
            "source": {"kind": "jsonl", "path": "rows.jsonl", "columns": {"prompt": "question", "target": "target"}},
            "engine": {"kind": "scripted", "checkpoints": ["ck"]},
            "task": {"kind": "exact"},
            "limits": {"stall_seconds": 10.0, "load_seconds": 120.0},
            "stream": {"block_rows": 16},
            "storage": {} if bucket is None else bucket.block,
        }

    @property
    def run(self) -> RunDir:
        return RunDir(self.location) if self.bucket is None else RunDir(self.location, self.bucket.options)

    def start(self, *options: str) -> subprocess.Popen[str]:
        self._write()
        command = [sys.executable, "-m", "proctor", "run", str(self.file), "--json", *options]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self, *options: str) -> tuple[int, dict[str, Any]]:
        """Runs to the end in this process; the exit code and the last line."""
        self._write()
        return run_here(self.file, *options)

    def _write(self) -> None:
        self.file.write_text(yaml.safe_dump(self.spec))

    def wait_for_rows(self, rows: int, process: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + 300
        while len(done_ids(self.run.results, "ck")) < rows:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "the run did not get going"
            time.sleep(0.2)

    def assert_complete_and_unique(self) -> None:
        results = self.run.results
        ids = [i for part in parts_of(results) for i in read_ids(results.open(part)).tolist()]
        assert sorted(ids) == list(range(ROWS))


def done(process: subprocess.Popen[str]) -> tuple[int, dict[str, Any]]:
    out, error = process.communicate(timeout=500)
    assert out, error
    last = json.loads(out.splitlines()[-1])
    assert last["event"] == "done", error
    return process.returncode, last


def proctor(*arguments: str, bucket: Bucket) -> list[dict[str, Any]]:
    """A command about a run directory; where its server is, comes from the environment."""
    env = {"AWS_ENDPOINT_URL": bucket.endpoint, "AWS_SKIP_SIGNATURE": "true", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-m", "proctor", *arguments, "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_a_run_lies_whole_in_a_bucket(on_s3: Place, bucket: Bucket) -> None:
    on_s3.spec["limits"]["stall_seconds"] = 3.0
    on_s3.spec["engine"]["faults"] = [
        {"kind": "crash", "rows": [37], "times": 1},
        {"kind": "stall", "rows": [222], "times": 1},
        {"kind": "crash", "rows": [301]},
    ]
    code, last = done(on_s3.start())
    (ledger,) = last["reconciliation"]["checkpoints"]
    assert (code, ledger["answered"], ledger["errors"]) == (0, ROWS - 1, {"infer.crashed": 1})
    assert (last["run_dir"], last["report"]) == (on_s3.location, f"{on_s3.location}/report.html")
    on_s3.assert_complete_and_unique()

    names = {"spec.yaml", "source.json", "versions.json", "status.json", "reconciliation.json", "metrics.json"}
    assert names | {"report.html", "results/", "events/", "stalls/", "lease.json"} == set(on_s3.run.folder.names())
    kinds = [event.kind for event in on_s3.run.events()]
    assert {"sweep.started", "engine.crashed", "engine.stalled", "sweep.ended", "engine.closed"} <= set(kinds)
    assert any(name.endswith(".log") for name in on_s3.run.folder.names("stalls"))

    where = on_s3.location
    (status,) = proctor("status", where, bucket=bucket)
    assert (status["state"], status["done"], status["errors"]) == ("complete", {"ck": ROWS}, {"ck": 1})
    assert [row["row_id"] for row in proctor("errors", where, bucket=bucket)] == [301]
    (exported,) = proctor("export", where, "--format", "csv", bucket=bucket)
    assert (exported["records"], exported["path"]) == (ROWS, f"{where}/records.csv")
    (report,) = proctor("report", where, bucket=bucket)
    assert report["path"] == f"{where}/report.html"
    assert b"infer.crashed" in on_s3.run.folder.read("report.html")

    again, said = on_s3.finish()
    assert (again, said["progress"]["ck"]["before"]) == (0, ROWS)
    fresh, _ = on_s3.finish("--fresh")
    assert fresh == 0
    on_s3.assert_complete_and_unique()
    (earlier,) = on_s3.run.folder.names("earlier")
    old = done_ids(on_s3.run.folder.below(f"earlier/{earlier.rstrip('/')}/results"), "ck")
    assert list(old) == list(range(ROWS))


def test_one_driver_at_a_time_and_a_killed_one_is_resumed_at_once(place: Place) -> None:
    place.spec["engine"]["row_ms"] = 25.0
    first = place.start()
    try:
        place.wait_for_rows(64, first)
        second = place.start()
        out, error = second.communicate(timeout=120)
        assert (second.returncode, out) == (1, "")
        assert len(error.splitlines()) == 1
        assert f"{place.location}: another driver is running here (pid {first.pid} on " in error
        assert "last heartbeat" in error
        assert first.poll() is None
    finally:
        first.kill()
        first.communicate()
    before = len(done_ids(place.run.results, "ck"))
    assert 64 <= before < ROWS
    code, last = place.finish()
    assert code == 0
    place.assert_complete_and_unique()
    assert last["reconciliation"]["checkpoints"][0]["answered"] == ROWS
    assert last["progress"]["ck"]["before"] >= before


def test_storage_that_refuses_many_writes_costs_nothing(on_s3: Place, bucket: Bucket) -> None:
    bucket.refuse["PUT"] = 0.3
    code, last = on_s3.finish()
    assert (code, last["reasons"]) == (0, {})
    on_s3.assert_complete_and_unique()
    assert sum(method == "PUT" for method, _ in bucket.requests) > len(bucket.keys()) * 1.2


def test_storage_that_takes_no_more_ends_the_run_with_the_reason(on_s3: Place, bucket: Bucket) -> None:
    on_s3.spec["engine"]["row_ms"] = 20.0
    on_s3.spec["storage"] |= {"attempts": 3}
    process = on_s3.start()
    on_s3.wait_for_rows(64, process)
    bucket.refuse["PUT"] = 1.0
    kept = done_ids(on_s3.run.results, "ck")
    code, last = done(process)
    assert code == 3
    assert "503 Service Unavailable" in " ".join(last["reasons"].values())
    assert last["report"] is None
    assert kept <= done_ids(on_s3.run.results, "ck")

    bucket.refuse.clear()
    code, last = on_s3.finish()
    assert (code, last["reasons"]) == (0, {})
    on_s3.assert_complete_and_unique()


def test_a_driver_whose_lease_was_taken_writes_nothing_more(place: Place) -> None:
    place.spec["engine"]["row_ms"] = 200.0
    process = place.start()
    place.wait_for_rows(16, process)
    other = msgspec.structs.replace(Holder.me(30.0), host="elsewhere", boot="other")
    place.run.folder.write(NAME, msgspec.json.encode(other))
    code, last = done(process)
    assert (code, last["report"]) == (3, None)
    assert "is lost: another driver has taken it (pid" in " ".join(last["reasons"].values())
    left = read_lease(place.run.folder)
    assert left is not None
    assert left.nonce == other.nonce
    assert not place.run.folder.exists("reconciliation.json")
    assert parts_of(place.run.results) == parts_of(place.run.results, tombstones=False)
