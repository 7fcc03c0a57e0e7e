from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_commands import json_lines, proctor
from tests.fleet.making import write_fleet

SPEC = """
run_dir: run
source: {kind: jsonl, path: rows.jsonl, columns: {prompt: q}}
engine: {kind: scripted, checkpoints: [one]}
task: {kind: exact}
"""


def test_the_doctor_says_what_is_missing_by_lines_and_by_exit_code(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(SPEC)
    command = ["doctor", tmp_path / "spec.yaml", "--seconds", "50"]
    ill = proctor(*command)
    assert ill.returncode == 1, ill.stderr
    assert f"nothing at {tmp_path}/rows.jsonl" in ill.stdout
    assert "mend: see source.path in the spec" in ill.stdout
    assert "1 thing missing" in ill.stdout
    (tmp_path / "rows.jsonl").write_text('{"q": "?"}\n')
    well = proctor(*command, "--json")
    lines = json_lines(well)
    assert (well.returncode, lines[-1]["missing"]) == (0, 0), well.stdout
    assert {"topic": "storage", "name": "source.path", "level": "ok"}.items() <= next(
        line for line in lines if line.get("name") == "source.path"
    ).items()
    assert not (tmp_path / "run").exists()


def test_the_doctor_looks_at_what_a_fleet_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_HOOK", raising=False)
    (tmp_path / "rows.jsonl").write_text('{"target": "x"}\n')
    cluster, notify = {"address": "http://127.0.0.1:1"}, {"webhook_env": "NO_SUCH_HOOK"}
    fleet = write_fleet(tmp_path, matrix={"checkpoints": ["a", "b"]}, cluster=cluster, notify=notify)
    done = proctor("doctor", fleet, "--json", "--seconds", "50")
    assert done.returncode == 1, done.stderr
    found = {line["name"]: line for line in json_lines(done) if line["event"] == "finding"}
    assert found["checkpoints"]["what"] == "2 listed"
    assert (found["webhook"]["level"], found["webhook"]["fix"]) == ("missing", "export NO_SUCH_HOOK=https://...")
    assert found["cluster"]["what"].startswith("no dashboard of Ray at http://127.0.0.1:1")
    assert (found["source.path"]["level"], found["run_dir"]["level"]) == ("ok", "ok")
