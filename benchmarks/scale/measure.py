"""Runs ``proctor run`` over the data in processes of its own, and looks at every one of them twice a second."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import psutil
import yaml

from benchmarks.faults.processes import MARK
from benchmarks.soak.roles import by_role
from proctor.results import RunDir

PAUSE = 2.0
MB = 1e6
STAGES = {
    "worker.reading": "read and prepare",
    "actor": "infer",
    "engine": "infer",
    "worker.writing": "score and write",
    "driver": "driver",
}
"""Which stage a process works for."""


@dataclass(slots=True)
class Watch:
    """What was seen of a run's processes.

    Attributes:
        curve: one entry a look: seconds, and MB of each role, all its processes together, with ``processes`` of each
            and ``all``. Memory is proportional (Linux's PSS): what several processes share, such as libraries and the
            object store, counts once in all.
        cpu: CPU seconds by role.
        spilled: most bytes that Ray had spilled to disk.
    """

    curve: list[dict[str, float]] = field(default_factory=list)
    cpu: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    spilled: int = 0

    def peak(self, what: str) -> float:
        """MB, largest of the curve."""
        return max((look.get(what, 0.0) for look in self.curve), default=0.0)

    def late_and_early(self, what: str) -> tuple[float, float]:
        """MB, medians of the second and of the last tenth of the curve."""
        tenth = max(1, len(self.curve) // 10)
        values = [look.get(what, 0.0) for look in self.curve]
        early, late = sorted(values[tenth : 2 * tenth] or values), sorted(values[-2 * tenth : -tenth] or values)
        return early[len(early) // 2], late[len(late) // 2]


@dataclass(frozen=True, slots=True)
class Measured:
    """A run that has ended.

    Attributes:
        seconds: of the sweep.
        steady: rows a second between the first and the last record.
        plan: the run's ``plan.json``; None if it was too small to plan.
    """

    rows: int
    answered: int
    exit_code: int
    seconds: float
    steady: float
    watch: Watch
    plan: dict[str, Any] | None


def measure(data: Path, rows: int, work: Path, block_rows: int) -> Measured:
    """Runs the first `rows` rows of the data set.

    Raises:
        RuntimeError: the run said nothing at its end.
    """
    folder = work / f"run-{rows}"
    folder.mkdir()
    spec = folder / "spec.yaml"
    spec.write_text(yaml.safe_dump(_spec(data, rows, folder, block_rows)))
    mark = f"scale-{rows}-{os.getpid()}"
    command = [sys.executable, "-m", "proctor", "run", str(spec), "--json"]
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env={**os.environ, MARK: mark})
        with _watched(mark) as watch:
            code = process.wait()
    last = json.loads((folder / "out").read_text().splitlines()[-1])
    if last["event"] != "done":
        raise RuntimeError((folder / "err").read_text()[-2000:])
    run = RunDir(str(folder / "run"))
    times = {event.kind: event.time for event in run.events()}
    (ledger,) = last["reconciliation"]["checkpoints"]
    return Measured(
        rows=rows,
        answered=ledger["answered"],
        exit_code=code,
        seconds=times["sweep.ended"] - times["sweep.started"],
        steady=_steady(run, block_rows),
        watch=watch,
        plan=run.read("plan"),
    )


def _spec(data: Path, rows: int, folder: Path, block_rows: int) -> dict[str, Any]:
    columns = {"images": ["frames"], "prompt": "question", "target": "target", "sample_id": "key"}
    return {
        "run_dir": str(folder / "run"),
        "source": {"kind": "mds", "path": str(data), "limit": rows, "columns": columns},
        "engine": {"kind": "scripted", "checkpoints": ["ck"], "batch_size": 64},
        "task": {"kind": "exact"},
        "stream": {"block_rows": block_rows},
    }


def _steady(run: RunDir, block_rows: int) -> float:
    with duckdb.connect() as connection:
        found = run.records(connection).aggregate("epoch(max(finished_at)) - epoch(min(finished_at)), count(*)")
        seconds, count = found.fetchall()[0]
    return (count - block_rows) / max(seconds, 1e-9)


@contextmanager
def _watched(mark: str) -> Iterator[Watch]:
    watch, stop = Watch(), threading.Event()
    thread = threading.Thread(target=_look, args=(mark, watch, stop), daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        stop.set()
        thread.join()


def _look(mark: str, watch: Watch, stop: threading.Event) -> None:
    began, before = time.monotonic(), dict[tuple[int, float], float]()
    while not stop.wait(PAUSE):
        look: dict[str, float] = defaultdict(float)
        for role, process in by_role(mark):
            with contextlib.suppress(psutil.Error, OSError):
                cpu, key = sum(process.cpu_times()[:2]), (process.pid, process.create_time())
                watch.cpu[role] += cpu - before.get(key, 0.0)
                before[key] = cpu
                look[role] += _proportional(process.pid)
                look[f"{role} processes"] += 1
        look["all"] = sum(megabytes for name, megabytes in look.items() if not name.endswith(" processes"))
        watch.curve.append({"seconds": time.monotonic() - began, **look})
        watch.spilled = max(watch.spilled, _spilled())


def _proportional(pid: int) -> float:
    """MB."""
    with Path(f"/proc/{pid}/smaps_rollup").open() as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024 / MB


def _spilled() -> int:
    found = Path("/tmp/ray/session_latest").resolve().glob("ray_spilled_objects*/*")
    return sum(file.stat().st_size for file in found if file.is_file())
