"""What the tests of faults share: specs over MDS data, and the records that came of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from proctor.results import RunDir
from proctor.spec import RunSpec, build_spec


def records_of(run: RunDir) -> list[dict[str, Any]]:
    """Every record of a run, in order of its row."""
    with duckdb.connect() as connection:
        relation = run.records(connection).order("checkpoint, row_id")
        return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]


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
