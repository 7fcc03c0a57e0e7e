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
"""Time for a row may differ by so much between sizes."""
PLAN_SLACK = 0.25
"""The memory that was planned may differ by so much from what was taken."""
DRIVER_GROWTH_MB = 60.0
"""Driver memory, ten times the rows: what counts as flat, beside Ray's own warm-up."""
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


def failures_of(found: Sequence[Measured]) -> list[str]:
    """What does not hold."""
    failures = [
        f"{one.rows:,} rows: {one.answered:,} answered, exit {one.exit_code}"
        for one in found
        if (one.answered, one.exit_code) != (one.rows, 0)
    ]
    failures += [f"{one.rows:,} rows: {one.watch.spilled:,} bytes spilled" for one in found if one.watch.spilled]
    for small, large in itertools.pairwise(found):
        ratio = large.steady / small.steady
        if abs(ratio - 1) > SLACK:
            failures.append(f"rows/s of {large.rows:,} rows are {ratio:.2f} of those of {small.rows:,}")
        growth = large.watch.peak("driver") - small.watch.peak("driver")
        if growth > DRIVER_GROWTH_MB:
            failures.append(f"the driver takes {growth:.0f} MB more for {large.rows:,} rows than for {small.rows:,}")
    if (plan := found[-1].plan) is not None:
        ratio = planned_mb(plan) / found[-1].watch.peak("all")
        if abs(ratio - 1) > PLAN_SLACK:
            failures.append(f"planned memory is {ratio:.2f} of what was taken")
        limit, busiest = plan["throughput"]["limit"], busiest_stage(found[-1])
        if limit not in busiest:
            failures.append(f"planned limit: {limit}; busiest stage: {busiest}")
    return failures


def planned_mb(plan: dict[str, Any]) -> float:
    """Memory of the run on its node, as planned."""
    return sum(node["run_memory"] * node["count"] for node in plan["nodes"]) / 1e6


def busiest_stage(found: Measured) -> str:
    """The stage that takes most CPU: on one machine whose cores are all busy it sets the pace."""
    stages = stage_cpu(found)
    return max(stages, key=lambda name: stages[name])


def write(data: Path, found: Sequence[Measured], block_rows: int) -> list[str]:
    """Writes both files.

    Returns:
        What does not hold.
    """
    failures = failures_of(found)
    result = {
        "name": "scale",
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "versions": versions(),
        "settings": {
            "block_rows": block_rows,
            "bytes": bytes_of(data),
            "images": sum(map(images_of, range(found[-1].rows))),
        },
        "runs": [_plain(one) for one in found],
        "plan": found[-1].plan,
        "failures": failures,
    }
    JSON.write_text(json.dumps(result, indent=1) + "\n")
    MARKDOWN.write_text("\n".join(_lines(result, found)))
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


def _lines(result: dict[str, Any], found: Sequence[Measured]) -> list[str]:
    settings, plan = result["settings"], result["plan"]
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
        f"**{'All holds.' if not result['failures'] else 'Does not hold: ' + '; '.join(result['failures'])}**",
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
            f"| `proctor plan` for {found[-1].rows:,} rows | planned | happened |",
            "| --- | ---: | ---: |",
            f"| memory of the run, MB | {planned_mb(plan):,.0f} | {found[-1].watch.peak('all'):,.0f} |",
            f"| limiting stage | {throughput['limit']} | {busiest_stage(found[-1])} |",
            f"| rows/s | {throughput['rows_per_second'] or 0:,.0f} | {found[-1].steady:,.0f} |",
        ]
    lines += ["", "| stage | CPU ms a row |", "| --- | ---: |"]
    lines += [f"| {stage} | {ms:.3f} |" for stage, ms in result["runs"][-1]["cpu_ms_a_row"].items()]
    return [*lines, ""]
