"""Memory of the driver: it must not grow with the rows."""

from __future__ import annotations

from typing import Any

from benchmarks.runs import measured_run

TITLE = "peak memory of the driver at 100,000 and at 1,000,000 rows"
SIZES = (100_000, 1_000_000)


def run(rounds: int) -> list[dict[str, Any]]:
    """Peak resident memory of the driver's process, and what ten times the rows add. One round: it takes minutes."""
    del rounds
    peaks = [measured_run(rows, stream={"block_rows": 2048})["driver_mb"] for rows in SIZES]
    figures = [_figure(f"driver at {rows:,} rows", peak) for rows, peak in zip(SIZES, peaks, strict=True)]
    return [*figures, _figure("growth from 100,000 to 1,000,000 rows", peaks[1] - peaks[0])]


def _figure(name: str, megabytes: float) -> dict[str, Any]:
    return {"name": name, "figure": megabytes, "unit": "MB", "ratio_to": None, "rounds": 1, "spread": None}
