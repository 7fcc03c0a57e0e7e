from __future__ import annotations

import json
import math
import pickle
from typing import Any

import pytest

from proctor.rows import ImagePart
from proctor.spec.source import ColumnsSpec
from proctor.spec.task import DrivingTaskSpec
from proctor.tasks import Task
from proctor.tasks.marking import mark
from proctor.tasks.registry import make_task
from tests.tasks.helpers import records, sample, summarise

TARGET = {"surface": "wet", "curvature": "left", "obstacle": "near", "waypoints": [[0.0, 1.0], [0.0, 2.0]]}
RIGHT = "wet; curve left; obstacle near; waypoints (+0.0,1.0) (+0.0,2.0)"


@pytest.fixture
def task() -> Task:
    return make_task(DrivingTaskSpec(kind="driving"), ColumnsSpec(target="truth"))


def test_asks_its_own_question_after_the_frames(task: Task) -> None:
    (message,) = task.prompt(sample(images=[b"x"] * 3))
    assert message.parts[:3] == (ImagePart(), ImagePart(), ImagePart())
    assert message.parts[3].text == "Describe the road and plan the path."


def test_targets_are_data_or_its_text(task: Task) -> None:
    assert task.target(sample(truth=TARGET)) == TARGET
    assert task.target(sample(truth=json.dumps(TARGET))) == TARGET
    assert task.target(sample(truth=None)) is None
    with pytest.raises(ValueError, match="the target is not JSON"):
        task.target(sample(truth="wet"))
    with pytest.raises(ValueError, match="target column 'truth' is not in the row; it has other"):
        task.target(sample(other=1))


def test_a_right_answer(task: Task) -> None:
    scores = mark(task, RIGHT, TARGET).scores
    assert set(scores) == set(task.columns)
    assert scores["exact"] is True
    assert scores["ade"] == scores["fde"] == 0
    assert scores["waypoints"] == scores["waypoints_target"] == [[0.0, 1.0], [0.0, 2.0]]


def test_distances_are_euclidean_metres(task: Task) -> None:
    scores = mark(task, "dry; curve left; obstacle near; waypoints (3,5) (0,3)", TARGET).scores
    assert scores["ade"] == pytest.approx((5 + 1) / 2)
    assert scores["fde"] == pytest.approx(1)
    assert (scores["surface"], scores["surface_target"], scores["surface_correct"]) == ("dry", "wet", False)
    assert scores["curvature_correct"] is True
    assert scores["exact"] is False


def test_a_missing_waypoint_shows_in_the_counts_and_in_fde(task: Task) -> None:
    short = mark(task, "wet; curve left; obstacle near; waypoints (0,1)", TARGET).scores
    assert (short["ade"], short["fde"], short["waypoints_count_match"], short["exact"]) == (0, 1, False, False)
    long = mark(task, f"{RIGHT} (0,3) (0,4)", TARGET).scores
    assert (long["ade"], long["fde"], long["waypoints_count_match"], long["exact"]) == (0, 2, False, False)


def test_without_a_target_only_the_prediction_is_kept(task: Task) -> None:
    marked = mark(task, RIGHT, None)
    assert marked.parsed
    assert set(marked.scores) == {"surface", "curvature", "obstacle", "waypoints"}


def test_a_broken_target_is_the_rows_error_and_names_the_target(task: Task) -> None:
    failure = mark(task, RIGHT, TARGET | {"surface": "foggy"}).failure
    assert failure is not None
    assert failure.message == "ValueError: the target: surface: 'foggy' is not one of dry, wet, snow, night"


def test_summary_against_numbers_worked_out_by_hand(task: Task) -> None:
    rows: list[tuple[str | None, Any]] = [
        (RIGHT, TARGET),
        ("dry; curve left; obstacle near; waypoints (0,1) (0,2)", TARGET),
        ("wet; straight; clear; waypoints (1,1) (2,2)", TARGET | {"curvature": "straight", "obstacle": "clear"}),
        ("wet; curve left; obstacle near; waypoints (0,1)", TARGET),
        ("no idea", TARGET),
        (None, TARGET),
        (RIGHT, None),
    ]
    summary, metrics = summarise(task, records(task, rows), expected=8)
    assert summary.headline == "exact"
    assert {m.of for m in summary.metrics} == {8}

    assert (metrics["exact"].value, metrics["exact"].n) == (0.25, 4)
    assert (metrics["surface.accuracy"].value, metrics["surface.accuracy"].n) == (0.75, 4)
    # wet: TP 3, FN 1 -> 6/7; dry: FP 1 -> 0; snow and night do not occur.
    assert metrics["surface.macro_f1"].value == pytest.approx(3 / 7)
    assert metrics["curvature.macro_f1"].value == 1
    assert (metrics["ade"].value, metrics["ade"].n, metrics["ade"].unit) == (pytest.approx(1.5 / 4), 4, "m")
    assert metrics["fde"].value == pytest.approx((2 + 1) / 4)
    assert metrics["waypoints.count_match"].value == 0.75
    assert (metrics["answered"].value, metrics["answered"].n) == (6 / 8, 8)
    assert metrics["parse_failures"].value == pytest.approx(1 / 6, abs=1e-12)
    assert (metrics["parse_failures"].n, metrics["parse_failures"].higher_is_better) == (6, False)

    surface = summary.confusions[0]
    assert surface.labels == ("dry", "wet", "snow", "night")
    assert surface.counts == ((0, 0, 0, 0), (1, 3, 0, 0), (0, 0, 0, 0), (0, 0, 0, 0))


def test_every_metric_with_rows_has_bounds_around_its_value(task: Task) -> None:
    lines = [f"wet; curve left; obstacle near; waypoints ({i / 10},1) (0,2)" for i in range(30)]
    _, metrics = summarise(task, records(task, [(line, TARGET) for line in lines] + [("?", TARGET)]))
    for metric in metrics.values():
        if metric.name == "fde":  # all zero: no spread, no interval
            assert (metric.value, metric.low, metric.high) == (0, None, None)
        else:
            assert metric.low is not None
            assert metric.low <= metric.value <= metric.high, metric


def test_blank_answers_are_never_scored(task: Task) -> None:
    _, metrics = summarise(task, records(task, [(None, TARGET)] * 5_848 + [(RIGHT, TARGET)] * 2_752))
    assert (metrics["surface.accuracy"].n, metrics["surface.accuracy"].of) == (2_752, 8_600)
    assert metrics["answered"].value == pytest.approx(2_752 / 8_600)


@pytest.mark.parametrize("rows", [[], [(None, TARGET)], [("no idea", TARGET)], [(RIGHT, None)]])
def test_nothing_to_score_gives_no_value_and_no_crash(task: Task, rows: list[tuple[str | None, Any]]) -> None:
    _, metrics = summarise(task, records(task, rows))
    for name in ("exact", "surface.accuracy", "obstacle.macro_f1", "ade", "fde", "waypoints.count_match"):
        metric = metrics[name]
        assert (metric.value, metric.low, metric.high, metric.n) == (None, None, None, 0)


def test_hostile_distances_stay_finite(task: Task) -> None:
    scores = mark(task, "wet; straight; clear; waypoints (-10000,-10000)", TARGET).scores
    assert math.isfinite(scores["ade"])


def test_survives_pickling(task: Task) -> None:
    copy = pickle.loads(pickle.dumps(task))
    assert mark(copy, RIGHT, TARGET) == mark(task, RIGHT, TARGET)
