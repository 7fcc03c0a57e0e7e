"""Two cells of the fault matrix from end to end: real drivers, a Ray of their own, and the files they leave."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.faults.cell import run_cell
from benchmarks.faults.data import ROWS, write_rows
from benchmarks.faults.matrix import FAULTS
from benchmarks.faults.rays import cluster
from benchmarks.faults.report import BAD
from benchmarks.faults.systems import SYSTEMS

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(400)]
SEGFAULT = next(fault for fault in FAULTS if fault.name == "engine.segfault")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with cluster() as made:
        yield made.address


def test_a_row_that_kills_the_engine_costs_itself_under_proctor(tmp_path: Path, address: str) -> None:
    write_rows(tmp_path / "data")
    row = run_cell(SYSTEMS["proctor"], SEGFAULT, tmp_path, address)
    assert {name: row[name] for name in BAD} == dict.fromkeys(BAD, 0)
    assert (row["rows"], row["answered"], row["errors"], row["ended"]) == (ROWS, ROWS - 1, 1, "exit 0")


def test_it_costs_its_block_in_silence_under_plain_ray_data(tmp_path: Path, address: str) -> None:
    write_rows(tmp_path / "data")
    row = run_cell(SYSTEMS["naive"], SEGFAULT, tmp_path, address)
    assert row["answered"] + row["lost"] == ROWS
    assert row["lost"] - 1 == row["innocents_harmed"] >= 15  # at least the others of its batch
    assert row["errors"] == row["duplicated"] == 0
