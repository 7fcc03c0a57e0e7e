"""A fleet in the browser, without a server: tries from events, what is read again, what it looks like over time."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from proctor.fleet import words
from proctor.fleet.cells import Unit
from proctor.fleet.folder import FleetDir
from proctor.fleet.history import Tries
from proctor.fleet.standing import Standing, unit_standings
from proctor.results import RunDir
from proctor.rows import Event
from proctor.view.browse.fleets import cells
from proctor.view.browse.fleets import gather as gathering
from proctor.view.browse.fleets.attempts import Attempt, attempts_of, queue_of
from proctor.view.browse.fleets.cells import NOT_READ, CellReader
from proctor.view.browse.fleets.gather import FleetPage, gather
from proctor.view.browse.fleets.opening import open_fleet
from proctor.view.browse.marks import fleet_sight
from proctor.view.charts.lanes import Span, lanes_chart
from tests.fleet.staged_cells import YES, fleet_of, make_cells, tell

ENDED = (words.UNIT_ADMITTED, words.UNIT_STARTED, words.UNIT_ENDED)


def told(kind: str, time: float, unit: str = "a", attempt: object = 1, message: str = "", **data: object) -> Event:
    return Event(kind, time, message=message, data={"unit": unit, "attempt": attempt, **data})  # type: ignore[dict-item]


def page_of(place: FleetDir, reader: CellReader, now: float = 2e9) -> FleetPage:
    seen = open_fleet(place.folder)
    return gather(seen, reader.standings(seen), now)


def test_tries_are_told_one_by_one_with_their_reasons() -> None:
    events = [
        told(words.UNIT_STARTED, 1.0, "nobody admitted it"),
        told(words.UNIT_ADMITTED, 10.0),
        told(words.UNIT_STARTED, 12.0),
        told(words.UNIT_STOPPING, 20.0, message="no progress"),
        told(words.UNIT_STUCK, 21.0, message="a person has to"),
        told(words.UNIT_GONE, 25.0, message="", counts=True),
        told(words.UNIT_REQUEUED, 26.0, message="no progress"),
        told(words.UNIT_STARTED, 27.0),  # late: it is gone
        told(words.UNIT_ADMITTED, 30.0, attempt=2),
        told(words.UNIT_STARTED, 31.0, attempt=2),
        told(words.UNIT_ENDED, 40.0, attempt=2, exit_code=3, complete=False),
        told(words.UNIT_GIVEN_UP, 41.0, attempt=2, message="3 tries"),
        told(words.UNIT_ADOPTED, 50.0, "b", "odd", "found at Ray"),
        told(words.UNIT_ADMITTED, 60.0, "c"),
        told(words.UNIT_GONE, 61.0, "c", message="the cluster does not know its job any more", counts=False),
        Event("watcher.started", 70.0, data={"unit": 7}),
    ]
    assert attempts_of(events) == [
        Attempt("a", 1, 10.0, 12.0, 25.0, "gone", "a person has to", counts=True, sequel="queued again"),
        Attempt("a", 2, 30.0, 31.0, 40.0, "ended", "exit code 3", counts=True, sequel="given up"),
        Attempt("b", 1, 50.0, None, None, "submitted", "found at Ray"),
        Attempt("c", 1, 60.0, None, 61.0, "gone", "the cluster does not know its job any more", counts=False),
    ]
    first, second, third, _ = attempts_of(events)
    assert (first.seconds, second.over, third.seconds) == (13.0, True, None)
    assert queue_of([("a", 0), ("b", 2), ("c", 0), ("d", 2)]) == ["b", "d", "a", "c"]


def test_what_lasted_stands_where_it_belongs() -> None:
    chart = lanes_chart(
        [
            Span("late", 7200.0, 10_800.0, "good", "second"),
            Span("early" * 20, 0.0, 3600.0, "bad", "first"),
            Span("late", 10_800.0, 9_000.0, "open", "ends before it begins"),
            Span("never", 0.0, math.inf, "good", "left out"),
        ]
    )
    assert chart is not None
    early, late = chart.lanes
    assert (early.y < late.y, len(early.name) <= 32, late.name) == (True, True, "late")
    (first,), (second, third) = early.bars, late.bars
    assert first.x == chart.left
    assert second.width == pytest.approx(first.width, abs=0.2)
    assert second.x == pytest.approx(first.x + 2 * first.width, abs=0.5)
    assert third.width == 2.0
    assert "+1:00:00 long" not in first.title
    assert first.title.endswith("1:00:00 long")
    assert "1 h" in {tick.text for tick in chart.ticks}
    assert lanes_chart([]) is None
    short = lanes_chart([Span("a", 5.0, 5.0, "good", "")])
    assert short is not None
    assert short.ticks[-1].text.endswith(" s")


def test_what_has_not_changed_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = fleet_of(tmp_path, ["a", "b"])
    make_cells(place, "a", {"a": YES}, "complete")
    make_cells(place, "b", {"b": YES}, "incomplete")
    read: list[str] = []

    def standings(run: RunDir, unit: Unit, tries: Tries) -> list[Standing]:
        read.append(unit.name)
        return unit_standings(run, unit, tries)

    monkeypatch.setattr(cells, "unit_standings", standings)
    reader = CellReader()
    first = page_of(place, reader)
    assert page_of(place, reader).lines == first.lines
    assert sorted(read) == ["a", "b"]
    run = place.run("b")
    run.write("status", {**run.read("status"), "state": "interrupted", "rate": 1.0})
    assert [line.word for line in page_of(place, reader).lines] == ["complete", "interrupted"]
    assert sorted(read) == ["a", "b", "b"]
    tell(place, "a", *ENDED, attempt=1, complete=True)
    assert page_of(place, reader).lines[0].standing.gpu_hours == 2.0
    assert sorted(read) == ["a", "a", "b", "b"]


def test_of_very_many_tries_the_last_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = fleet_of(tmp_path, ["a", "b"])
    tell(place, "b", *ENDED, attempt=1)
    for attempt in range(1, 6):
        tell(place, "a", *ENDED, attempt=attempt, start=10_000.0 * attempt)
    monkeypatch.setattr(gathering, "MOST_ATTEMPTS", 3)
    page = page_of(place, CellReader())
    assert ([one.number for one in page.attempts], page.attempts_left_out) == ([5, 4, 3], 3)
    assert page.lanes is not None
    (lane,) = page.lanes.lanes
    assert (lane.name, len(lane.bars), page.lanes.begin) == ("a", 6, 30_000.0)


def test_cells_for_which_there_is_no_time_come_with_the_next_look(tmp_path: Path) -> None:
    place = fleet_of(tmp_path, ["a", "b", "c"])
    for name in ("a", "b", "c"):
        make_cells(place, name, {name: YES}, "complete")
    hands = iter([0.0, 1.0, 99.0, 99.0, 0.0, 99.0, 1.0, 1.0])
    reader = CellReader(lambda: next(hands))
    page = page_of(place, reader)
    assert [line.word for line in page.lines] == ["complete", NOT_READ, NOT_READ]
    assert (page.not_read, page.lines[1].begun) == (2, False)
    page = page_of(place, reader)
    assert [line.word for line in page.lines] == ["complete"] * 3
    assert page.verdict.headline == "Every cell is done"


def test_tasks_have_a_curve_each_and_choices_a_line_each(tmp_path: Path) -> None:
    exact = {"kind": "exact", "prompt": "?"}
    matrix = {"tasks": {"vqa": exact, "qa": exact}, "set": {"sampling.max_tokens": [16, 64]}}
    place = fleet_of(tmp_path, ["s-20", "s-3"], matrix=matrix)
    for unit in place.fleet().units():
        if unit.name != "s-3--qa--max_tokens=64":
            make_cells(place, unit.name, {unit.cells[0].checkpoint: YES}, "complete")
    page = page_of(place, CellReader())
    assert page.kinds == [f"{task}--max_tokens={most}" for task in ("qa", "vqa") for most in (16, 64)]
    assert page.checkpoints == ["s-3", "s-20"]
    assert [line.standing.cell.name for line in page.lines[:2]] == [
        "s-3--qa--max_tokens=16",
        "s-20--qa--max_tokens=16",
    ]
    assert [caption for caption, _ in page.charts] == ["qa: accuracy", "vqa: accuracy"]
    assert [[(line.name, len(line.points)) for line in chart.series] for _, chart in page.charts] == [
        [("max_tokens=16", 2), ("max_tokens=64", 1)],
        [("max_tokens=16", 2), ("max_tokens=64", 2)],
    ]
    assert page.matrix["s-3", "qa--max_tokens=64"].word == "waiting"
    assert [one.unit for one in page.queue] == ["s-3--qa--max_tokens=64"]


def test_a_fleet_can_be_followed_while_it_is_at_work(tmp_path: Path) -> None:
    place = fleet_of(tmp_path, ["a", "b"])
    make_cells(place, "a", {"a": YES}, "complete")
    before = fleet_sight(place.folder)
    assert before.over
    tell(place, "b", words.UNIT_ADMITTED, attempt=1)
    after = fleet_sight(place.folder)
    assert after.mark != before.mark
    with place.held(lambda _: None):
        assert not fleet_sight(place.folder).over
        seen = open_fleet(place.folder)
        with (tmp_path / "fleet" / "events.jsonl").open("ab") as events:
            events.write(b'{"kind": "unit.start')  # as far as the watcher has come
        assert open_fleet(place.folder).events == seen.events
        page = page_of(place, CellReader())
        assert page.verdict.detail.endswith("a watcher is at work.")
    with place.run("a").locked(lambda _: None):
        assert not fleet_sight(place.folder).over
        assert page_of(place, CellReader()).lines[0].word == "running"
    place.run("a").write("status", {"state": "running"})
    assert fleet_sight(place.folder).mark != after.mark
