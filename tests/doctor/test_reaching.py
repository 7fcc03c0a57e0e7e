"""What the doctor reaches for: places, servers, clusters."""

from __future__ import annotations

import socket
import threading
from importlib import metadata
from pathlib import Path

import pytest
from ray._private.authentication import http_token_authentication

from proctor.doctor.clusters import look_at_cluster
from proctor.doctor.findings import Finding
from proctor.doctor.places import look_at_run_dir, look_at_source
from proctor.doctor.services import look_at_metrics, look_at_server, look_at_trackers
from proctor.fleet.examined import check_ray
from proctor.rows import UserError
from proctor.spec import OpenAIEngineSpec
from proctor.spec.fleet import FleetSpec
from tests.doctor.test_looking import levels, only
from tests.doctor.test_versions import spec
from tests.storage.bucket import served
from tests.trackers.hostile import Manner, never_answers, says, server


def no_http(connection: socket.socket, _over: threading.Event) -> None:
    connection.sendall(b"SSH-2.0-OpenSSH_9.9\r\n")


def test_places_on_this_machine(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("")
    (tmp_path / "file").write_text("")

    def at(source: str, run_dir: str) -> dict[str, str]:
        run = spec(run_dir=run_dir, source={"kind": "jsonl", "path": source, "columns": {"prompt": "q"}})
        return levels([*look_at_source(run, 5), *look_at_run_dir(run, 5)])

    assert at(f"{tmp_path}/rows.jsonl", f"{tmp_path}/a/b/c")["source.path"] == "ok"
    assert at(f"{tmp_path}/none.jsonl", f"{tmp_path}/file/run") == {"source.path": "missing", "run_dir": "missing"}
    assert list(tmp_path.glob("a")) == [], "nothing is made"


def test_places_in_buckets(tmp_path: Path) -> None:
    with served(tmp_path / "server") as bucket:
        (bucket.root / "data").mkdir()
        (bucket.root / "data/rows.jsonl").write_text("{}")

        def at(source: str, url: str, endpoint: str = bucket.endpoint, seconds: float = 30) -> list[Finding]:
            run = spec(
                run_dir=url,
                source={"kind": "jsonl", "path": source, "columns": {"prompt": "q"}},
                storage={"endpoint": endpoint, "anonymous": True},
            )
            return [*look_at_source(run, seconds), *look_at_run_dir(run, seconds)]

        there, folder, new = bucket.url("data/rows.jsonl"), bucket.url("data"), bucket.url("new/run")
        assert levels(at(there, new)) == {"source.path": "ok", "run_dir": "ok"}
        assert levels(at(folder, new))["source.path"] == "ok"
        assert levels(at(bucket.url("data/none"), new)) == {"source.path": "missing", "run_dir": "ok"}
        assert levels(at("s3://no-such-bucket/x", "s3://no-such-bucket/run")) == {
            "source.path": "missing", "run_dir": "missing",
        }  # fmt: skip
        assert [method for method, _ in bucket.requests if method not in ("GET", "HEAD")] == []
        with server(never_answers) as silent:
            hanging = at(there, new, silent.address, seconds=0.5)
    assert levels(hanging) == {"source.path": "missing", "run_dir": "missing"}


@pytest.mark.parametrize(
    ("manner", "level"),
    [
        (says("200 OK"), "ok"),
        (says("404 Not Found"), "ok"),
        (says("401 Unauthorized"), "missing"),
        (no_http, "missing"),
        (never_answers, "missing"),
    ],
)
def test_a_server_of_models(manner: Manner, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "hunter2hunter2")
    with server(manner) as there:
        url = f"{there.address}/v1"
        keys = {"kind": "openai", "base_url": url, "checkpoints": ["m"]}
        with_key = OpenAIEngineSpec.model_validate({**keys, "api_key_env": "SOME_KEY"})
        found = only(look_at_server(with_key, 1.0 if manner is never_answers else 30.0))
        unset = OpenAIEngineSpec.model_validate({**keys, "api_key_env": "NO_SUCH_KEY"})
        assert next(iter(look_at_server(unset, 1.0))).what.startswith("NO_SUCH_KEY is not set")
    assert found.level == level
    assert "hunter2" not in str(found)


def test_trackers_and_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = spec(trackers=[{"kind": "jsonl"}, {"kind": "mlflow"}])
    assert levels(look_at_trackers(run)) == {"jsonl": "ok", "mlflow": "missing"}
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert levels(look_at_metrics(port))["port"] == "warning"
    assert levels(look_at_metrics(port))["port"] == "ok"


def dashboard(version: str) -> Manner:
    """A dashboard of Ray that says it is of this version."""
    body = f'{{"version": "4", "ray_version": "{version}"}}'

    def answer(connection: socket.socket, _over: threading.Event) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        connection.sendall(f"{head}{body}".encode())

    return answer


def test_a_dashboard_of_another_version() -> None:
    for manner, level in (
        (dashboard(metadata.version("ray")), "ok"),
        (dashboard("2.0.0"), "missing"),
        (says("200 OK"), "missing"),
        (says("500 No"), "missing"),
        (no_http, "missing"),
        (never_answers, "missing"),
    ):
        with server(manner) as there:
            found = only(look_at_cluster(there.address, None, 1.0 if manner is never_answers else 30.0))
        assert found.level == level, found


def test_a_dashboard_that_asks_for_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    for status in ("401 Unauthorized", "403 Forbidden"):
        with server(says(status)) as there:
            found = only(look_at_cluster(there.address, None, 30.0))
            assert (found.level, found.what) == ("missing", f"{there.address}: the cluster asks for a token")
            assert found.fix.startswith("export RAY_AUTH_MODE=token")
            fleet = FleetSpec.model_validate({"fleet_dir": "/f", "run": {}, "cluster": {"address": there.address}})
            with pytest.raises(UserError, match="asks for a token"):
                check_ray(fleet)
            assert all(b"authorization" not in request.lower() for request in there.asked)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    # What Ray makes of its variables, it keeps for the whole process.
    monkeypatch.setattr(http_token_authentication, "get_auth_headers_if_auth_enabled", _header)
    with server(dashboard(metadata.version("ray"))) as there:
        assert only(look_at_cluster(there.address, None, 30.0)).level == "ok"
        assert b"authorization: bearer secret" in there.asked[0].lower()


def _header(_given: dict[str, str]) -> dict[str, str]:
    return {"authorization": "Bearer secret"}


def test_a_fleet_is_not_begun_on_a_cluster_of_another_ray() -> None:
    def fleet(address: str, **keys: str) -> FleetSpec:
        cluster = {"address": address, **keys}
        return FleetSpec.model_validate({"fleet_dir": "/tmp/fleet", "run": {}, "cluster": cluster})

    with server(dashboard("2.0.0")) as other:
        with pytest.raises(UserError, match=r"has Ray 2\.0\.0, and jobs would be run with Ray"):
            check_ray(fleet(other.address))
        check_ray(fleet(other.address, python="/envs/other/bin/python"))
    with server(dashboard(metadata.version("ray"))) as same:
        check_ray(fleet(same.address))
    check_ray(fleet("http://127.0.0.1:1"))
