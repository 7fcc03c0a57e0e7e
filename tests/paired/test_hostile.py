"""Run directories that are half-written, empty, damaged, or made to mislead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from proctor.paired.comparing import Wish, compare
from proctor.paired.curve import learning_curve
from proctor.paired.gate import Rules, exit_code, gate
from proctor.paired.limits import Limit
from proctor.paired.model import Comparison
from proctor.paired.sides import line_up, open_run
from proctor.results import RunDir
from proctor.rows import UserError
from tests.paired.made import make_run
from tests.storage.bucket import served


def compared(*places: Path | str, **wish: Any) -> Comparison:
    groups, _ = line_up([open_run(str(place)) for place in places])
    (found,) = compare(groups[0], Wish(**wish))
    return found


def part_of(run: RunDir) -> Path:
    (part,) = (run.root / "results").glob("part-*.parquet")
    return part


@pytest.fixture
def sides(tmp_path: Path) -> tuple[RunDir, RunDir]:
    one = make_run(tmp_path / "a", {"c": ["yes", "yes", "no", "yes"]})
    return one, make_run(tmp_path / "b", {"c": ["yes", "no", "no", "yes"]})


def test_an_empty_run_has_nothing_to_compare(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {"c": ["yes"]})
    make_run(tmp_path / "b", {"c": [None]})
    with pytest.raises(UserError, match="no records of c yet"):
        compared(tmp_path / "a", tmp_path / "b")
    with pytest.raises(UserError, match="no records of c yet"):
        gate(open_run(str(tmp_path / "b")), None, Rules())


def test_a_half_written_run_is_compared_as_it_is_and_that_is_said(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {"c": ["yes"] * 6})
    make_run(tmp_path / "b", {"c": ["yes", "no", "yes", None, None, None]}, closed=False)
    found = compared(tmp_path / "a", tmp_path / "b")
    assert found.changes[0].n == 3
    assert {(line.a, line.b): line.rows for line in found.account.rows}[("scored", "no record")] == 3
    assert any("never closed" in remark for remark in found.remarks)
    assert exit_code(gate(open_run(str(tmp_path / "b")), None, Rules([Limit("min", "accuracy", 0.0)]))) == 5


def test_records_that_are_there_twice_count_once_and_are_stated(sides: tuple[RunDir, RunDir]) -> None:
    part = part_of(sides[1])
    table = pq.read_table(part)
    wrong = table.set_column(table.schema.get_field_index("correct"), "correct", pa.array([False] * 4))
    pq.write_table(wrong, part.with_name("part-c-0000000009-0000000009-00.parquet"))
    found = compared(sides[0].root, sides[1].root)
    assert found.account.duplicates == (0, 4)
    assert not found.account.sound
    assert (found.changes[0].n, found.changes[0].worse) == (4, 1)
    checked = gate(open_run(str(sides[1].root)), None, Rules())
    assert exit_code(checked) == 3


def test_a_tombstone_gives_way_to_a_final_record(sides: tuple[RunDir, RunDir]) -> None:
    part = part_of(sides[1])
    table = pq.read_table(part).slice(0, 1)
    lost = table.set_column(table.schema.get_field_index("answer"), "answer", pa.nulls(1, pa.large_string()))
    lost = lost.set_column(lost.schema.get_field_index("error_kind"), "error_kind", pa.array(["lost"]))
    pq.write_table(lost, part.with_name("part-c-0000000000-0000000000-00.tombstone.parquet"))
    found = compared(sides[0].root, sides[1].root)
    assert [(line.a, line.b, line.rows) for line in found.account.rows] == [("scored", "scored", 4)]


def test_records_with_both_or_neither_are_never_scored(sides: tuple[RunDir, RunDir]) -> None:
    part = part_of(sides[1])
    table = pq.read_table(part)
    kinds = pa.array(["infer.empty", None, None, None])
    table = table.set_column(table.schema.get_field_index("error_kind"), "error_kind", kinds)
    pq.write_table(table, part)
    found = compared(sides[0].root, sides[1].root)
    assert {(line.a, line.b): line.rows for line in found.account.rows} == {
        ("scored", "scored"): 3,
        ("scored", "unsound"): 1,
    }
    assert found.changes[0].n == 3
    assert not found.account.sound


def test_an_invented_error_kind_does_not_grow_the_account(sides: tuple[RunDir, RunDir]) -> None:
    part = part_of(sides[1])
    table = pq.read_table(part)
    table = table.set_column(table.schema.get_field_index("answer"), "answer", pa.nulls(4, pa.large_string()))
    kinds = pa.array([f"\x1b[2J{n}" for n in range(4)])
    pq.write_table(table.set_column(table.schema.get_field_index("error_kind"), "error_kind", kinds), part)
    found = compared(sides[0].root, sides[1].root)
    assert [(line.b, line.rows) for line in found.account.rows] == [("error of no known kind", 4)]


@pytest.mark.parametrize("damage", ["cut", "other checkpoint", "no column", "text for marks", "text for ids"])
def test_damage_is_told_in_one_line(sides: tuple[RunDir, RunDir], damage: str) -> None:
    part = part_of(sides[1])
    table = pq.read_table(part)
    place = table.schema.get_field_index
    if damage == "cut":
        part.write_bytes(part.read_bytes()[:-40])
    elif damage == "other checkpoint":
        pq.write_table(table.set_column(place("checkpoint"), "checkpoint", pa.array(["d"] * 4)), part)
    elif damage == "no column":
        pq.write_table(table.drop_columns(["correct"]), part)
    elif damage == "text for marks":
        pq.write_table(table.set_column(place("correct"), "correct", pa.array(["perhaps"] * 4)), part)
    else:
        pq.write_table(table.set_column(place("row_id"), "row_id", pc.cast(table["row_id"], pa.string())), part)
    with pytest.raises(UserError) as told:
        compared(sides[0].root, sides[1].root)
    assert str(sides[1].root) in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("text", ["[]", "{", '{"c": 3}', '{"c": {"headline": 1, "metrics": []}}'])
def test_metrics_that_are_none_do_not_matter_to_built_in_tasks(sides: tuple[RunDir, RunDir], text: str) -> None:
    (sides[1].root / "metrics.json").write_text(text)
    assert compared(sides[0].root, sides[1].root).changes[0].n == 4


def test_a_source_that_is_none_is_refused(sides: tuple[RunDir, RunDir]) -> None:
    (sides[1].root / "source.json").write_text('{"rows": "many"}')
    with pytest.raises(UserError, match=r"source\.json"):
        compared(sides[0].root, sides[1].root)


def test_looking_at_a_run_does_not_run_the_code_that_it_names(tmp_path: Path) -> None:
    code = tmp_path / "evil.py"
    code.write_text("raise SystemExit('this must not be imported')")
    place = make_run(tmp_path / "a", {"c": ["yes", "no"], "d": ["yes", "yes"]}).root
    text = (place / "spec.yaml").read_text()
    begin = text.index("task:")
    end = text.index("\nsampling:")
    task = f"task:\n  kind: python\n  python: evil:Task\n  directory: {tmp_path}"
    (place / "spec.yaml").write_text(text[:begin] + task + text[end:])
    found = compared(f"{place}:c", f"{place}:d")
    change = found.change("correct")
    assert change is not None
    assert (change.n, change.better, found.headline) == (2, 1, "correct")
    curve = learning_curve([open_run(str(place))], "accuracy", "number")
    assert [point.value.value for point in curve.points if point.value] == [0.5, 1.0]
    assert exit_code(gate(open_run(f"{place}:d"), None, Rules([Limit("min", "accuracy", 0.1)]))) == 0


def test_answers_cannot_command_a_terminal(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from proctor.cli.app import app

    make_run(tmp_path / "a", {"c": ["yes", "yes"]})
    make_run(tmp_path / "b", {"c": ["\x1b[2J[bold]no[/bold]", "yes"]}, samples=["\x1b]0;x", "[/]"])
    done = CliRunner().invoke(app, ["compare", str(tmp_path / "a"), str(tmp_path / "b")])
    assert done.exit_code == 0
    assert "\x1b[2J" not in done.output
    assert "[bold]no[/bold]" in done.output


def test_quotes_in_names_of_columns_are_no_sql(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", {"c": ["yes", "no"], "d": ["yes", "yes"]})
    for part in (run.root / "results").glob("*.parquet"):
        table = pq.read_table(part)
        pq.write_table(table.append_column('x"; drop table pairs; --', pa.array([1, 2])), part)
    found = compared(f"{run.root}:c", f"{run.root}:d", cluster='x"; drop table pairs; --')
    assert found.changes[0].clusters == 2
    assert json.dumps(found.changes[0].n) == "2"


def test_runs_in_object_storage_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(tmp_path / "server") as bucket:
        make_run(bucket.url("a"), {"s1": ["yes", "yes"], "s2": ["yes", "no"]}, options=bucket.options)
        monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.endpoint)
        monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
        found = compared(f"{bucket.url('a')}:s1", f"{bucket.url('a')}:s2")
    assert (found.changes[0].n, found.changes[0].worse) == (2, 1)


def test_how_many_rows_are_unanswered_is_open_where_nobody_knows_how_many_there_are(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {"c": ["yes"]}, fingerprint=None)
    assert exit_code(gate(open_run(str(tmp_path / "a")), None, Rules())) == 3
