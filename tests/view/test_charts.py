from __future__ import annotations

import math
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.rows import Event
from proctor.tasks import Confusion, Metric, Summary
from proctor.view.charts.curve import curves
from proctor.view.charts.heat import heat
from proctor.view.charts.path import SIZE, path
from proctor.view.charts.scale import Scale, nice_step
from proctor.view.charts.timeline import is_trouble, sweep_seconds, timeline


def summary(*metrics: Metric) -> Summary:
    return Summary("exact", metrics)


def share(name: str, value: float | None) -> Metric:
    spread = None if value is None else 0.05
    low = None if value is None or spread is None else max(0.0, value - spread)
    high = None if value is None or spread is None else min(1.0, value + spread)
    return Metric(name, value, low, high, 100, 100)


def test_scale_and_ticks() -> None:
    scale = Scale(0, 10, 100, 200)
    assert [scale(0), scale(5), scale(10)] == [100, 150, 200]
    assert [tick.text for tick in scale.ticks(5, lambda v: f"{v:g}")] == ["0", "2", "4", "6", "8", "10"]


@given(st.floats(1e-6, 1e9))
def test_steps_are_round_and_not_too_small(rough: float) -> None:
    step = nice_step(rough)
    assert rough * (1 - 1e-6) <= step <= 10 * rough
    assert round(step / 10 ** math.floor(math.log10(step * (1 + 1e-9)))) in (1, 2, 5)


def test_curve_shows_the_headline_first_and_leaves_out_what_is_not_learnt() -> None:
    one = summary(share("a.accuracy", 0.5), share("exact", 0.2), share("a.macro_f1", 0.5), share("answered", 1.0))
    (chart,) = curves({"c1": one, "c2": one})
    assert [series.name for series in chart.series] == ["exact", "a.accuracy"]
    assert [tick.text for tick in chart.y_ticks][-1] == "100 %"
    high, low = (next(p.y for p in series.points) for series in chart.series)
    assert low < high, "pixels grow downwards"


def test_curve_of_one_checkpoint_is_none() -> None:
    assert curves({"c1": summary(share("exact", 0.5))}) == []
    assert curves({}) == []


def test_a_checkpoint_without_rows_leaves_a_gap() -> None:
    values = [0.1, None, 0.3, 0.4]
    (chart,) = curves({f"c{i}": summary(share("exact", value)) for i, value in enumerate(values)})
    (series,) = chart.series
    assert [run.count(",") for run in series.runs] == [1, 2]
    assert len(series.points) == 3


def test_values_that_are_not_finite_are_not_drawn() -> None:
    odd = Metric("exact", float("nan"), None, None, 1, 1)
    assert curves({"c1": summary(odd), "c2": summary(odd)}) == []
    far = Metric("exact", 0.5, float("-inf"), float("inf"), 1, 1)
    (chart,) = curves({"c1": summary(far), "c2": summary(far)})
    assert "inf" not in "".join(chart.series[0].bands)


def test_each_unit_has_a_chart_and_labels_keep_their_distance() -> None:
    metrics = [share("exact", 0.5), share("b.accuracy", 0.5), share("c.accuracy", 0.5), share("d.accuracy", 0.01)]
    metrics.append(Metric("ade", 1.7, 1.5, 1.9, 100, 100, unit="m"))
    both = {"c1": summary(*metrics), "c2": summary(*metrics)}
    shares, metres = curves(both)
    assert metres.title == "m"
    places = sorted(series.label.at for series in shares.series)
    assert all(b - a >= 15.9 for a, b in pairwise(places))
    assert max(places) <= shares.bottom


def test_many_checkpoints_do_not_write_over_each_other() -> None:
    names = [f"checkpoint-{i:06d}" for i in range(40)]
    (chart,) = curves({name: summary(share("exact", 0.5)) for name in names})
    assert len(chart.x_ticks) <= 6
    assert chart.x_ticks[-1].at == chart.series[0].points[-1].x


def test_heat_shades_by_the_share_of_the_target() -> None:
    chart = heat(Confusion("surface", ("dry", "wet"), ((3, 1), (0, 0))))
    assert [(cell.text, cell.shade, cell.on_diagonal) for cell in chart.cells] == [
        ("3", 0.75, True),
        ("1", 0.25, False),
        ("", 0.0, False),
        ("", 0.0, True),
    ]
    assert [tick.text for tick in chart.recalls] == ["75 %"]
    assert chart.cells[1].title == "target dry, answered wet: 1 of 4"
    assert chart.total == 4


def test_heat_of_many_labels_keeps_the_most_frequent_and_says_so() -> None:
    labels = tuple(f"label {i}" for i in range(30))
    counts = tuple(tuple(i if i == j else 0 for j in range(30)) for i in range(30))
    chart = heat(Confusion("label", labels, counts))
    assert len(chart.rows) == 20
    assert chart.rows[0].text == "label 10"
    assert chart.note == "the 20 most frequent of 30 labels; 45 rows lie outside"


@given(
    st.lists(st.tuples(st.floats(-1e4, 1e4), st.floats(-1e4, 1e4)), max_size=6),
    st.lists(st.tuples(st.floats(-1e4, 1e4), st.floats(-1e4, 1e4)), max_size=6),
)
def test_paths_stay_inside_the_plot(answer: list[tuple[float, float]], target: list[tuple[float, float]]) -> None:
    chart = path(answer, target)
    for mark in (*chart.answer, *chart.target):
        assert 0 <= mark.x <= SIZE
        assert 0 <= mark.y <= SIZE
    assert 2 <= len(chart.x_ticks) + len(chart.y_ticks) <= 20
    assert len(chart.errors) == min(len(answer), len(target))


def test_an_absurd_answer_does_not_squash_the_target() -> None:
    chart = path([(0.0, 1.0), (9_000.0, 9_000.0)], [(0.0, 1.0), (1.0, 4.0)])
    assert [mark.outside for mark in chart.answer] == [False, True]
    assert not any(mark.outside for mark in chart.target)
    assert chart.car_y - chart.target[1].y > 30


def test_metres_are_as_long_sideways_as_ahead() -> None:
    chart = path([], [(1.0, 1.0)])
    (mark,) = chart.target
    assert mark.x - chart.car_x == pytest.approx(chart.car_y - mark.y, abs=0.2)


def test_timeline_lanes_bars_and_marks() -> None:
    events = [
        Event("sweep.started", 0.0, message="a: sweep 1"),
        Event("engine.started", 1.0),
        *(Event("engine.crashed", 50.0, message="SIGSEGV") for _ in range(3)),
        Event("sweep.ended", 100.0, message="a: 0 rows left"),
    ]
    chart = timeline(events)
    assert chart is not None
    assert [(lane.kind, lane.events, lane.trouble) for lane in chart.lanes] == [
        ("sweeps", 1, False),
        ("engine.crashed", 3, True),
        ("engine.started", 1, False),
    ]
    (mark,) = chart.lanes[1].marks
    assert (mark.events, mark.title) == (3, "+0:50 engine.crashed (and 2 more): SIGSEGV")
    assert chart.lanes[0].bars[0].title == "a: sweep 1, a: 0 rows left"
    assert sweep_seconds(events) == 100


def test_what_lasted_is_a_bar_and_what_did_not_a_mark() -> None:
    events = [
        Event("sweep.started", 0.0, message="a: sweep 1"),
        Event("engine.started", 10.0, engine="one"),
        Event("engine.loaded", 40.0, engine="one", duration=30.0),
        Event("engine.started", 12.0, engine="two"),
        Event("engine.stalled", 50.0, engine="one", duration=0.01),
        Event("quarantine.started", 50.0, engine="one"),
        Event("quarantine.ended", 51.0, engine="two"),
        Event("quarantine.ended", 70.0, engine="one"),
        Event("engine.loaded", 80.0, duration=1e9),
        Event("engine.closed", 90.0, engine="one"),
        Event("sweep.ended", 100.0, message="a: 0 rows left"),
    ]
    chart = timeline(events)
    assert chart is not None
    lanes = {lane.kind: lane for lane in chart.lanes}
    across = Scale(0, 100, chart.left, chart.width - 16)
    shown = {kind: [(bar.x, round(bar.x + bar.width, 1)) for bar in lane.bars] for kind, lane in lanes.items()}
    assert shown["engine.started"] == [(across(10), across(90))]
    assert [mark.x for mark in lanes["engine.started"].marks] == [round(across(12))]  # nobody says that it ended
    assert shown["engine.loaded"] == [(across(10), across(40)), (across(0), across(80))]
    assert shown["quarantine.started"] == [(across(50), across(70))]
    assert lanes["quarantine.started"].bars[0].title == "+0:50 quarantine.started: , 0:20"
    assert (shown["engine.stalled"], len(lanes["engine.stalled"].marks)) == ([], 1)


def test_timeline_of_an_interrupted_sweep_of_one_event_and_of_none() -> None:
    assert timeline([]) is None
    chart = timeline([Event("sweep.started", 5.0, message="a: sweep 1")])
    assert chart is not None
    assert chart.lanes[0].bars[0].title == "a: sweep 1, without an end"
    assert sweep_seconds([Event("sweep.started", 5.0)]) == 0


def test_sweeps_that_stand_on_the_same_pixels_are_drawn_once_and_counted() -> None:
    sweeps = [
        Event(f"sweep.{what}", float(n), message="x" * 9_000) for n in range(5_000) for what in ("started", "ended")
    ]
    chart = timeline([*sweeps, Event("sweep.started", 50_000.0, message="last")])
    assert chart is not None
    (lane,) = chart.lanes
    told = [re.search(r"and ([\d,]+) more", bar.title) for bar in lane.bars]
    assert lane.events == 5_001 == len(lane.bars) + sum(int(found[1].replace(",", "")) for found in told if found)
    assert len(lane.bars) < 200
    assert max(len(bar.title) for bar in lane.bars) < 400
    assert lane.bars[-1].title == "last, without an end"


@pytest.mark.parametrize("days", [0.001, 0.5, 3, 400])
def test_the_time_axis_has_a_handful_of_ticks(days: float) -> None:
    chart = timeline([Event("a", 0.0), Event("b", days * 86400)])
    assert chart is not None
    assert 2 <= len(chart.ticks) <= 10


def test_what_counts_as_trouble() -> None:
    assert is_trouble("engine.crashed")
    assert is_trouble("breaker.opened")
    assert not is_trouble("engine.loaded")
    assert not is_trouble("quarantine.ended")
