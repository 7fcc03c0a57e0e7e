"""Runs the soak: ``python -m benchmarks.soak [--rows N] [--seed N] [--minutes N] ...``.

Exit code 0 if every row ended as it must, nothing was left behind and nothing grew; 1 otherwise, with what was wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, fields
from pathlib import Path

from benchmarks.__main__ import RESULTS
from benchmarks.soak import report
from benchmarks.soak.account import account
from benchmarks.soak.aftermath import Evidence, follow
from benchmarks.soak.data import write_data, write_spec
from benchmarks.soak.flat import growths
from benchmarks.soak.keeper import Keeper, Settings
from proctor.results import RunDir

INSIDE = "PROCTOR_SOAK_INSIDE"
DISK_MB = 512
NAMESPACES = ["unshare", "--user", "--map-root-user", "--mount"]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="benchmarks.soak", description=__doc__)
    helps = {
        "rows": "rows of the run",
        "seed": "of the data and of the schedule",
        "minutes": "most minutes in all",
        "every": "mean seconds between two faults that the driver outlives",
        "large_every": "the same for those that end the driver, or cost a minute",
        "row_ms": "milliseconds that a row takes in the engine",
        "block_rows": "rows in a block",
    }
    for knob in fields(Settings):
        default = knob.default
        option = f"--{knob.name.replace('_', '-')}"
        parser.add_argument(option, type=type(default), default=default, help=f"{helps[knob.name]} ({default})")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where soak.json and soak.md go")
    parser.add_argument("--keep", action="store_true", help="leave the run directory and the logs where they are")
    arguments = vars(parser.parse_args())
    out, keep = arguments.pop("out"), arguments.pop("keep")
    if INSIDE not in os.environ and _can_mount():
        os.execvpe(
            NAMESPACES[0],
            [*NAMESPACES, sys.executable, "-m", "benchmarks.soak", *sys.argv[1:]],
            {**os.environ, INSIDE: "1"},
        )
    sys.exit(soak(Settings(**arguments), out, keep=keep))


def soak(settings: Settings, out: Path, *, keep: bool) -> int:
    """Runs a soak, writes and prints what came of it, and gives the exit code."""
    print(f"soak: {json.dumps(asdict(settings))}", flush=True)
    work = Path(tempfile.mkdtemp(prefix="ps-", dir="/tmp"))  # short: Ray makes sockets below it
    disk = _disk(work / "disk")
    run_dir = work / "disk" / "run"
    data = write_data(work / "data", settings.rows, settings.seed)
    spec = write_spec(work / "spec.yaml", data, run_dir, settings.row_ms, settings.block_rows)
    keeper = Keeper(settings, spec, run_dir, work, disk)
    keeper.run()
    run = RunDir(run_dir)
    follow(keeper.struck, Evidence(run.events(), keeper.samples, keeper.lives))
    found = account((run_dir / "results").glob("part-*.parquet"), data.truth)
    growth = growths(keeper.samples)
    stated = run.read("reconciliation")
    failed = report.failures(keeper, found, stated["checkpoints"][0] if stated else None, growth)
    done = report.document(settings, keeper, found, growth, failed)
    report.write(done, out)
    print(report.markdown(done))
    for finding in found.findings[:20]:
        print(f"record of row {finding.row}: {finding.record}")
    print(report.verdict(done))
    if failed or keep:
        (work / "samples.json").write_text(json.dumps(keeper.samples))
        kept = work.with_name(f"{work.name}-kept")
        shutil.copytree(work, kept, ignore=shutil.ignore_patterns("ray", "data"))
        print(f"kept: {kept}")
    if disk is not None:
        subprocess.run(["umount", "--lazy", disk], check=True)
    shutil.rmtree(work, ignore_errors=True)
    return 1 if failed else 0


def _can_mount() -> bool:
    """Whether this user may make namespaces in which he may mount."""
    try:
        return subprocess.run([*NAMESPACES, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def _disk(path: Path) -> Path | None:
    """A small file system for the run directory alone; None where it cannot be had: the disk is never filled then."""
    path.mkdir()
    if INSIDE not in os.environ:
        return None
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", path], check=True)
    return path


if __name__ == "__main__":
    main()
