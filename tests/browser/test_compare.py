"""Two checkpoints beside each other, as a person finds out what got worse."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visitor

pytestmark = [pytest.mark.browser, pytest.mark.slow]
RUN = "runs/good/night-drive"
TWO = f"/compare?side={RUN}:step-0400&side={RUN}:step-1600"


def test_sides_are_chosen_and_regressions_come_first(visitor: Visitor) -> None:
    page = visitor.visit("/compare")
    page.get_by_role("link", name="+ good/night-drive", exact=True).click()
    page.get_by_role("link", name="+ step-1600", exact=True).click()
    expect(page.locator("main")).to_contain_text("b against a")
    kinds = page.locator("table.beside tbody tr").all_inner_texts()
    worse, better = ([at for at, text in enumerate(kinds) if word in text] for word in ("worse", "better"))
    assert worse
    assert not better or max(worse) < min(better)
    page.get_by_role("link", name="make b the baseline").click()
    expect(page.locator("main")).to_contain_text("b against a")


def test_a_row_shows_what_changed_in_its_answer(visitor: Visitor) -> None:
    page = visitor.visit(TWO)
    visitor.guard.expect(400)
    page.get_by_label("Filter").fill("b.exakt")
    page.get_by_label("Filter").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("did you mean b.exact")
    page.get_by_label("Filter").fill("b.exact and not a.exact")
    page.get_by_label("Filter").press("Enter")
    expect(page.get_by_role("status").filter(has_text="rows")).to_be_visible()
    assert page.locator("table.beside tbody tr").count() > 0
    assert page.locator("table.beside ins").count() > 0
    page.locator("table.beside tbody th a").first.click()
    expect(page.locator("main")).to_contain_text("Parsed and scored")
    page.go_back()
    assert page.get_by_label("Filter").input_value() == "b.exact and not a.exact"
