"""The replays on the page of an audit: every position, where another token leads, and what that is judged to be."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from proctor.audit import Audit
from proctor.view.audit import render_audit
from proctor.view.audit_replay import replay_lines
from tests.audit.planted import audited
from tests.view.pages import Page


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    """An effect from batches of 5 on."""
    found, _ = audited(tmp_path_factory.mktemp("made"), {"batch": 5, "nats": 2.0}, rows=12, batch_size=8)
    return found


def shown(audit: Audit, folder: Path) -> Page:
    (folder / "page.html").write_text(render_audit(audit), encoding="utf-8")
    return Page(folder / "page.html")


def test_replays_show_every_position_and_what_they_are_judged_to_be(audit: Audit, tmp_path: Path) -> None:
    words = shown(audit, tmp_path).words()
    lines = {line.name: line for line in replay_lines(audit)}
    assert set(lines) == {one.arm.name for one in audit.arms if one.replayed is not None}
    found = next(one for one in audit.arms if one.arm.name == "batch=8")
    assert found.replayed is not None
    assert found.replayed.top1_equal is not None
    assert found.judged is not None
    line = lines["batch=8"]
    assert line.more + len(line.places) == found.replayed.top1_equal.of - found.replayed.top1_equal.hits > 0
    assert (line.nature, line.why) == tuple(found.judged)
    for told in (audit.replay, line.places[0], f"{line.nature} {line.why}", "each other only"):
        assert told in words
    assert line.leads.n == f"n {found.replayed.top1_equal.of}"


def test_without_replays_the_page_says_why_or_an_old_audit_nothing(audit: Audit, tmp_path: Path) -> None:
    arms = tuple(replace(one, replayed=None, judged=None) for one in audit.arms)
    page = shown(replace(audit, arms=arms, replay="Not replayed: no way to force tokens."), tmp_path)
    assert "Replays Not replayed: no way to force tokens." in page.words()
    assert "replay" in page.attributes("section", "id")
    old = shown(replace(audit, arms=arms, replay=""), tmp_path)
    assert "replay" not in old.attributes("section", "id")
