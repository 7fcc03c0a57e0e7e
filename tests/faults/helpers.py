"""What the tests of faults share: specs over MDS data, runs in this process, and the records that came of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
from typer.testing import CliRunner

from proctor.cli.app import app
from proctor.results import RunDir
from proctor.spec import RunSpec, build_spec


def records_of(run: RunDir) -> list[dict[str, Any]]:
    """Every record of a run, in order of its row."""
    with duckdb.connect() as connection:
        relation = run.records(connection).order("checkpoint, row_id")
        return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]


def run_here(spec_file: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """``proctor run`` in this process, on the Ray that is up here: the exit code and the last line.

    A process and a Ray of its own cost ten processor seconds more, and are for what depends on them.
    """
    done = CliRunner().invoke(app, ["run", str(spec_file), "--json", *options], catch_exceptions=False)
    assert done.stdout, done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["event"] == "done", done.stderr
    return done.exit_code, last


def mds_spec(run_dir: Path, data: Path | str, **parts: Any) -> RunSpec:
    """A run over MDS data whose answers repeat their prompts; keyword arguments extend the spec's parts."""
    plain: dict[str, Any] = {
        "run_dir": str(run_dir),
        "source": {
            "kind": "mds",
            "path": str(data),
            "columns": {"images": ["views", "pair"], "sample_id": "key", "prompt": "question"},
        },
        "engine": {"kind": "scripted", "checkpoints": ["ck"], "cpus_per_replica": 0.9, "answer": "{prompt}"},
        "task": {"kind": "exact"},
        "limits": {"load_seconds": 60.0},
        "stream": {"block_rows": 64},
    }
    for name, part in parts.items():
        plain[name] = {**plain.get(name, {}), **part}
    return build_spec(plain)
