"""Writes what was found to ``benchmarks/results/scale.json`` and ``scale.md``, and says what does not hold."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.__main__ import RESULTS, machine, versions
from benchmarks.scale.data import bytes_of, images_of
from benchmarks.scale.measure import STAGES, Measured

JSON, MARKDOWN = RESULTS / "scale.json", RESULTS / "scale.md"
SLACK = 0.15
"""What a row more costs may differ by so much from one step of sizes to the next: time grows in a line. (A run has
seconds of its own, for its engine to load, whatever its size.)"""
PLAN_SLACK = 0.25
"""The memory that was planned may differ by so much from what was taken."""
DRIVER_GROWTH_MB = 30.0
"""What the driver may grow by from the second tenth of a run to the last but one. Its start and its end are left out:
there it loads Ray, adds up metrics and writes the report."""
ROLES = ("driver", "worker.reading", "worker.writing", "actor", "engine", "hub", "ray", "all")


def line(found: Measured) -> str:
    """One size in a line."""
    peak = found.watch.peak
    return (
        f"{found.rows:>9,} rows: {found.answered:,} answered, exit {found.exit_code}, {found.seconds:.0f} s, "
        f"{found.steady:,.0f} rows/s, all {peak('all'):,.0f} MB, driver {peak('driver'):,.0f} MB"
    )


def stage_cpu(found: Measured) -> dict[str, float]:
    """CPU milliseconds a row, by stage."""
    by_stage: dict[str, float] = defaultdict(float)
    for role, seconds in found.watch.cpu.items():
        if role in STAGES:
            by_stage[STAGES[role]] += 1000 * seconds / found.rows
    return dict(by_stage)


def failures_of(runs: Sequence[dict[str, Any]], plan: dict[str, Any] | None) -> list[str]:
    """What does not hold, in the runs as they are written down."""
    failures = []
    for one in runs:
        name = f"{one['rows']:,} rows"
        early, late = one["driver_mb_early_and_late"]
        if (one["answered"], one["exit_code"]) != (one["rows"], 0):
            failures.append(f"{name}: {one['answered']:,} answered, exit {one['exit_code']}")
        if one["spilled_bytes"]:
            failures.append(f"{name}: {one['spilled_bytes']:,} bytes spilled")
        if late - early > DRIVER_GROWTH_MB:
            failures.append(f"{name}: the driver grew from {early:.0f} to {late:.0f} MB")
    steps = [(b["seconds"] - a["seconds"]) / (b["rows"] - a["rows"]) for a, b in itertools.pairwise(runs)]
    for before, after in itertools.pairwise(steps):
        if abs(after / before - 1) > SLACK:
            failures.append(f"a row more took {1000 * before:.3f} ms at first and {1000 * after:.3f} ms later")
    if plan is not None:
        ratio = planned_mb(plan) / runs[-1]["peak_mb"]["all"]
        if abs(ratio - 1) > PLAN_SLACK:
            failures.append(f"planned memory is {ratio:.2f} of what was taken")
        limit, busiest = plan["throughput"]["limit"], busiest_stage(runs[-1])
        if limit not in busiest:
            failures.append(f"planned limit: {limit}; busiest stage: {busiest}")
    return failures


def planned_mb(plan: dict[str, Any]) -> float:
    """Memory of the run on its node, as planned."""
    return sum(node["run_memory"] * node["count"] for node in plan["nodes"]) / 1e6


def busiest_stage(run: dict[str, Any]) -> str:
    """The stage that takes most CPU: on one machine whose cores are all busy it sets the pace."""
    stages: dict[str, float] = run["cpu_ms_a_row"]
    return max(stages, key=lambda name: stages[name])


def write(data: Path, found: Sequence[Measured], block_rows: int) -> list[str]:
    """Writes both files.

    Returns:
        What does not hold.
    """
    images = sum(map(images_of, range(found[-1].rows)))
    result = {
        "name": "scale",
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "versions": versions(),
        "settings": {"block_rows": block_rows, "bytes": bytes_of(data), "images": images},
        "runs": [_plain(one) for one in found],
        "plan": found[-1].plan,
    }
    JSON.write_text(json.dumps(result, indent=1) + "\n")
    return judge()


def judge() -> list[str]:
    """Judges what is written down, and says so in `MARKDOWN`.

    Returns:
        What does not hold.
    """
    result = json.loads(JSON.read_text())
    failures = failures_of(result["runs"], result["plan"])
    MARKDOWN.write_text("\n".join(_lines(result, failures)))
    return failures


def _plain(one: Measured) -> dict[str, Any]:
    step = max(1, len(one.watch.curve) // 60)
    early, late = one.watch.late_and_early("driver")
    return {
        "rows": one.rows,
        "answered": one.answered,
        "exit_code": one.exit_code,
        "seconds": round(one.seconds, 1),
        "rows_per_second": round(one.steady, 1),
        "peak_mb": {role: round(one.watch.peak(role), 1) for role in ROLES},
        "driver_mb_early_and_late": [round(early, 1), round(late, 1)],
        "spilled_bytes": one.watch.spilled,
        "cpu_ms_a_row": {stage: round(ms, 4) for stage, ms in stage_cpu(one).items()},
        "curve": [{name: round(value, 1) for name, value in look.items()} for look in one.watch.curve[::step]],
    }


def _lines(result: dict[str, Any], failures: Sequence[str]) -> list[str]:
    settings, plan, last = result["settings"], result["plan"], result["runs"][-1]
    head = ["rows", "answered", "s", "rows/s", *(f"{role} MB" for role in ROLES), "driver early, late MB", "spilled"]
    lines = [
        "# Scale",
        "",
        "Written by `make scale`, never by hand.",
        "",
        f"{result['date']}, {result['machine']}, {', '.join(f'{k} {v}' for k, v in result['versions'].items())}.",
        "",
        f"{settings['images']:,} JPEGs, {settings['bytes'] / 1e9:.2f} GB, blocks of {settings['block_rows']} rows, the "
        "scripted engine. Memory: peak over all processes of a role, proportional (PSS), so that libraries and the "
        "object store count once in all; rows/s: between the first and the last record.",
        "",
        f"**{'All holds.' if not failures else 'Does not hold: ' + '; '.join(failures)}**",
        "",
        f"| {' | '.join(head)} |",
        f"| {' | '.join('---:' for _ in head)} |",
    ]
    for one in result["runs"]:
        early, late = one["driver_mb_early_and_late"]
        cells = [f"{one['rows']:,}", f"{one['answered']:,}", one["seconds"], f"{one['rows_per_second']:,.0f}"]
        cells += [f"{one['peak_mb'][role]:,.0f}" for role in ROLES]
        lines.append(f"| {' | '.join(map(str, [*cells, f'{early:.0f}, {late:.0f}', one['spilled_bytes']]))} |")
    if plan is not None:
        throughput = plan["throughput"]
        lines += [
            "",
            f"| `proctor plan` for {last['rows']:,} rows | planned | happened |",
            "| --- | ---: | ---: |",
            f"| memory of the run, MB | {planned_mb(plan):,.0f} | {last['peak_mb']['all']:,.0f} |",
            f"| limiting stage | {throughput['limit']} | {busiest_stage(last)} |",
            f"| rows/s | {throughput['rows_per_second'] or 0:,.0f} | {last['rows_per_second']:,.0f} |",
        ]
    lines += ["", "| stage | CPU ms a row |", "| --- | ---: |"]
    lines += [f"| {stage} | {ms:.3f} |" for stage, ms in last["cpu_ms_a_row"].items()]
    return [*lines, ""]
