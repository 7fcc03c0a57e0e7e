"""A run goes on while somebody looks at it, through a server as a person starts it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Page, expect

from proctor.results import RunDir
from tests.browser.conftest import Visitor, visiting
from tests.browser.serving import started
from tests.view.helpers import CHECKPOINTS, make_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]
NAMES = list(CHECKPOINTS)
ROWS = 60
_PLACE = "() => [scrollY, document.activeElement.id, location.href]"


class Unfolding:
    """A run that is there already, told bit by bit: one checkpoint after another."""

    def __init__(self, run: RunDir) -> None:
        self.run = run
        self._ends = {name: run.folder.read(name) for name in ("reconciliation.json", "metrics.json")}
        self._parts = {name: run.results.read(name) for name in sorted(run.results.names())}
        for name in (*self._ends, *(f"results/{part}" for part in self._parts)):
            (run.root / name).unlink()
        run.write("source", {"fingerprint": "x", "rows": ROWS})
        self._told = 0

    def go_on(self) -> None:
        """One more checkpoint is done."""
        name = NAMES[self._told]
        (part,) = [part for part in self._parts if name in part]
        self.run.results.write(part, self._parts[part])
        self._told += 1
        self._say("running")

    def end(self) -> None:
        """All is done and accounted for."""
        while self._told < len(NAMES):
            self.go_on()
        for name, content in self._ends.items():
            self.run.folder.write(name, content)
        self._say("complete")

    def _say(self, state: str) -> None:
        done = {name: {"total": ROWS, "done": ROWS * (NAMES.index(name) < self._told)} for name in NAMES}
        told: dict[str, Any] = {"state": state, "time": time.time(), "seconds": 9.5, "rate": 12.5, "eta_seconds": 40}
        self.run.write("status", {**told, "active": [NAMES[min(self._told, 3)], 1], "events": {}, "checkpoints": done})


@pytest.fixture
def unfolding(tmp_path: Path) -> Unfolding:
    return Unfolding(make_run(tmp_path / "live", ROWS))


@pytest.fixture
def visitor(browser: Browser, unfolding: Unfolding) -> Iterator[Visitor]:
    with started(unfolding.run.root.parent) as origin, visiting(browser, origin) as visitor:
        yield visitor


def test_pages_follow_a_run_and_leave_the_person_where_they_are(visitor: Visitor, unfolding: Unfolding) -> None:
    with unfolding.run.locked(lambda _reason: None):
        unfolding.go_on()
        page = visitor.visit("/")
        row = page.get_by_role("row", name="night-drive")
        expect(row).to_contain_text("running")
        expect(row).to_contain_text("12.5")
        page.get_by_role("link", name="night-drive").click()
        expect(page.locator("main")).to_contain_text("running")
        _rows_follow(page, unfolding)
        unfolding.end()
    expect(page.get_by_role("status").filter(has_text="records")).to_contain_text(f"of {4 * ROWS} records")
    expect(page.locator("#live")).to_contain_text("Nothing more is coming")
    page.get_by_role("link", name="Runs", exact=True).click()
    expect(page.get_by_role("row", name="night-drive")).to_contain_text("complete")


def _rows_follow(page: Page, unfolding: Unfolding) -> None:
    """A table under a filter grows, while what is typed, opened, focused and scrolled to stays."""
    page.get_by_role("link", name="All rows").click()
    page.get_by_label("Filter").fill('checkpoint in ("step-0100", "step-0400")')
    page.get_by_label("Filter").press("Enter")
    count = page.get_by_role("status").filter(has_text="records")
    expect(count).to_contain_text(f"{ROWS} of {ROWS} records")
    page.locator("details.columns summary").click()
    page.get_by_label("Search").fill("half a wor")
    page.mouse.wheel(0, 700)
    page.wait_for_function("() => scrollY > 500")
    before = page.evaluate(_PLACE)
    unfolding.go_on()
    expect(count).to_contain_text(f"{2 * ROWS} of {2 * ROWS} records")
    assert page.evaluate(_PLACE) == before
    assert page.get_by_label("Search").input_value() == "half a wor"
    assert page.locator("details.columns").get_attribute("open") is not None
    unfolding.go_on()
    expect(count).to_contain_text(f"{2 * ROWS} of {3 * ROWS} records")
