"""A row for each cell, whatever lies in its run directory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proctor.cli.app import app
from proctor.fleet import words
from proctor.fleet.finding import find
from proctor.fleet.folder import FleetDir
from proctor.fleet.loading import load_fleet
from proctor.fleet.notes import Notes
from proctor.fleet.resubmit import enter
from proctor.fleet.standing import Standing, standings
from proctor.rows import UserError
from tests.fleet.making import RUN, write_fleet
from tests.fleet.staged_cells import YES, fleet_of, make_cells, tell
from tests.paired.made import answers, make_run


def stands(place: FleetDir) -> dict[str, Standing]:
    return {row.cell.checkpoint: row for row in standings(place, place.fleet().units())}


def test_each_state_has_its_row_and_the_rows_balance(tmp_path: Path) -> None:
    names = ["done", "bad", "part", "dead", "none", "sent", "lost", "kept"]
    place = fleet_of(tmp_path, names)
    make_cells(place, "done", {"done": YES}, "complete")
    tell(place, "done", words.UNIT_ADMITTED, words.UNIT_STARTED, words.UNIT_ENDED, attempt=1, exit_code=0)
    make_cells(place, "bad", {"bad": [("infer.empty", "")] * 4}, "too_many_errors")
    make_cells(place, "part", {"part": ["yes", None, ("lost", ""), "no"]}, "incomplete")
    make_cells(place, "dead", {"dead": ["yes", None, None, None]}, "running", closed=False)
    tell(place, "sent", words.UNIT_ADMITTED, attempt=1)
    for attempt in (1, 2):
        tell(place, "lost", words.UNIT_ADMITTED, words.UNIT_STARTED, words.UNIT_GONE, words.UNIT_REQUEUED,
             start=9000.0 * attempt, attempt=attempt)  # fmt: skip
    tell(place, "lost", words.UNIT_GIVEN_UP, start=50_000.0)
    Notes(place.folder).hold("kept")
    rows = stands(place)
    states = {name: (row.state, row.answered, row.errors, row.unanswered) for name, row in rows.items()}
    assert states == {
        "done": ("complete", 3, 1, 0),
        "bad": ("too_many_errors", 0, 4, 0),
        "part": ("incomplete", 2, 0, 2),
        "dead": ("crashed", 1, 0, 3),
        "none": ("waiting", 0, 0, None),
        "sent": ("submitted", 0, 0, None),
        "lost": ("given up", 0, 0, None),
        "kept": ("held", 0, 0, None),
    }
    assert all(
        r.answered + r.errors + r.unanswered == r.expected == 4 for r in rows.values() if r.unanswered is not None
    )
    assert (rows["done"].score.name, rows["done"].score.n) == ("accuracy", 3)
    assert rows["done"].score.low < rows["done"].score.value < rows["done"].score.high
    assert (rows["done"].rate, rows["done"].attempts, rows["done"].gpu_hours, rows["done"].note) == (2.0, 1, 2.0, "")
    assert (rows["lost"].attempts, rows["lost"].gpu_hours) == (2, 4.0)
    assert rows["lost"].note == "why unit.given_up"
    with place.run("dead").locked(lambda _: None):
        live = stands(place)["dead"]
    assert (live.state, live.rate, live.unanswered) == ("running", 7.0, 3)
    assert rows["part"].attempts == 1  # nobody wrote an event, and yet there was a run
    assert rows["part"].gpu_hours == pytest.approx(2 * 2.0 / 3600)


def test_cells_of_a_unit_stand_by_themselves(tmp_path: Path) -> None:
    place = fleet_of(tmp_path, ["a", "b"], way="parallel")
    run = make_cells(place, "a+1", {"a": YES, "b": ["yes", ("lost", ""), ("lost", ""), "yes"]}, "incomplete")
    tell(place, "a+1", words.UNIT_ADMITTED, words.UNIT_STARTED, words.UNIT_ENDED, attempt=1)
    rows = stands(place)
    assert rows["a"].state == "complete"  # whatever became of the other
    assert (rows["b"].state, rows["b"].unanswered) == ("incomplete", 2)
    assert rows["a"].gpu_hours == rows["b"].gpu_hours == 2.0  # an hour of 4 GPUs between them
    assert rows["b"].address == f"{run}:b"


DAMAGE = {
    "spec.yaml": [b"", b"\xff\xfe", b"run_dir: x", b"{"],
    "status.json": [b"", b"[]", b'{"state": 3, "checkpoints": []}', b'{"checkpoints": {"a": 1}, "seconds": "x"}'],
    "reconciliation.json": [b"{", b"{}", b'{"checkpoints": [{}]}', b'{"checkpoints": 3}'],
    "metrics.json": [b"\0", b'{"a": 3}', b'{"a": {"metrics": [{}]}}'],
    "source.json": [b"x", b"{}", b'{"rows": "many"}'],
    "events.jsonl": [b"\0\0", b"{}"],
}


def test_damage_in_a_run_directory_is_a_row_with_the_reason(tmp_path: Path) -> None:
    place = fleet_of(tmp_path, ["a", "b"])
    make_cells(place, "b", {"b": YES}, "complete")
    root = make_cells(place, "a", {"a": YES}, "complete")
    fine = stands(place)
    for name, contents in DAMAGE.items():
        before = (root / name).read_bytes() if (root / name).exists() else b""
        for content in contents:
            (root / name).write_bytes(content)
            rows = stands(place)
            assert rows["b"] == fine["b"] or rows["b"].state == "complete"
            assert rows["a"].state in ("complete", "crashed", "unreadable"), (name, content)
            assert rows["a"].state == "complete" or rows["a"].note or name == "status.json", (name, content)
        (root / name).write_bytes(before)
    (part,) = (root / "results").glob("part-*.parquet")
    part.write_bytes(b"PAR1")
    broken = stands(place)["a"]
    assert (broken.answered, broken.errors, broken.unanswered) == (0, 0, 4)
    assert "0 records are here, 4 were when the run ended" in broken.note
    part.unlink()
    assert stands(place)["a"].unanswered == 4


def command(*arguments: str | Path) -> object:
    """The exit code, if it is none of success."""
    return app(["fleet", *map(str, arguments)], standalone_mode=False)


def test_the_list_is_printed_for_people_and_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = fleet_of(tmp_path, ["step-1", "step-2"])
    make_cells(place, "step-1", {"step-1": YES}, "complete")
    command("list", place.location)
    told = capsys.readouterr().out
    assert "2 cells: 1 complete, 1 waiting" in told
    assert "66.7 % accuracy" in told
    command("list", tmp_path / "fleet.yaml", "--json")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["event"] for line in lines] == ["cell", "cell", "fleet"]
    assert (lines[0]["name"], lines[0]["state"], lines[0]["score"]["name"]) == ("step-1", "complete", "accuracy")
    assert lines[2]["states"] == {"complete": 1, "waiting": 1}
    with pytest.raises(UserError, match="no fleet here"):
        command("list", tmp_path)


def test_the_cells_of_a_fleet_make_a_curve_and_can_be_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = load_fleet(write_fleet(tmp_path, matrix={
        "checkpoints": ["step-20", "step-3", "step-100"], "tasks": {"vqa": RUN["task"], "qa": RUN["task"]},
    }))  # fmt: skip
    place = FleetDir(fleet.fleet_dir)
    enter(place, fleet, find(fleet).checkpoints)
    for name, right in (("step-3", 10), ("step-20", 25)):
        make_run(place.run(f"{name}--vqa").location, {name: answers([n < right for n in range(40)])})
    with pytest.raises(UserError, match=r"cells of 2 tasks and choices: qa, vqa \(--cells '\*--qa'\)"):
        app(["curve", place.location], standalone_mode=False)
    app(["curve", place.location, "--cells", "*--vqa", "--json"], standalone_mode=False)
    out = capsys.readouterr()
    points = [json.loads(line) for line in out.out.splitlines() if '"point"' in line]
    assert [(point["label"], point["value"]["value"]) for point in points] == [("step-3", 0.25), ("step-20", 0.625)]
    assert points[1]["change"]["difference"] == pytest.approx(0.375)
    assert "not begun yet: 1 cell of" in out.err
    cells = [row.address for row in standings(place, place.fleet().units()) if row.cell.task == "vqa"][:2]
    app(["compare", *cells, "--json"], standalone_mode=False)
    assert '"difference":-0.375' in capsys.readouterr().out
    with pytest.raises(UserError, match="no cell fits 'x'"):
        app(["curve", place.location, "--cells", "x"], standalone_mode=False)
