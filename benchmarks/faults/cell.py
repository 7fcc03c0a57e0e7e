"""One cell: a system, a fault, real processes, and what the result files say afterwards."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.faults.account import account
from benchmarks.faults.data import damaged, truth, write_rows
from benchmarks.faults.processes import MARK, end, marked, orphans, title, wait_until
from benchmarks.faults.rays import RAY_ENVIRONMENT, Cluster, cluster, job_environment
from benchmarks.faults.systems import ROOT, Place, System

if TYPE_CHECKING:
    from benchmarks.faults.matrix import Fault

ORPHAN_SECONDS = 5.0
_ERROR = re.compile(r"[\w.]*(Error|Exception|Died|Timeout)\b.*:")
KEEP = "PROCTOR_FAULTS_KEEP"
"""Environment variable that keeps the files of all cells, to look into."""


class Cell:
    """A cell under way, as the fault's action sees it."""

    def __init__(self, system: System, fault: Fault, place: Place, ray: Cluster | None) -> None:
        self.system, self.fault, self.place, self.ray = system, fault, place, ray
        self.id = f"{fault.name}:{system.name}:{uuid.uuid4().hex[:8]}"
        self.command = system.command(place, fault.planted)
        self.notes: list[str] = []
        self._logs = 0

    @property
    def state(self) -> Path:
        """Where planted faults count."""
        return self.system.state(self.place)

    def results(self) -> list[Path]:
        """Result files now."""
        return self.system.results(self.place.disk)

    def start(self) -> subprocess.Popen[bytes]:
        """Starts the driver, as a person would: the same command each time."""
        self._logs += 1
        log = self._log(self._logs)
        own = {MARK: self.id, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "OMP_NUM_THREADS": "1"}
        env = {**os.environ, **own, **RAY_ENVIRONMENT}
        if self.place.address is not None:
            env |= job_environment(own)
        # A job in the background of a shell ignores Ctrl-C, and so would all that it starts.
        heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        with log.open("wb") as output:
            return subprocess.Popen(
                self.command, env=env, cwd=ROOT, stdout=output, stderr=output, start_new_session=True, preexec_fn=heed
            )

    def finish(self, process: subprocess.Popen[bytes]) -> str:
        """Waits for the driver and says how it ended; one that takes too long is ended."""
        try:
            code = process.wait(timeout=self.fault.limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return f"no end in {self.fault.limit:g} s, killed"
        return f"exit {code}" if code >= 0 else f"ended by {signal.Signals(-code).name}"

    def last_error(self) -> str:
        """The last line of the last driver's log that names an exception, for the notes."""
        lines = self._log(self._logs).read_text(errors="replace").splitlines()
        return next((line.strip()[:160] for line in reversed(lines) if _ERROR.match(line)), "no exception in its log")

    def _log(self, number: int) -> Path:
        return self.place.folder / f"driver-{number}.log"

    def wait_for_results(self, files: int) -> bool:
        """Waits until there are so many result files: the run is under way."""
        return wait_until(lambda: len(self.results()) >= files, 90)


def run_cell(system: System, fault: Fault, work: Path, shared: str | None) -> dict[str, Any]:
    """Runs a cell and gives its row.

    Args:
        system: the column.
        fault: the row.
        work: a directory that holds the clean data; the cell's own things go below it.
        shared: address of the Ray that cells without one of their own share.
    """
    folder = work / f"{fault.name}-{system.name}"
    folder.mkdir()
    with _ray(fault, shared) as (address, ray), _disk(fault, folder / "disk") as disk:
        place = Place(_data(fault, work, folder), folder, disk, address, fault.store_mb)
        cell = Cell(system, fault, place, ray)
        times = _run(cell)
        left = _orphans(cell)
        found = account(cell.results(), truth(), fault.guilty)
    if KEEP not in os.environ:
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "system": system.name,
        "fault": fault.name,
        **found.to_json(),
        "recovery_s": None,
        "orphans": left,
        **times,
        "note": "; ".join(cell.notes),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _run(cell: Cell) -> dict[str, Any]:
    """The driver, the fault, and the same command once more where a person would give it."""
    fault, began = cell.fault, time.monotonic()
    process = cell.start()
    if fault.action is not None:
        fault.action(cell, process)
    ended = [cell.finish(process)]
    restart_seconds = None
    if process.returncode not in cell.system.complete:
        if process.returncode == 1:
            cell.notes.append(cell.last_error())
        if fault.before_restart is not None:
            fault.before_restart(cell)
        again = time.monotonic()
        process = cell.start()
        if fault.action is not None and fault.lasting:
            fault.action(cell, process)
        ended.append(cell.finish(process))
        restart_seconds = round(time.monotonic() - again, 1)
    seconds = round(time.monotonic() - began, 1)
    return {"seconds": seconds, "restart_seconds": restart_seconds, "ended": ", restarted: ".join(ended)}


def _orphans(cell: Cell) -> int:
    """Engine processes that are alive some seconds after the end; they are ended then, with all else of the cell."""
    time.sleep(ORPHAN_SECONDS)
    left = orphans(cell.id)
    cell.notes += [f"left: {title(process)[:80]}" for process in left]
    end(left)
    end(marked(cell.id))
    return len(left)


def _data(fault: Fault, work: Path, folder: Path) -> Path:
    if fault.pixels is not None:
        return write_rows(folder / "data", fault.pixels)
    clean = work / "data"
    return clean if fault.damage is None else damaged(clean, folder / "data", fault.damage)


@contextlib.contextmanager
def _ray(fault: Fault, shared: str | None) -> Iterator[tuple[str | None, Cluster | None]]:
    if fault.worker_cpus:
        with cluster(head_cpus=0, worker_cpus=fault.worker_cpus) as made:
            yield made.address, made
    else:
        yield None if fault.own_ray else shared, None


@contextlib.contextmanager
def _disk(fault: Fault, disk: Path) -> Iterator[Path]:
    """A directory to write to; for faults of the output a small file system of its own."""
    disk.mkdir()
    if fault.disk_mb is None:
        yield disk
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={fault.disk_mb}m", "tmpfs", disk], check=True)
    yield disk  # it goes with the namespace of this process
