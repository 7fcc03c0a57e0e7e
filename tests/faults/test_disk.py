"""A disk that fills up or is read-only under a run: what was written counts, the reason is told, a resume completes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(400)]
ROWS = 600
SCRIPT = """
set -e
mount -t tmpfs -o size={size} tmpfs run
set +e
{python} -m proctor run spec.yaml --json > first.out 2> first.err
echo $? > first.code
set -e
cp -r run kept
{mend}
set +e
{python} -m proctor run spec.yaml --json > second.out 2> second.err
echo $? > second.code
cp -r run after
"""


def namespaces() -> bool:
    """Whether this user may mount a disk of its own, in a namespace that nobody else sees."""
    try:
        probe = subprocess.run(["unshare", "-rm", "true"], capture_output=True, timeout=20, check=False)
    except FileNotFoundError:
        return False
    return probe.returncode == 0


needs_namespaces = pytest.mark.skipif(not namespaces(), reason="NO DISK TEST: user namespaces (unshare -rm) needed")


class Disk:
    """Two runs of one spec whose run directory is a disk of its own, with something mended between them."""

    def __init__(self, folder: Path, size: str, *, before: str = "", mend: str) -> None:
        self.folder = folder
        (folder / "run").mkdir()
        with (folder / "rows.jsonl").open("w") as file:
            for i in range(ROWS):  # prompts that do not shrink when they are compressed: records hold them
                file.write(json.dumps({"question": os.urandom(3000).hex(), "target": f"answer {i}"}) + "\n")
        spec = {
            "run_dir": "run",
            "source": {"kind": "jsonl", "path": "rows.jsonl", "columns": {"prompt": "question", "target": "target"}},
            "engine": {"kind": "scripted", "checkpoints": ["ck"]},
            "task": {"kind": "exact"},
            "limits": {"max_error_rate": 0.0, "load_seconds": 60.0},
            "stream": {"block_rows": 32},
        }
        (folder / "spec.yaml").write_text(yaml.safe_dump(spec))
        script = SCRIPT.format(size=size, python=sys.executable, mend=mend).replace("set +e\n", before + "set +e\n", 1)
        done = subprocess.run(
            ["unshare", "-rm", "sh", "-c", script], cwd=folder, capture_output=True, text=True, timeout=380, check=False
        )
        assert done.returncode == 0, done.stderr

    def code(self, which: str) -> int:
        return int((self.folder / f"{which}.code").read_text())

    def outcome(self, which: str) -> dict[str, Any]:
        return json.loads((self.folder / f"{which}.out").read_text().splitlines()[-1])

    def records(self, copy: str) -> Counter[int]:
        parts = (self.folder / copy / "results").glob("part-*.parquet")
        whole = [part for part in parts if not part.name.endswith(".tombstone.parquet")]
        return Counter(row for part in whole for row in pq.read_table(part, columns=["row_id"])["row_id"].to_pylist())


@needs_namespaces
def test_a_disk_that_fills_up_costs_what_was_not_written_yet(tmp_path: Path) -> None:
    disk = Disk(tmp_path, "1200k", mend="mount -o remount,size=64m run")
    kept = disk.records("kept")
    assert disk.code("first") == 3
    reasons = disk.outcome("first")["reasons"]
    assert reasons["ck"] == f"cannot write to {tmp_path / 'run'}: No space left on device"
    assert 0 < len(kept) < ROWS
    assert set(kept.values()) == {1}

    assert disk.code("second") == 0
    assert disk.records("after") == Counter(range(ROWS))
    progress = disk.outcome("second")["progress"]["ck"]
    assert (progress["before"], progress["answered"]) == (len(kept), ROWS - len(kept))


@needs_namespaces
def test_a_directory_that_is_read_only_starts_no_run(tmp_path: Path) -> None:
    disk = Disk(tmp_path, "64m", before="mount -o remount,ro run\n", mend="mount -o remount,rw run")
    assert disk.code("first") == 1
    assert (tmp_path / "first.out").read_text() == ""
    told = (tmp_path / "first.err").read_text().strip()
    assert "\n" not in told
    run = tmp_path / "run"
    assert told == f"error: {run}: cannot be a run directory: {run}/.lock: Read-only file system"
    assert disk.code("second") == 0
    assert disk.records("after") == Counter(range(ROWS))
    shutil.rmtree(tmp_path / "after")
