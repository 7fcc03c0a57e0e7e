from __future__ import annotations

from pathlib import Path

from tests.cli.test_commands import json_lines, proctor

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
