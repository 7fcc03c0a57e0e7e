from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proctor.spec import RunSpec, build_spec
from tests.runner.helpers import MakeSpec, write_rows


@pytest.fixture
def make_spec(tmp_path: Path) -> MakeSpec:
    """Makes a spec of a small run with the scripted engine; keyword arguments replace or extend its parts."""

    def make(rows: int = 40, **parts: dict[str, Any]) -> RunSpec:
        plain: dict[str, Any] = {
            "run_dir": str(tmp_path / "run"),
            "source": {
                "kind": "jsonl",
                "path": str(write_rows(tmp_path / "rows.jsonl", rows)),
                "columns": {"sample_id": "key", "prompt": "question", "target": "target"},
            },
            "engine": {"kind": "scripted", "checkpoints": ["ck"], "cpus_per_replica": 0.9},
            "task": {"kind": "exact"},
            "limits": {"stall_seconds": 2.0, "load_seconds": 20.0, "init_attempts": 2},
            "stream": {"block_rows": 8},
        }
        for name, part in parts.items():
            plain[name] = {**plain.get(name, {}), **part}
        return build_spec(plain)

    return make
