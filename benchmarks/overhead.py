"""What the pipeline itself costs: 100,000 tiny rows and an engine that answers at once."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.runs import measured_run

TITLE = "seconds for 100,000 tiny rows with an engine that takes no time"
ROWS = 100_000


def run(rounds: int) -> list[dict[str, Any]]:
    """Seconds of the sweep (Ray is up; the engine's start is in it), for two sizes of block."""
    rounds = min(rounds, 3)
    found: dict[int, list[float]] = {256: [], 2048: []}
    for _ in range(rounds):
        for block_rows, seconds in found.items():
            seconds.append(measured_run(ROWS, stream={"block_rows": block_rows})["sweep_seconds"])
    return [
        {
            "name": f"{ROWS:,} tiny rows, blocks of {block_rows}",
            "figure": statistics.median(seconds),
            "unit": "s",
            "ratio_to": None,
            "rounds": rounds,
            "spread": [min(seconds), max(seconds)],
        }
        for block_rows, seconds in found.items()
    ]
