"""Driver and actor killed in real runs on Ray: five seconds later no process of the engine is alive.

That of a supervisor without Ray is in tests/supervise/test_orphans.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from proctor.supervise.process import MARK
from proctor.supervise.warden import members
from tests.engines.conftest import trained_model, vllm_python
from tests.runner.helpers import write_rows
from tests.supervise.helpers import process_gone, wait_until

__all__ = ["trained_model", "vllm_python"]

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(400)]
RUN = "PROCTOR_TEST_RUN"


@contextmanager
def driver(directory: Path, engine: dict[str, Any], **parts: Any) -> Iterator[subprocess.Popen[bytes]]:
    """`proctor run` on its way."""
    write_rows(directory / "rows.jsonl", 5000)
    spec = {
        "run_dir": "run",
        "source": {"kind": "jsonl", "path": "rows.jsonl", "columns": {"prompt": "question", "target": "target"}},
        "engine": engine,
        "task": {"kind": "exact"},
        "stream": {"block_rows": 16},
        **parts,
    }
    (directory / "spec.yaml").write_text(yaml.safe_dump(spec))
    command = [sys.executable, "-m", "proctor", "run", "spec.yaml", "--json"]
    output = (directory / "driver.log").open("wb")
    env = {**os.environ, RUN: str(directory)}
    with output, subprocess.Popen(command, cwd=directory, env=env, stdout=output, stderr=output) as process:
        try:
            yield process
        finally:
            process.kill()


def leaders(directory: Path) -> dict[int, bytes]:
    """The first process of each engine of this run, and the mark of its group."""
    found = {}
    for process in psutil.process_iter():
        try:
            mark = process.environ().get(MARK) if process.environ().get(RUN) == str(directory) else None
            if mark is not None and os.getsid(process.pid) == process.pid:
                found[process.pid] = f"{MARK}={mark}".encode()
        except (psutil.Error, ProcessLookupError):
            continue
    return found


def at_work(directory: Path) -> tuple[int, list[int]]:
    """Waits for the first records; the one engine's leader and all of its processes."""
    wait_until(lambda: any((directory / "run" / "results").glob("part-*.parquet")), seconds=480)
    ((leader, mark),) = leaders(directory).items()
    return leader, members(leader, mark)


def check_all_gone(pids: list[int], began: float) -> None:
    wait_until(lambda: all(map(process_gone, pids)), seconds=max(0.0, began + 5 - time.monotonic()))


SCRIPTED = {"kind": "scripted", "checkpoints": ["ck"], "row_ms": 20.0, "helpers": 3}


@pytest.mark.parametrize("victim", ["driver", "actor"])
def test_no_process_of_the_engine_outlives_its_owner(tmp_path: Path, victim: str) -> None:
    with driver(tmp_path, SCRIPTED) as process:
        leader, pids = at_work(tmp_path)
        assert len(pids) == 4
        owner = process.pid if victim == "driver" else psutil.Process(leader).ppid()
        assert victim == "driver" or owner != process.pid
        began = time.monotonic()
        psutil.Process(owner).kill()
        check_all_gone(pids, began)


@pytest.mark.vllm
def test_no_process_of_vllm_outlives_the_driver(tmp_path: Path, trained_model: Path, vllm_python: Path) -> None:
    engine = {
        "kind": "vllm",
        "checkpoints": [str(trained_model)],
        "python": str(vllm_python),
        "multiprocessing": True,
        "dtype": "float32",
        "max_model_len": 256,
        "options": {"kv_cache_memory_bytes": 2**25},
    }
    with driver(tmp_path, engine, sampling={"max_tokens": 16}) as process:
        _, pids = at_work(tmp_path)
        names = {psutil.Process(pid).name() for pid in pids}
        assert {"VLLM::EngineCore", "VLLM::Worker"} <= names
        began = time.monotonic()
        process.kill()
        check_all_gone(pids, began)
