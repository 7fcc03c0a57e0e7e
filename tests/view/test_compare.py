"""The page of a comparison, frozen into a file, and what it is made of."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.paired.comparing import Wish, compare
from proctor.paired.model import Change, ChangedRow, Comparison, Measure
from proctor.paired.sides import open_run
from proctor.rows import UserError
from proctor.view.charts.differences import difference_chart
from proctor.view.charts.forest import Factor
from proctor.view.compare import render_comparison, write_compare_page
from proctor.view.compare_view import answer_view, answers_of, comparison_view, flips
from tests.paired.made import make_run
from tests.view.app.asking import Asked

HOSTILE = "<script>alert(1)</script> \ud800"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    place = tmp_path_factory.mktemp("compare") / "run"
    before = ["yes"] * 6 + ["no", "no", ("infer.empty", "?"), None]
    after = ["no <b>", "yes", "yes", ("infer.crashed", "<i>died"), "yes", "yes", "yes", "no", "yes", None]
    run = make_run(place, {"one": before, "two": after})
    (result,) = compare(open_run(run.location).sides, Wish())
    return result


def test_the_page_says_what_was_found_and_lists_what_got_worse(found: Comparison, tmp_path: Path) -> None:
    write_compare_page(tmp_path / "page.html", [found])
    text = (tmp_path / "page.html").read_text("utf-8")
    page = Asked(text.replace("<style>", "").replace("</style>", ""))
    assert {"table", "svg", "del", "ins"} <= page.tags
    assert "run:two against run:one: no difference of accuracy found over 7 rows" in text
    assert "expected rows without a record on either side: 1" in text
    assert "<del>yes</del><ins>no &lt;b&gt;</ins>" in text
    assert "error infer.crashed" in text
    assert "<i>" not in text
    with pytest.raises(UserError, match="no such directory"):
        write_compare_page(tmp_path / "nowhere" / "page.html", [found])


def test_flips_are_all_rows_of_the_share(found: Comparison) -> None:
    change = found.change("accuracy")
    assert change is not None
    flipped = flips(change)
    assert flipped is not None
    assert (flipped.both, flipped.lost, flipped.gained, flipped.neither) == (4, 1, 1, 1)
    assert flipped.both + flipped.lost + flipped.gained + flipped.neither == change.n
    failures = Measure("parse_failures", "parse_error", "share", higher_is_better=False)
    less = flips(Change(failures, 10, a=0.5, b=0.2, worse=1, better=4, p=0.4))
    assert less is not None
    assert (less.both, less.lost, less.gained, less.neither) == (1, 4, 1, 4)
    assert flips(Change(failures, 10, a=0.5, b=0.2, worse=1, better=4, p=0.4, clusters=3)) is None
    assert flips(Change(Measure("ade", "ade", "mean"), 10, a=0.5, worse=1, better=4, p=0.4)) is None


def test_every_fate_and_every_metric_is_there(found: Comparison) -> None:
    view = comparison_view(found)
    assert sum(rows for _, _, rows in view.fates) == 9
    assert [line.name for line in view.lines] == ["accuracy, %", "answered, %", "parse_failures, %"]
    assert view.lines[0].headline
    assert view.chart is not None
    assert [mark.name for mark in view.chart.marks] == ["accuracy", "answered", "parse_failures"]
    assert all(mark.low is not None and mark.low <= mark.x <= (mark.high or 0) for mark in view.chart.marks)


def test_answers_are_cut_and_shown_against_the_first() -> None:
    long = answer_view("x" * 50, "x" * 50, most=10, kind="same")
    assert (long.cut, [piece.text for piece in long.pieces]) == (True, ["x" * 10])
    row = ChangedRow(1, 1, None, None, "scored", "error infer.crashed", None, "yes", None)
    before, after = answers_of(row, 100)
    assert (before.pieces[0].text, before.fate, after.fate, after.error) == ("yes", "", "error infer.crashed", None)
    assert HOSTILE[:20] in answer_view(HOSTILE, None, most=100).pieces[0].text


def test_halves_of_characters_do_not_break_the_page(found: Comparison, tmp_path: Path) -> None:
    odd = ChangedRow(1, 1, HOSTILE, -1.0, "scored", "scored", HOSTILE, "yes", HOSTILE)
    found.regressions.append(odd)
    try:
        assert "<script>" not in render_comparison([found])
        write_compare_page(tmp_path / "page.html", [found])
    finally:
        found.regressions.remove(odd)


def test_the_scale_is_as_wide_to_both_sides_and_never_a_magnifying_glass() -> None:
    assert difference_chart([]) is None
    chart = difference_chart([Factor("a", 0.01, None, None, "open", "a"), Factor("b", -0.02, -0.1, 0.1, "open", "b")])
    assert chart is not None
    assert chart.one == (chart.left + chart.right) / 2
    assert [tick.text for tick in chart.ticks if tick.at == chart.one] == ["0"]
    assert abs(chart.marks[0].x - chart.one) < 10
    assert chart.marks[0].low is None
