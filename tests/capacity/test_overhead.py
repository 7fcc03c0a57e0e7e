"""The constants, against the results of the benchmarks that they come from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proctor.capacity import overhead

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
ROWS = 100_000


def test_cpu_of_blocks_and_rows_is_that_of_the_overhead_benchmark() -> None:
    found = {f["name"]: f["figure"] for f in json.loads((RESULTS / "overhead.json").read_text())["figures"]}
    small, large = found["100,000 tiny rows, blocks of 256"], found["100,000 tiny rows, blocks of 2048"]
    blocks = -(-ROWS // 256), -(-ROWS // 2048)
    block = (small - large) / (blocks[0] - blocks[1])
    row = (large - blocks[1] * block) / ROWS
    # Seconds of a shared machine: a factor of two is what they are good for.
    assert pytest.approx(block * overhead.MEASURED_CORES, rel=1.0) == overhead.BLOCK_CPU_SECONDS
    assert pytest.approx(row * overhead.MEASURED_CORES, rel=1.0) == overhead.ROW_CPU_SECONDS


def test_memory_of_an_actor_is_that_of_the_soak() -> None:
    lines = (RESULTS / "soak.md").read_text().splitlines()
    own = {
        line.split("|")[1].strip(): line.split("|")[4] for line in lines if line.startswith(("| actor |", "| warden |"))
    }
    total = sum(float(cell.split()[0]) for cell in own.values())
    assert pytest.approx(total * 1e6, rel=0.2) == overhead.ACTOR_BYTES
