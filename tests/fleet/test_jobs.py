"""Ray's job client against a server of the tests; and what a unit's own process says at its end."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from proctor.fleet import jobs
from proctor.fleet.folder import FleetDir
from proctor.fleet.jobs import Order, RayJobs, RefusedError, TwiceError, UnreachableError
from proctor.fleet.notes import Notes
from proctor.fleet.observe import submission_of
from proctor.fleet.unit import run_unit
from proctor.fleet.view import JobState, LastWords
from proctor.rows import UserError
from proctor.runner.outcome import RunOutcome
from proctor.spec import RunSpec
from tests.fleet.staged import Stage

TWICE = "Traceback (most recent call last):\nRuntimeError: Job with submission_id x already exists. Use another."
REFUSED = "Traceback (most recent call last):\nValueError: Use the 'num_cpus' and 'num_gpus' keyword"


class Server(BaseHTTPRequestHandler):
    answers: ClassVar[dict[str, tuple[int, Any]]] = {}
    taken: ClassVar[list[dict[str, Any]]] = []
    hang: ClassVar[threading.Event] = threading.Event()

    def do_GET(self) -> None:
        self.answer("GET")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.taken.append(json.loads(body or b"{}"))
        self.answer("POST")

    def answer(self, method: str) -> None:
        status, content = self.answers[f"{method} {self.path.partition('?')[0]}"]
        if status == 0:
            self.hang.wait(60)
            return
        data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_arguments: Any) -> None:
        pass


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[RayJobs]:
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:9")  # where this person's other cluster is
    details = {"type": "SUBMISSION", "entrypoint": "x", "submission_id": "s", "status": "FAILED", "start_time": 1}
    nodes = [
        {"state": "ALIVE", "resources_total": {"GPU": 8.0, "CPU": 4.0}},
        {"state": "ALIVE", "resources_total": {"CPU": 2.0}},
        {"state": "DEAD", "resources_total": {"GPU": 8.0, "CPU": 4.0}},
    ]
    report = {"loadMetricsReport": {"usage": {"GPU": [6.0, 8.0]}}}
    Server.taken.clear()
    Server.hang.clear()
    Server.answers.clear()
    Server.answers |= {
        "GET /api/jobs/": (
            200,
            [
                {**details, "error_type": "JOB_SUPERVISOR_ACTOR_START_TIMEOUT", "message": "never\nstarted"},
                {**details, "submission_id": "t", "status": "RUNNING"},
                {**details, "type": "DRIVER", "submission_id": None, "status": "RUNNING"},
            ],
        ),
        "GET /api/v0/nodes": (200, {"data": {"result": {"result": nodes}}}),
        "GET /api/cluster_status": (200, {"data": {"clusterStatus": report}}),
        "GET /api/version": (200, {"version": "4", "ray_version": "2.60.0", "ray_commit": "c"}),
        "POST /api/jobs/": (200, {"job_id": "s", "submission_id": "s"}),
        "POST /api/jobs/s/stop": (200, {"stopped": True}),
        "POST /api/jobs/gone/stop": (404, "no such job"),
    }
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield RayJobs(f"http://127.0.0.1:{server.server_port}/")
    Server.hang.set()
    server.shutdown()
    server.server_close()
    thread.join()


def test_what_the_cluster_tells(cluster: RayJobs) -> None:
    seen = cluster.look()
    assert (seen.gpus, seen.used, seen.cpus) == (8.0, 6.0, 6.0)
    assert {name: (job.state, job.interrupted) for name, job in seen.jobs.items()} == {
        "s": (JobState.FAILED, True),
        "t": (JobState.RUNNING, False),
    }
    assert seen.jobs["s"].message == "never started"
    cluster.submit(Order("s", "true", {"seat": 2.0}))
    assert Server.taken[-1]["entrypoint_resources"] == {"seat": 2.0}
    assert "entrypoint_num_gpus" not in Server.taken[-1]
    cluster.stop("s")
    cluster.stop("gone")


@pytest.mark.parametrize(
    ("path", "answer", "error"),
    [
        ("POST /api/jobs/", (500, TWICE), TwiceError),
        ("POST /api/jobs/", (500, REFUSED), RefusedError),
        ("POST /api/jobs/", (400, "no entrypoint"), RefusedError),
        ("POST /api/jobs/", (500, "Server got itself in trouble"), UnreachableError),
        ("POST /api/jobs/", (503, "Traceback of a gateway"), UnreachableError),
        ("POST /api/jobs/", (0, ""), UnreachableError),
        ("GET /api/jobs/", (200, "<html>"), UnreachableError),
        ("GET /api/jobs/", (200, [{"status": "NOVEL"}]), UnreachableError),
        ("GET /api/v0/nodes", (500, "down"), UnreachableError),
        ("GET /api/v0/nodes", (200, {"data": {"result": {"result": []}}}), UnreachableError),
        (
            "GET /api/v0/nodes",
            (200, {"data": {"result": {"result": [{"state": "ALIVE", "resources_total": None}]}}}),
            UnreachableError,
        ),
        ("GET /api/v0/nodes", (200, "<html><body>Sign in</body></html>"), UnreachableError),
        ("GET /api/cluster_status", (0, ""), UnreachableError),
        ("GET /api/cluster_status", (200, []), UnreachableError),
        ("GET /api/cluster_status", (200, {"data": {"clusterStatus": {"loadMetricsReport": None}}}), UnreachableError),
        (
            "GET /api/cluster_status",
            (200, {"data": {"clusterStatus": {"loadMetricsReport": {"usage": {"GPU": []}}}}}),
            UnreachableError,
        ),
    ],
)
def test_every_bad_answer_has_one_meaning(
    cluster: RayJobs, path: str, answer: tuple[int, Any], error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_READ_SECONDS", 0.5)
    Server.answers[path] = answer
    order = Order("s", "true")
    ask = partial(cluster.submit, order) if path.startswith("POST") else cluster.look
    with pytest.raises(error):
        ask()


def test_nobody_at_the_address() -> None:
    with pytest.raises(
        UnreachableError, match=r"^http://127\.0\.0\.1:9: ConnectionRefusedError: \[Errno 111\] Conn.*refused$"
    ):
        RayJobs("http://127.0.0.1:9").look()


def test_a_cluster_that_asks_for_a_token_says_how_it_is_given(cluster: RayJobs) -> None:
    Server.answers["GET /api/jobs/"] = (401, "Unauthorized: Missing authentication token")
    with pytest.raises(
        UnreachableError, match=r"Missing authentication token \(export RAY_AUTH_MODE=token, .*token\)$"
    ):
        cluster.look()


def left(place: FleetDir, unit: str = "a") -> LastWords | None:
    return Notes(place.folder).left(submission_of(place.fleet(), unit, 1))


def test_a_unit_that_was_withdrawn_does_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path)

    def run(_spec: RunSpec) -> RunOutcome:
        raise AssertionError("it ran")

    Notes(stage.place.folder).ask_to_stop(stage.id("a"), "pending for too long")
    assert run_unit(stage.place, "a", 1, run) is None
    assert left(stage.place) == LastWords(130, "asked to stop before it began")


def test_a_unit_says_with_what_it_ended(tmp_path: Path) -> None:
    stage = Stage(tmp_path)

    def refused(spec: RunSpec) -> RunOutcome:
        assert spec.ray.address == "auto"
        assert spec.run_dir.endswith("/cells/a")
        raise UserError("no such file", where="source.path")

    with pytest.raises(UserError, match="no such file"):
        run_unit(stage.place, "a", 1, refused)
    assert left(stage.place) == LastWords(1, "source.path: no such file")

    def broken(_spec: RunSpec) -> RunOutcome:
        raise RuntimeError("a fault of our own")

    with pytest.raises(RuntimeError):
        run_unit(stage.place, "b", 1, broken)
    words = left(stage.place, "b")
    assert words is not None
    assert (words.exit_code, "Proctor's own" in words.message) == (1, True)
    with pytest.raises(UserError, match="no unit 'z'"):
        run_unit(stage.place, "z", 1, broken)


def test_a_unit_that_is_asked_to_stop_ends_in_good_order(tmp_path: Path) -> None:
    stage = Stage(tmp_path)

    def run(_spec: RunSpec) -> RunOutcome:
        Notes(stage.place.folder).ask_to_stop(stage.id("a"), "no progress")
        threading.Event().wait(60)
        raise AssertionError("nobody asked")

    with pytest.raises(KeyboardInterrupt):
        run_unit(stage.place, "a", 1, run)
    words = left(stage.place)
    assert words is not None
    assert words.exit_code == 130
