"""However a fleet spends its GPUs, its cells have the same records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from proctor.api import run
from proctor.fleet.finding import find
from proctor.fleet.folder import FleetDir
from proctor.fleet.loading import load_fleet
from proctor.fleet.resubmit import enter
from proctor.fleet.standing import standings
from tests.fleet.making import write_fleet
from tests.runner.helpers import write_rows

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("local_ray")]
OF_THE_MOMENT = ("engine", "latency_s", "finished_at", "attempts", "sweep")
WAYS: list[dict[str, Any]] = [{"way": "jobs"}, {"way": "parallel", "at_once": 2}, {"way": "sequential"}]
Key = tuple[str, str, int]


def sat(directory: Path, way: Mapping[str, Any]) -> tuple[dict[Key, dict[str, Any]], dict[str, Any], int]:
    """All records of a fleet's runs by task, checkpoint and row; how its cells stand; and how many units it had."""
    columns = {"prompt": "question", "target": "target"}
    engine = {
        "kind": "scripted", "answer": "{checkpoint} {row_id}", "cpus_per_replica": 0.5, "gpus_per_replica": 0.0,
        "faults": [{"kind": "blank", "rows": [3]}],
    }  # fmt: skip
    run_spec = {"source": {"kind": "jsonl", "path": "rows.jsonl", "columns": columns}, "engine": engine}
    run_spec |= {"limits": {"max_error_rate": 0.5}, "stream": {"block_rows": 4}, "task": {"kind": "exact"}}
    fleet = load_fleet(write_fleet(directory, run=run_spec, matrix={"checkpoints": ["a", "b"]}, **way))
    place = FleetDir(fleet.fleet_dir)
    units = enter(place, fleet, find(fleet).checkpoints).units
    records: dict[Key, dict[str, Any]] = {}
    for unit in units:
        assert run(unit.spec).exit_code == 0
        for part in Path(unit.spec.run_dir, "results").glob("part-*.parquet"):
            for row in pq.read_table(part).to_pylist():
                key = (unit.cells[0].task, row["checkpoint"], row["row_id"])
                assert key not in records
                records[key] = {name: value for name, value in row.items() if name not in OF_THE_MOMENT}
    stand = {
        row.cell.name: (row.state, row.expected, row.answered, row.errors, row.unanswered, row.score)
        for row in standings(place, units)
    }
    return records, stand, len(units)


@pytest.mark.timeout(600)
def test_all_three_ways_give_the_same_records(tmp_path: Path) -> None:
    found = []
    for way in WAYS:
        directory = tmp_path / way["way"]
        directory.mkdir()
        write_rows(directory / "rows.jsonl", 12)
        found.append(sat(directory, way))
    assert [count for _, _, count in found] == [2, 1, 1]
    records, stand, _ = found[0]
    assert len(records) == 2 * 12
    assert records["", "a", 5]["answer"] == "a 5"
    assert records["", "b", 3]["error_kind"] == "infer.empty"
    assert {name: row[:5] for name, row in stand.items()} == dict.fromkeys("ab", ("complete", 12, 11, 1, 0))
    for other, standing, _ in found[1:]:
        assert other == records
        assert standing == stand
