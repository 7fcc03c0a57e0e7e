"""A million rows a side are compared in less than a gigabyte."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from proctor.results import RunDir, write_records
from proctor.rows.records import record_schema
from proctor.spec import build_spec
from proctor.tasks.registry import make_task

ROWS, PART = 1_000_000, 100_000
SCRIPT = r"""
import json, re, sys
from pathlib import Path
from proctor.paired.comparing import Wish, compare
from proctor.paired.sides import line_up, open_run
groups, _ = line_up([open_run(place) for place in sys.argv[1:3]])
(found,) = compare(groups[0], Wish(limit=5, cluster=sys.argv[3] or None))
change = found.change("accuracy")
# Not `ru_maxrss`: a child starts with that of the process it was forked from.
peak = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
print(json.dumps({
    "n": change.n, "difference": change.difference, "low": change.low, "high": change.high, "clusters": change.clusters,
    "regressed": found.regressed, "mb": int(peak[1]) / 1024,
}))
"""


def make_big(place: Path, seed: int, share: float) -> None:
    spec = build_spec(
        {
            "run_dir": str(place),
            "source": {"kind": "jsonl", "path": "rows.jsonl"},
            "engine": {"kind": "scripted", "checkpoints": ["c"]},
            "task": {"kind": "classification", "labels": ["dry", "wet", "snow"]},
        }
    )
    run = RunDir(place)
    run.create(spec)
    run.write("source", {"fingerprint": "f", "rows": ROWS})
    schema = record_schema(make_task(spec.task, spec.source.columns).columns)
    rng = np.random.default_rng(seed)
    labels = np.array(["dry", "wet", "snow"])
    for start in range(0, ROWS, PART):
        ids = np.arange(start, start + PART)
        truth = labels[ids % 3]
        said = np.where(rng.random(PART) < share, truth, labels[(ids + 1) % 3])
        columns = {
            "row_id": ids,
            "checkpoint": ["c"] * PART,
            "sample_id": [f"drive-{i // 20:06d}/{i}" for i in ids],
            "answer": [f"I think that the road is {label}. " * 4 for label in said],
            "target": [f'"{label}"' for label in truth],
            "label": said,
            "label_target": truth,
            "label_correct": said == truth,
        }
        whole = {f.name: columns.get(f.name, pa.nulls(PART, f.type)) for f in schema}
        write_records(run.results, pa.table(whole, schema=schema))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_million_rows_take_less_than_a_gigabyte(tmp_path: Path) -> None:
    make_big(tmp_path / "a", 1, 0.800)
    make_big(tmp_path / "b", 2, 0.795)
    for cluster in ("", "sample_id~^(drive-\\d+)"):
        command = [sys.executable, "-c", SCRIPT, str(tmp_path / "a"), str(tmp_path / "b"), cluster]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=250)
        found = json.loads(done.stdout)
        assert found["n"] == ROWS
        assert found["clusters"] == (ROWS // 20 if cluster else None)
        assert found["low"] < -0.005 < found["high"] < 0
        assert found["regressed"] == pytest.approx(0.8 * 0.205 * ROWS, rel=0.02)
        assert found["mb"] < 1000
