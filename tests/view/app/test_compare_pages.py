"""The pages of a comparison, asked in this process."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from tests.paired.made import make_run as make_small
from tests.view.app.asking import ask, client_of, links
from tests.view.helpers import HOSTILE

RUN = "runs/good/night-drive"
TWO = f"/compare?side={RUN}:step-0400&side={RUN}:step-1600"


def test_from_nothing_to_two_sides_and_a_row(client: TestClient) -> None:
    _, empty = ask(client, "/compare")
    (first,) = [link for link in links(empty, "compare") if "night-drive" in link and "good" in link]
    text, one = ask(client, first)
    assert "step-6400" in text  # the last checkpoint, if none is named
    second = next(link for link in links(one, "compare") if link.endswith("step-0400") and link.count("side=") == 2)
    text, both = ask(client, second)
    assert "night-drive:step-0400 against night-drive:step-6400: exact is worse by" in text
    assert {"ins", "del", "svg"} <= both.tags
    text, row = ask(client, links(both, "compare/row")[0])
    assert "image 1 of 1" in text
    assert "Parsed and scored" in text
    assert [link for link in links(row, "row") if "step-6400" in link]
    (following,) = [
        link for link in links(row, "compare/row") if "later" in text and link != links(both, "compare/row")[0]
    ]
    text, _ = ask(client, following)
    assert "← earlier" in text


def test_runs_and_checkpoints_are_ticked_in_forms(client: TestClient) -> None:
    text, _ = ask(client, "/")
    assert f'form="compare" name="side" value="{RUN}:"' in text
    text, _ = ask(client, "/run?in=runs&path=good/night-drive")
    sides = re.findall(r'name="side" value="([^"]+)"', text)
    assert sides == [f"{RUN}:step-{step}" for step in ("0100", "0400", "1600", "6400")]
    assert "b against a" in ask(client, f"/compare?side={sides[0]}&side={sides[3]}")[0]


def test_regressions_stand_first_and_pages_follow_each_other(client: TestClient) -> None:
    text, first = ask(client, f"{TWO}&size=5")
    kinds = re.findall(r"(▼ worse|▲ better|≠ different)", text)
    assert kinds[0] == "▼ worse"
    (later,) = [link for link in links(first, "compare") if "after=" in link]
    _, second = ask(client, later)
    assert not set(links(first, "compare/row")) & set(links(second, "compare/row"))
    (earlier,) = [link for link in links(second, "compare") if "before=" in link]
    assert links(ask(client, earlier)[1], "compare/row") == links(first, "compare/row")


def test_rows_are_filtered_by_kind_and_by_the_columns_of_each_side(client: TestClient) -> None:
    shown = int(re.findall(r"([\d,]+) rows ·", ask(client, f"{TWO}&show=improvement")[0])[0])
    text, _ = ask(client, f"{TWO}&show=all&filter={quote('b.exact and not a.exact')}")
    assert f"{shown} rows ·" in text
    listed = client.get(f"{TWO}&show=improvement".replace("/compare?", "/compare/ids?")).text.splitlines()
    assert len(listed) == shown == len(set(listed))
    assert listed == sorted(listed, key=int)
    text, _ = ask(client, f"{TWO}&filter={quote('b.exakt')}", 400)
    assert "did you mean b.exact" in text
    assert "<mark>b.exakt</mark>" in text
    ask(client, f"{TWO}&after=AAAA", 400)


def test_sides_are_pinned_moved_dropped_and_judged_by_links(client: TestClient) -> None:
    text, page = ask(client, f"{TWO}&side={RUN}:step-6400&metric=ade&strict=yes&add=yes")
    assert "judged" not in text.lower() or "Judge rows by" in text
    assert "c against a" in text
    links_ = [link for link in links(page, "compare") if "after=" not in link]
    first, second, third = (f"night-drive%3Astep-{step}" for step in ("0400", "1600", "6400"))
    order = {tuple(re.findall(r"night-drive%3Astep-\d+", link)) for link in links_}
    assert {
        (second, first, third),
        (third, first, second),
        (first, third, second),
        (second, third),
        (first, third),
    } <= order
    assert any("metric=exact" in link for link in links_)
    assert any("by=sample-id" in link and "strict=yes" in link for link in links_)
    assert any(link.count("side=") == 4 for link in links_)


@pytest.mark.parametrize(
    ("asked", "status", "told"),
    [
        (f"side={RUN}:step-0400&side={RUN}:nothing", 404, "no checkpoint &#39;nothing&#39;"),
        (f"side=elsewhere/x&side={RUN}", 404, "no such directory is open"),
        ("side=runs/../..&side=runs/good", 404, "no path below the opened directories"),
        ("&".join(f"side={RUN}:step-0{n}00" for n in range(1, 6)), 404, "at most 4 sides"),
        (f"side={RUN}:step-0400&side={RUN}:step-1600&metric=nothing", 400, "no metric"),
        (f"side={RUN}:&side={RUN}:step-6400", 400, "twice"),
        (f"side={RUN}:step-0400&side=runs/damaged", 404, "stored spec not understood"),
    ],
)
def test_what_cannot_be_compared_is_told_in_a_line(client: TestClient, asked: str, status: int, told: str) -> None:
    text, _ = ask(client, f"/compare?{asked}", status)
    assert told in text


def test_what_a_model_says_is_text(client: TestClient) -> None:
    run = quote("runs/evil <b>&\"'/night-drive")
    text, _ = ask(client, f"/compare?side={run}:step-0400&side={run}:step-1600&show=all&size=100")
    assert HOSTILE not in text
    assert "&lt;script&gt;" in text


def test_runs_of_other_sources_are_paired_by_sample_id_on_demand(tmp_path: Path) -> None:
    make_small(tmp_path / "one", {"c": ["yes", "no"]}, fingerprint="1")
    make_small(tmp_path / "two", {"c": ["no", "no", "yes"]}, fingerprint="2")
    with client_of(tmp_path) as client:
        place = f"/compare?side={tmp_path.name}/one&side={tmp_path.name}/two"
        text, page = ask(client, place, 400)
        assert "not the same source" in text
        (by_sample,) = [link for link in links(page, "compare") if "by=sample-id" in link]
        text, _ = ask(client, by_sample)
        assert "paired by sample id" in text
        assert "on one side only 1" in text
        ask(client, f"{by_sample}&filter={quote('kind = ' + chr(34) + 'regression' + chr(34))}")
        gone, _ = ask(client, by_sample.replace("/compare?", "/compare/row?") + "&key=nothing", 404)
        assert "None of these sides has such a row" in gone
