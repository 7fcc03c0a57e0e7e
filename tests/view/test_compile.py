"""The page of a bench of compilation: what it says, that it loads and runs nothing, that hostile names stay text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from proctor.compile.model import ANSWERS, Compilation, Dispatch, Measured, ProbeAnswers, Shape
from proctor.compile.published import published
from proctor.compile.verdict import verdict
from proctor.rows import UserError
from proctor.view.charts.forest import Factor, forest_chart
from proctor.view.compile import render_compile, write_compile_page
from proctor.view.compile_view import gather
from tests.compile.invented import FASTER, agreement, invented
from tests.view.pages import Page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

EVIL = ["<script>alert(1)</script>", "<img src=x onerror=alert(2)>", "\u202eevil", "{{7*7}}", "</td>", "&amp;"]


def bench() -> Measured:
    return invented(
        {**FASTER, ANSWERS: (0.5, 0.49)},
        dispatches=(Dispatch("embed", 7.6e-6, {"eager": 1234, "compiled": 3}),),
        answers=(ProbeAnswers(ANSWERS, 8, (("row 3", "a car", "a cat"),), True, True),),
        notes=("memory was not measured",),
    )


def shown(measured: Measured, folder: Path) -> Page:
    write_compile_page(folder / "compile.html", measured, verdict(measured))
    return Page(folder / "compile.html")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return shown(bench(), tmp_path_factory.mktemp("page"))


def test_is_one_well_formed_file_that_loads_and_runs_nothing(page: Page) -> None:
    assert page.problems == []
    assert not page.tags() & {"script", "link", "iframe", "object", "embed", "base", "form", "img"}
    assert page.attributes("meta", "content")[0].startswith("default-src 'none';")
    for name in ("src", "href", "srcset", "action", "xlink:href", "style"):
        assert all(value.startswith("#") for tag in page.tags() for value in page.attributes(tag, name))


def test_every_anchor_of_the_contents_leads_somewhere(page: Page) -> None:
    anchors = {link.removeprefix("#") for link in page.attributes("a", "href")}
    assert anchors == set(filter(None, page.attributes("section", "id")))
    assert anchors == {"targets", "pays", "share", "subsets", "outputs", "compiling", "shapes"}


def test_the_verdict_comes_first_and_every_figure_is_there(page: Page) -> None:
    found, words = verdict(bench()), page.words()
    assert words.index("Compile " + found.sentence) < words.index("Targets Seconds of one unit")
    assert "exit code 0" in words
    for one in found.findings:
        assert one.reason in words
    for flag in found.flags:
        assert flag in words
    assert found.amdahl is not None
    assert f"Within what the share allows. {found.amdahl.reason}" in words
    view = gather(bench(), found)
    assert view.unaccounted is not None
    assert f"in no target the encoder less its targets {view.unaccounted[0]} {view.unaccounted[1]}" in words
    assert "blocks and merger" in words
    assert "embed 7.60 µs 1,234 3" in words
    assert "answers of 8 probes row 3 a car a cat" in words
    assert "memory was not measured" in words
    assert "12 rounds in 4 processes" in words
    for paid in view.paid:
        assert f"{paid.name} {paid.cold} {paid.warm}" in words
    assert all(net.worth == "comes out ahead" for net in view.nets)


def test_warm_up_rounds_are_shown() -> None:
    measured = bench()
    slow = tuple(
        replace(one, seconds=50.0) if one.round < 0 and (one.target, one.arm) == ("blocks", "compiled") else one
        for one in measured.timings
    )
    lines = gather(replace(measured, timings=slow), verdict(measured)).warm_ups
    (line,) = [one for one in lines if (one.target, one.arm) == ("blocks", "compiled")]
    assert line.first == "50.0 s"
    assert float(line.factor.removesuffix("x").replace(",", "")) > 100
    assert all(float(one.factor.removesuffix("x")) < 2 for one in lines if one is not line)


def test_single_figures_are_shown_without_intervals(tmp_path: Path) -> None:
    page = shown(published(), tmp_path)
    words = page.words()
    assert "Could not tell Nothing can be concluded: everything was seen in one process only" in words
    assert "exit code 3" in words
    assert "More than the share allows" in words
    assert "answers 0 cold 12.9 s graphs are not known" in words
    assert "answers 12,787 rows \u2013" in words
    assert "loses 4.22 s: by the bare values, without an interval" in words
    assert "in no target the encoder less its targets 88.8 ms 88.8 ms" in words
    assert not any("whisker" in name for name in page.attributes("line", "class"))


def test_no_name_can_speak_for_the_page(tmp_path: Path) -> None:
    measured = bench()
    evil = Shape(name=EVIL[0], images=1, patches=1, rows=1, share=1.0)
    hostile = replace(
        measured,
        subject={EVIL[0]: EVIL[1], "model": EVIL[0], "engine": {EVIL[2]: [EVIL[3]]}},
        targets={EVIL[1]: 3, **measured.targets},
        shapes=(evil,),
        timings=tuple(replace(one, target=EVIL[1], shape=EVIL[0]) for one in measured.timings),
        compilations=(Compilation(EVIL[1], 0, "cold", 1.0, 1, (EVIL[0],), (EVIL[1],), (EVIL[4],)),),
        agreements=(agreement(EVIL[1], EVIL[0], passed=False, reason=EVIL[0]),),
        answers=(ProbeAnswers(EVIL[0], 1, ((EVIL[0], EVIL[1], EVIL[4]),), True, True),),
        dispatches=(Dispatch(EVIL[0], 1.0),),
        notes=(EVIL[5],),
    )
    page = shown(hostile, tmp_path)
    assert page.problems == []
    assert not page.tags() & {"script", "img"}
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    for text in (EVIL[0], EVIL[1], *EVIL[3:]):
        assert text in page.text
    assert "\u202e" not in page.text


def test_the_headline_is_not_said_twice(tmp_path: Path) -> None:
    found = verdict(replace(bench(), rows=20))
    assert found.sentence.startswith("Do not compile. End to end: ")
    assert "Do not compile End to end: " in shown(replace(bench(), rows=20), tmp_path).words()


def test_an_empty_bench_gets_a_short_page(tmp_path: Path) -> None:
    page = shown(Measured(subject={}, targets={}, shapes=()), tmp_path)
    assert page.problems == []
    assert "Nothing can be concluded: nothing was timed in both arms." in page.words()
    assert set(filter(None, page.attributes("section", "id"))) == {"targets"}
    assert "svg" not in page.tags()


def test_it_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "compile.html").write_text("earlier")
    (tmp_path / "compile.html.partial").mkdir()
    with pytest.raises(UserError, match="cannot be written"):
        write_compile_page(tmp_path / "compile.html", bench(), verdict(bench()))
    assert (tmp_path / "compile.html").read_text() == "earlier"


def test_factors_stand_where_they_belong() -> None:
    chart = forest_chart(
        [
            Factor("slow", 0.5, 0.4, 0.6, "open", "t"),
            Factor("fast", 2.0, 1.5, 2.5, "good", "t"),
            Factor("even", 1.0, None, None, "warn", "t"),
            Factor("far beyond" * 9, 1e9, 1.0, 1e12, "good", "t"),
        ]
    )
    assert chart is not None
    slow, fast, even, far = chart.marks
    assert chart.one - slow.x == pytest.approx(fast.x - chart.one, abs=0.2), "half as fast is as far as twice as fast"
    assert even.x == chart.one
    assert (even.low, even.high) == (None, None)
    assert slow.low is not None
    assert slow.high is not None
    assert slow.low < slow.x < slow.high < chart.one
    assert fast.x < far.x <= chart.right
    assert len(far.name) <= 22
    assert [one.y for one in chart.marks] == sorted(one.y for one in chart.marks)
    assert chart.ticks[0].at >= chart.left
    assert "1x" in {tick.text for tick in chart.ticks}
    assert forest_chart([]) is None


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_a_phone_and_a_desk_and_asks_for_nothing(
    browser: Browser, width: int, scheme: Any, tmp_path: Path
) -> None:
    path = tmp_path / "compile.html"
    path.write_text(render_compile(bench(), verdict(bench())), encoding="utf-8")
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "tables scroll inside, the page does not"
    assert page.locator("svg .dot").count() == 5
    assert (said, asked) == ([], [path.as_uri()])
    page.close()
