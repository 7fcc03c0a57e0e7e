"""The learning curve: order, steps, and what is said where something is missing."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from proctor.cli.app import app
from proctor.paired.curve import LearningCurve, learning_curve
from proctor.paired.sides import open_run
from proctor.rows import UserError
from proctor.view.curve import render_curve
from tests.paired.made import answers, drawn, make_run


def curve(*places: Path | str, metric: str | None = None, given: bool = False) -> LearningCurve:
    return learning_curve([open_run(str(place)) for place in places], metric, "given" if given else "number")


def labels(found: LearningCurve) -> list[str]:
    return [point.label for point in found.points]


def test_checkpoints_stand_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {"step-1000": ["yes"], "step-200": ["no"], "step-50": ["no"]})
    found = curve(tmp_path / "a")
    assert (labels(found), found.order) == (["step-50", "step-200", "step-1000"], "number")
    assert labels(curve(tmp_path / "a", given=True)) == ["step-1000", "step-200", "step-50"]


@pytest.mark.parametrize(
    "names", [["step-10", "final", "step-2"], ["step-10", "steps-10", "step-2"], ["base", "tuned"]]
)
def test_names_that_do_not_say_an_order_stand_as_given(tmp_path: Path, names: list[str]) -> None:
    make_run(tmp_path / "a", {name: ["yes"] for name in names})
    found = curve(tmp_path / "a")
    assert (labels(found), found.order) == (names, "given")


def test_epochs_and_steps_count_in_their_order(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {name: ["yes"] for name in ("e2-s50", "e1-s900", "e10-s5")})
    assert labels(curve(tmp_path / "a")) == ["e1-s900", "e2-s50", "e10-s5"]


def test_each_step_is_paired_with_the_checkpoint_before(tmp_path: Path) -> None:
    right = {f"s{step}": drawn(step, 400, share) for step, share in ((1, 0.3), (2, 0.6), (3, 0.61))}
    make_run(tmp_path / "a", {name: answers(each) for name, each in right.items()})
    found = curve(tmp_path / "a")
    first, second, third = found.points
    assert first.change is None
    assert second.change is not None
    assert third.change is not None
    assert second.change.worse == sum(a and not b for a, b in zip(right["s1"], right["s2"], strict=True))
    assert (second.change.moved, third.change.moved) == ("better", "no")
    assert [point.value.value for point in found.points if point.value] == [sum(r) / 400 for r in right.values()]
    assert found.best is not None
    assert found.best.label == max(right, key=lambda name: sum(right[name]))


def test_runs_follow_each_other_and_steps_are_only_given_within_a_source(tmp_path: Path) -> None:
    make_run(tmp_path / "run-20", {"model": ["yes", "yes"]})
    make_run(tmp_path / "run-3", {"model": ["no", "yes"]})
    make_run(tmp_path / "run-100", {"model": ["no", "yes"]}, fingerprint="g")
    found = curve(*(tmp_path / name for name in ("run-20", "run-3", "run-100")))
    assert labels(found) == ["run-3", "run-20", "run-100"]
    assert found.points[1].change is not None
    assert found.points[2].change is None
    assert "not the source of run-20" in found.points[2].note


def test_a_checkpoint_without_records_is_a_gap_and_said(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {"s1": ["no", "no"], "s2": [None, None], "s3": ["yes", "no"]}, closed=False)
    found = curve(tmp_path / "a")
    assert [(point.note, point.value is None) for point in found.points] == [
        ("", False),
        ("no records yet", True),
        ("", False),
    ]
    last = found.points[2].change
    assert last is not None
    assert last.better == 1


def test_a_macro_f1_and_a_distance_have_curves(tmp_path: Path) -> None:
    from tests.view.helpers import make_run as make_driving

    run = make_driving(tmp_path, 100).location
    by_f1, by_distance = curve(run, metric="obstacle.macro_f1"), curve(run, metric="ade")
    assert all(point.change is not None for point in by_f1.points[1:])
    assert by_distance.best is not None
    assert by_distance.best.value is not None
    known = [p.value.value for p in by_distance.points if p.value and p.value.value is not None]
    assert by_distance.best.value.value == min(known)


def test_what_has_no_curve_is_said(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {"s1": ["yes"]})
    make_run(tmp_path / "b", {"s2": ["yes"]}, task={"kind": "regex", "prompt": "?", "pattern": "yes"})
    make_run(tmp_path / "c", {"s1": [None]})
    for places, metric, said in (
        (("a",), "f1", "no metric 'f1'"),
        (("a", "b"), None, "different tasks"),
        (("c",), None, "no checkpoint has metrics yet"),
        (("a", "a"), None, "there twice"),
    ):
        with pytest.raises(UserError, match=said):
            curve(*(tmp_path / place for place in places), metric=metric)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_page_shows_every_point_and_needs_nothing(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {f"s{step}": answers(drawn(step, 50, step / 5)) for step in (1, 2, 3, 4)})
    page = render_curve(curve(tmp_path / "a"))
    reader = _Reader()
    reader.feed(page)
    assert reader.tags.count("circle") == 4
    assert not {"script", "link", "img", "iframe"} & set(reader.tags)
    assert {"s1", "s2", "s3", "s4"} <= {text.strip() for text in reader.text}


def test_the_command_writes_the_page_and_speaks_json(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {"s1": ["no", "no"], "s2": ["yes", "no"]})
    page = tmp_path / "curve.html"
    done = CliRunner().invoke(app, ["curve", str(tmp_path / "a"), "--page", str(page), "--json"])
    lines = [json.loads(line) for line in done.output.splitlines()]
    assert done.exit_code == 0
    assert [line["event"] for line in lines] == ["point", "point", "curve"]
    assert lines[1]["change"]["better"] == 1
    assert lines[2]["best"] == "s2"
    assert page.read_text().startswith("<!doctype html>")
    refused = CliRunner().invoke(app, ["curve", str(tmp_path / "a"), "--page", str(tmp_path / "no" / "x.html")])
    assert isinstance(refused.exception, UserError)
    shown = CliRunner().invoke(app, ["curve", str(tmp_path / "a")])
    assert "best: s2" in shown.output
