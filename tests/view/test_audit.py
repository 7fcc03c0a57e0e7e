"""The page of an audit: what it says, that it loads and runs nothing, and that hostile answers stay text."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proctor.audit import Audit, Lab, Rate, write_audit
from proctor.audit.compare.intervals import rate
from proctor.audit.compare.survival import survival_of
from proctor.audit.model import Survival
from proctor.engines.inspection import Conflict, Inspection, Switch
from proctor.storage.folder import open_folder
from proctor.view.audit import longest_answer, render_audit, write_audit_page
from proctor.view.audit_flips import flip_views, parted
from proctor.view.audit_matrix import matrix, rate_cell
from proctor.view.audit_view import gather
from proctor.view.audit_words import headline
from proctor.view.charts.survival import survival_chart
from proctor.view.charts.threshold import threshold_chart
from tests.audit.planted import audited
from tests.storage.bucket import served
from tests.view.pages import Page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SPLIT = {"name": "SPLIT", "default": 1, "values": [0], "env": True}
EFFECT = {"batch": 5, "nats": 0.6, "knobs": {"SPLIT": 1}}
EVIL = ["<script>alert(1)</script>", "<img src=x onerror=alert(2)>", "\u202eevil", "{{7*7}}", "</mark>", "&amp;"]


def planted(folder: Path, *effects: dict[str, Any], **settings: Any) -> tuple[Audit, Lab]:
    """An audit of twelve rows; its engine has one switch."""
    return audited(folder, *effects, **{"rows": 12, "batch_size": 8, "knobs": [SPLIT], "near_ties": 0.2, **settings})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Audit, Lab]:
    """An effect from batches of 5 on, which a switch ends."""
    return planted(tmp_path_factory.mktemp("made"), EFFECT)


@pytest.fixture(scope="module")
def page(made: tuple[Audit, Lab], tmp_path_factory: pytest.TempPathFactory) -> Page:
    folder = tmp_path_factory.mktemp("page")
    write_audit(folder, *made)
    return Page(write_audit_page(folder))


def shown(audit: Audit, folder: Path) -> Page:
    (folder / "page.html").write_text(render_audit(audit), encoding="utf-8")
    return Page(folder / "page.html")


def test_is_one_well_formed_file_that_loads_and_runs_nothing(page: Page) -> None:
    assert page.problems == []
    assert not page.tags() & {"script", "link", "iframe", "object", "embed", "base", "form", "img"}
    policy = page.attributes("meta", "content")[0]
    assert policy.startswith("default-src 'none';")
    assert "script-src" not in policy
    for name in ("src", "href", "srcset", "action", "xlink:href", "style"):
        assert all(value.startswith("#") for tag in page.tags() for value in page.attributes(tag, name))


def test_every_anchor_of_the_contents_leads_somewhere(page: Page) -> None:
    anchors = {link.removeprefix("#") for link in page.attributes("a", "href")}
    assert anchors == set(page.attributes("section", "id"))
    assert {"findings", "matrix", "survival", "thresholds", "flips", "remedies", "untried", "fingerprint"} <= anchors


def test_the_verdict_comes_first(made: tuple[Audit, Lab], page: Page) -> None:
    audit, words = made[0], page.words()
    assert audit.verdict.kind == "isolated"
    assert words.index("Cause found " + audit.verdict.sentence) < words.index("Findings")
    assert "exit code 4" in words
    assert "batch from 5 on, not up to 4" in words
    for line in (*audit.verdict.evidence, *audit.verdict.ruled_out):
        assert line in words
    for name, why in audit.verdict.untried:
        assert f"{name} {why}" in words
    for remedy in audit.remedies:
        cost = "not measured" if remedy.throughput is None else f"\u00d7 {remedy.throughput:.2f}"
        assert f"{remedy.setting} {remedy.effect} {remedy.result} {cost}" in words


def test_the_matrix_has_every_arm_with_intervals(made: tuple[Audit, Lab], page: Page) -> None:
    audit, words = made[0], page.words()
    found = matrix(audit)
    lines = {line.name: line for group in (*found.groups, *found.added) for line in group.lines}
    assert set(lines) == {one.arm.name for one in audit.arms if one.comparison or one.repeats.rows}
    assert found.columns[0] == "Agrees with itself"
    equal = made[1].comparison("batch=8").text_equal
    assert equal is not None
    assert equal.hits < equal.of
    cell = lines["batch=8"].cells[found.columns.index("Text equal")]
    assert cell == rate_cell(equal, equal.of)
    assert cell.shade > 0
    assert f"{cell.value} {cell.below}" in words
    assert lines["batch=8"].differs
    assert not lines["batch=4"].differs
    assert lines["logprobs=off"].cells[found.columns.index("Log-probabilities equal")].value == "\u2013"
    assert "further arms that the search" in words


def test_answers_stand_side_by_side_largest_margin_first(made: tuple[Audit, Lab], page: Page) -> None:
    views, left = flip_views(made[0])
    assert left == 0
    margins = [view.flip.margin for view in views]
    assert margins == sorted(margins, key=lambda margin: -(margin or 0.0))
    rows = [view.row_id for view in views]
    assert sorted(rows) == sorted(set(rows)), "the same flip in several rounds is shown once"
    for view in views:
        assert view.often == 2
        assert view.question == f"What is on road {view.row_id}?"
        theirs, ours = (f"{side.same}{side.mark}{side.rest}" for side in (view.theirs, view.ours))
        assert (ours, theirs) == view.flip.texts
        assert view.ours.same == view.theirs.same
        assert view.ours.mark != view.theirs.mark
        assert f"Row {view.row_id} " in page.words()


def test_no_answer_can_speak_for_the_page(tmp_path: Path) -> None:
    audit, lab = planted(tmp_path, {"batch": 2, "nats": 3.0}, words=EVIL)
    hostile = replace(
        audit,
        checkpoint=f"{EVIL[0]}",
        questions=dict.fromkeys(audit.questions, EVIL[1]),
        fingerprint=replace(audit.fingerprint, hardware={EVIL[0]: EVIL[1]}, knobs={EVIL[3]: {EVIL[0]: EVIL[1]}}),
        verdict=replace(audit.verdict, sentence=f"{EVIL[1]}", untried=((EVIL[0], EVIL[1]),), evidence=(EVIL[0],)),
        inspection=Inspection(
            switches=(Switch(name=EVIL[0], exists=True, effect="no effect", why=EVIL[1], where=EVIL[0]),),
            conflicts=(Conflict(switches=(EVIL[0], "b"), loser=EVIL[1], what=EVIL[0], where=(EVIL[1],)),),
        ),
        arms=tuple(replace(s, arm=replace(s.arm, name=s.arm.name.replace("cache", EVIL[0]))) for s in audit.arms),
    )
    write_audit(tmp_path / "hostile", hostile, lab)
    page = Page(write_audit_page(tmp_path / "hostile"))
    assert page.problems == []
    assert not page.tags() & {"script", "img"}
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    for text in (*EVIL[:2], "{{7*7}}", "</mark>", "&amp;"):
        assert text in page.text
    assert "\u202e" not in page.text
    assert f"{EVIL[0]} with b : {EVIL[1]} has no effect" in page.words()


def test_an_innocent_engine_gets_a_short_page(tmp_path: Path) -> None:
    audit, _ = planted(tmp_path)
    page = shown(audit, tmp_path)
    assert "No effect found 12 rows gave the same tokens and log-probabilities, bit for bit" in page.words()
    assert "exit code 0" in page.words()
    sections = set(page.attributes("section", "id"))
    assert not sections & {"flips", "remedies", "thresholds"}
    assert "survival" in sections, "the controls part, and show what would be seen"


def test_noise_is_shown_against_itself(tmp_path: Path) -> None:
    audit, _ = planted(tmp_path, {"noise": True, "batch": 3, "nats": 1.0})
    assert audit.verdict.kind == "run-to-run"
    view = gather(audit)
    assert (view.headline.tone, view.headline.text) == ("bad", "Not the same from run to run")
    assert view.survival is not None
    assert {curve.name for curve in view.survival.curves} <= {s.arm.name for s in audit.arms if s.repeats.differs}
    (chart,) = view.thresholds
    assert chart.knob == "batch"
    assert {one.against for one in view.flips} == {"another round"}
    words = shown(audit, tmp_path).words()
    noisy = next(one for one in audit.arms if one.repeats.differs)
    assert noisy.repeats.unique is not None
    assert f"no {noisy.repeats.unique.hits} of 12 rows vary" in words
    assert "It begins with batch from 3 on, not up to 2." in words


def test_switches_that_do_nothing_are_told(made: tuple[Audit, Lab], tmp_path: Path) -> None:
    switches = (
        Switch(name="disable_cascade_attn", exists=True, effect="no effect", why="removed", where="vllm/config.py:316"),
        Switch(name="gone", exists=False, why="not in this version"),
        Switch(name="fine", exists=True, effect="works"),
    )
    words = shown(replace(made[0], inspection=Inspection(switches=switches)), tmp_path).words()
    assert "disable_cascade_attn no effect removed vllm/config.py:316" in words
    assert "gone does not exist not in this version" in words
    assert " fine " not in words  # a size in the style sheet has that word, too


@given(st.text("ab \n"), st.text("ab \n"))
def test_parted_texts_lose_nothing(one: str, other: str) -> None:
    ours, theirs = parted(one, other)
    assert ("".join(ours), "".join(theirs)) == (one, other)
    if one == other:
        assert (ours.mark, ours.rest, theirs.mark, theirs.rest) == ("", "", "", "")
    else:
        assert ours.mark + ours.rest != theirs.mark + theirs.rest


def test_long_answers_are_cut_around_the_place_where_they_part() -> None:
    ours, theirs = parted("x " * 5000 + "left end" + " y" * 5000, "x " * 5000 + "right end" + " y" * 5000)
    assert (ours.mark, theirs.mark) == ("left", "right")
    assert max(len(part) for part in (*ours, *theirs)) < 500
    assert ours.same.startswith("\u2026")
    assert ours.rest.endswith("\u2026")


def test_survival_curves_are_steps_within_their_bands() -> None:
    import numpy as np

    found = survival_of(np.array([2, 2, 5, 9, 12]), np.array([True, True, True, False, False]))
    chart = survival_chart({"batch=8": found, "quiet": Survival()}, end=20, unit="token")
    assert chart is not None
    (curve,) = chart.curves
    corners = [tuple(map(float, pair.split(","))) for pair in curve.line.split()]
    assert all(a[0] == b[0] or a[1] == b[1] for a, b in itertools.pairwise(corners))
    assert [y for _, y in corners] == sorted(y for _, y in corners), "it only ever falls"
    assert (corners[0][0], corners[-1][0]) == (chart.left, chart.right)
    assert len(curve.steps) == len(found.positions) == 2
    assert "60.0 % are still the same after position 2, of 5 so far" in curve.steps[0].title
    assert survival_chart({"quiet": Survival()}, end=20, unit="token") is None


def test_survival_labels_never_cover_each_other() -> None:
    import numpy as np

    found = survival_of(np.array([1, 1, 1]), np.array([True, True, True]))
    chart = survival_chart({f"arm {n}": found for n in range(9)}, end=4, unit="character")
    assert chart is not None
    places = sorted(curve.label.at for curve in chart.curves)
    assert len(places) == 6
    assert all(b - a >= 15.9 for a, b in itertools.pairwise(places))
    assert places[-1] <= chart.bottom


def test_a_threshold_lies_between_the_two_values() -> None:
    shares: dict[int, Rate] = {1: rate(20, 20), 4: rate(20, 20), 5: rate(5, 20), 8: rate(2, 20)}
    chart = threshold_chart("batch", (4, 5), {"answers": shares, "nothing": {}})
    assert chart is not None
    (series,) = chart.series
    assert [point.x for point in series.points] == sorted(point.x for point in series.points)
    assert (series.points[1].x, series.points[2].x) == (chart.below, chart.above)
    for point in series.points:
        assert point.high <= point.y <= point.low
    assert {tick.text for tick in chart.x_ticks} >= {"4", "5"}
    assert "answers at batch=5: 75.0 % differ" in series.points[2].title
    assert threshold_chart("batch", (4, 4), {"answers": {4: rate(1, 2)}}) is None


@pytest.mark.parametrize(
    ("kind", "sentence", "said"),
    [
        ("no effect found", "No effect found: 8 rows.", "8 rows."),
        ("run-to-run", "Run to run: the same requests differ.", "The same requests differ."),
        ("run-to-run", "Run to run: batch=8 differs.", "batch=8 differs."),
        ("isolated", "batch changes outputs from 5 on: 3 of 4.", "batch changes outputs from 5 on: 3 of 4."),
    ],
)
def test_a_headline_is_not_said_twice(kind: str, sentence: str, said: str) -> None:
    assert headline(kind, sentence).sentence == said


def test_the_longest_answer_is_measured(made: tuple[Audit, Lab], tmp_path: Path) -> None:
    write_audit(tmp_path, *made)
    lengths = [len(one.token_ids) for arm in made[1].arms for one in made[1].observations(arm)]
    assert longest_answer(tmp_path) == max(lengths)
    assert longest_answer(tmp_path / "nothing") == 0


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_a_phone_and_a_desk_and_asks_for_nothing(
    browser: Browser, made: tuple[Audit, Lab], width: int, scheme: Any, tmp_path: Path
) -> None:
    write_audit(tmp_path, *made)
    path = Path(write_audit_page(tmp_path))
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "tables scroll inside, the page does not"
    assert page.locator("svg").count() == 2
    assert page.locator("mark").count() >= 2
    assert (said, asked) == ([], [path.as_uri()])
    page.close()


def test_the_page_goes_where_the_audit_lies(made: tuple[Audit, Lab], tmp_path: Path) -> None:
    write_audit(tmp_path / "audit", *made)
    with served(tmp_path / "server") as bucket:
        run = open_folder(bucket.url("run"), bucket.options)
        for file in (tmp_path / "audit").iterdir():
            run.write(f"audit/{file.name}", file.read_bytes())
        assert write_audit_page(run) == bucket.url("run/audit/audit.html")
        assert run.read("audit/audit.html").decode() == render_audit(
            made[0], longest=longest_answer(tmp_path / "audit")
        )
