"""Runs the fault matrix: ``python -m benchmarks.faults [--only FAULT ...] [--systems SYSTEM ...]``.

Cells that were run replace their earlier selves in ``benchmarks/results/faults.json``; ``faults.md`` is made anew.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import Queue
from typing import Any, TypeVar

from benchmarks.faults import report
from benchmarks.faults.cell import KEEP, run_cell
from benchmarks.faults.data import write_rows
from benchmarks.faults.matrix import FAULTS, Fault
from benchmarks.faults.rays import cluster
from benchmarks.faults.systems import ROOT, SYSTEMS, System

Named = TypeVar("Named")
NAMESPACES = ["unshare", "--user", "--map-root-user", "--mount"]


def main() -> None:
    """The command."""
    arguments = _arguments()
    if arguments.cell:
        _one_cell(*arguments.cell)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # so that what was started is ended
    faults = _chosen(arguments.only, {fault.name: fault for fault in FAULTS}, "fault")
    systems = _chosen(arguments.systems, SYSTEMS, "system")
    cells = [(system, fault) for fault in faults for system in systems]
    print(f"{len(cells)} cells: {len(faults)} faults x {', '.join(system.name for system in systems)}", flush=True)
    began = time.monotonic()
    with ExitStack() as stack:
        work = Path(stack.enter_context(_work()))
        write_rows(work / "data")
        shares = any(not (fault.own_ray or fault.worker_cpus) for fault in faults)
        free = Queue[str | None]()  # a Ray for each job: cells side by side must not wait for each other's CPUs
        for _ in range(arguments.jobs):
            free.put(stack.enter_context(cluster()).address if shares else None)
        pool = stack.enter_context(ThreadPoolExecutor(arguments.jobs))
        for done in as_completed([pool.submit(_cell_or_why_not, *cell, work, free) for cell in cells]):
            row = done.result()
            report.merge(row)
            print(report.line(row), flush=True)
    report.write()
    print(report.table(), flush=True)
    print(f"faults done in {time.monotonic() - began:.0f} s: {report.MARKDOWN}")


@contextmanager
def _work() -> Iterator[str]:
    """A directory for all cells; PROCTOR_FAULTS_KEEP leaves it where it is."""
    made = tempfile.mkdtemp(prefix="proctor-faults-")
    yield made
    if KEEP in os.environ:
        print(f"kept: {made}")
    else:
        shutil.rmtree(made, ignore_errors=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.faults", description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], metavar="FAULT", help="which faults (default: all)")
    parser.add_argument("--systems", nargs="*", default=[], metavar="SYSTEM", help="which systems (default: all)")
    parser.add_argument("--jobs", type=int, default=1, help="cells side by side; more than one blurs the seconds")
    parser.add_argument("--cell", nargs=4, metavar=("SYSTEM", "FAULT", "WORK", "OUT"), help=argparse.SUPPRESS)
    return parser.parse_args()


def _chosen(names: Sequence[str], known: dict[str, Named], what: str) -> list[Named]:
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"no {what} {unknown[0]!r}; there are {', '.join(known)}")
    return [known[name] for name in names or known]


def _cell_or_why_not(system: System, fault: Fault, work: Path, free: Queue[str | None]) -> dict[str, Any]:
    """One cell; where the harness itself fails the matrix goes on and the cell says so."""
    try:
        return _cell(system, fault, work, free)
    except Exception as error:
        return report.left_out(system.name, fault.name, f"the harness failed: {error!r}")


def _cell(system: System, fault: Fault, work: Path, free: Queue[str | None]) -> dict[str, Any]:
    """One cell; one with a file system of its own runs in namespaces of its own, where it may mount."""
    if fault.disk_mb is None:
        address = free.get()
        try:
            return run_cell(system, fault, work, address)
        finally:
            free.put(address)
    out = work / f"{fault.name}-{system.name}.json"
    command = [sys.executable, "-m", "benchmarks.faults", "--cell", system.name, fault.name, str(work), str(out)]
    try:
        done = subprocess.run([*NAMESPACES, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return report.left_out(system.name, fault.name, "there is no `unshare` here")
    if done.returncode:
        return report.left_out(system.name, fault.name, (done.stderr.strip().splitlines() or ["no word"])[-1])
    return json.loads(out.read_text())


def _one_cell(system: str, fault: str, work: str, out: str) -> None:
    found = next(entry for entry in FAULTS if entry.name == fault)
    Path(out).write_text(json.dumps(run_cell(SYSTEMS[system], found, Path(work), None)))


if __name__ == "__main__":
    main()
