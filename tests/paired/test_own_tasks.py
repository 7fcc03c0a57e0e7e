"""Tasks of the user's own: their columns are paired, their sums are only shown; and F1 between equally good sides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.stats

from proctor.paired.comparing import Wish, compare
from proctor.paired.gate import Rules, gate
from proctor.paired.limits import Limit
from proctor.paired.model import Comparison
from proctor.paired.sides import line_up, open_run
from proctor.results import RunDir, write_records
from proctor.rows import UserError
from proctor.rows.records import record_schema
from proctor.spec import build_spec
from tests.paired.made import WHEN, make_run

COLUMNS = {"bleu": pa.float64(), "polite": pa.bool_(), "words": pa.int32(), "note": pa.string()}


def metric(name: str, value: float | None, *, higher: bool = True, unit: str = "") -> dict[str, Any]:
    facts = {"low": None, "high": None, "n": 3, "of": 3, "method": ""}
    return {"name": name, "value": value, "unit": unit, "higher_is_better": higher, **facts}


def make_own(place: Path, rows: list[dict[str, Any]], metrics: list[dict[str, Any]], headline: str) -> str:
    run = RunDir(place)
    run.create(
        build_spec(
            {
                "run_dir": str(place),
                "source": {"kind": "jsonl", "path": "rows.jsonl"},
                "engine": {"kind": "scripted", "checkpoints": ["c"]},
                "task": {"kind": "python", "python": "nowhere:Task"},
            }
        )
    )
    run.write("source", {"fingerprint": "f", "rows": len(rows)})
    run.write("metrics", {"c": {"headline": headline, "metrics": metrics, "confusions": []}})
    base = {"checkpoint": "c", "finished_at": WHEN, "answer": "text"}
    records = [{"row_id": number, **base, **row} for number, row in enumerate(rows)]
    write_records(run.results, pa.Table.from_pylist(records, schema=record_schema(COLUMNS)))
    return str(place)


def compared(*places: str, **wish: Any) -> Comparison:
    groups, _ = line_up([open_run(place) for place in places])
    (found,) = compare(groups[0], Wish(**wish))
    return found


@pytest.fixture
def places(tmp_path: Path) -> tuple[str, str]:
    one = [{"bleu": 0.5, "polite": True, "words": 3}, {"bleu": 0.25, "polite": True, "words": 4}, {"bleu": None}]
    other = [{"bleu": 0.25, "polite": True, "words": 3}, {"bleu": 0.5, "polite": False, "words": 9}, {"bleu": 1.0}]
    said = [metric("bleu", 0.375), metric("corpus", 31.5), metric("words", 3.5, higher=False, unit="words")]
    later = [metric("bleu", 0.58), metric("corpus", 29.0), metric("words", 6.0, higher=False, unit="words")]
    return make_own(tmp_path / "a", one, said, "bleu"), make_own(tmp_path / "b", other, later, "bleu")


def test_columns_that_rows_have_are_paired_and_sums_are_shown(places: tuple[str, str]) -> None:
    found = compared(*places)
    assert found.headline == "bleu"
    changes = {change.measure.name: change for change in found.changes}
    assert set(changes) == {"bleu", "polite", "words", "answered", "parse_failures"}
    assert (changes["bleu"].n, changes["bleu"].a, changes["bleu"].b, changes["bleu"].worse) == (2, 0.375, 0.375, 1)
    assert (changes["words"].worse, changes["words"].better, changes["words"].measure.unit) == (1, 0, "words")
    assert (changes["polite"].worse, changes["polite"].measure.form) == (1, "share")
    assert [(each.name, each.a, each.b) for each in found.added_up] == [("corpus", 31.5, 29.0)]
    assert {(line.a, line.b): line.rows for line in found.account.rows} == {
        ("scored", "scored"): 2,
        ("not scored", "scored"): 1,
    }


def test_a_number_that_nobody_called_better_changes_and_cannot_be_a_gate(tmp_path: Path) -> None:
    one = make_own(tmp_path / "a", [{"words": 3}] * 50, [], "none")
    other = make_own(tmp_path / "b", [{"words": 3 + number % 7} for number in range(50)], [], "none")
    found = compared(one, other, metric="words")
    change = found.change("words")
    assert change is not None
    assert (change.measure.higher_is_better, change.moved) == (None, "changed")
    with pytest.raises(UserError, match="nobody said whether more words is better"):
        gate(open_run(other), open_run(one), Rules([Limit.of("drop", "words=1")]))


def test_numbers_that_are_none_are_left_out(tmp_path: Path) -> None:
    bleu = [metric("bleu", 1.0)]
    one = make_own(tmp_path / "a", [{"bleu": 0.5}, {"bleu": float("nan")}, {"bleu": 0.5}], bleu, "bleu")
    other = make_own(tmp_path / "b", [{"bleu": 0.5}, {"bleu": 0.5}, {"bleu": float("inf")}], bleu, "bleu")
    change = compared(one, other).changes[0]
    assert (change.n, change.difference) == (1, 0.0)


def test_a_metric_that_no_row_has_cannot_lead(places: tuple[str, str]) -> None:
    with pytest.raises(UserError, match="no metric 'corpus' that rows have one by one"):
        compared(*places, metric="corpus")


def test_a_macro_f1_tells_equally_good_sides_apart_in_few_cases(tmp_path: Path) -> None:
    labels = ["dry", "wet", "snow", "night"]
    rng = np.random.default_rng(8)
    truth = [labels[i] for i in rng.choice(4, p=[0.6, 0.25, 0.1, 0.05], size=200)]
    checkpoints = {
        f"c{seed}": [label if rng.random() < 0.85 else labels[rng.integers(4)] for label in truth] for seed in range(24)
    }
    task = {"kind": "classification", "labels": labels}
    make_run(tmp_path / "a", checkpoints, task=task, targets=truth)
    moved = 0
    for seed in range(0, 24, 2):
        change = compared(f"{tmp_path}/a:c{seed}", f"{tmp_path}/a:c{seed + 1}", limit=0).change("macro_f1")
        assert change is not None
        moved += change.moved != "no"
    assert moved <= scipy.stats.binom.ppf(0.999, 12, 0.05)
