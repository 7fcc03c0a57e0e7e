"""Runs that mean harm, or are broken: whatever they hold is text, and a page says what cannot be shown."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visitor
from tests.view.helpers import HOSTILE

pytestmark = [pytest.mark.browser, pytest.mark.slow]
EVIL = "path=evil+%3Cb%3E%26%22%27/night-drive"


def test_hostile_answers_names_and_messages_stay_text(visitor: Visitor) -> None:
    page = visitor.visit(f"/rows?in=runs&{EVIL}")
    expect(page.locator("table.rows tbody td", has_text=HOSTILE).first).to_be_visible()
    page.locator("table.rows tbody th a").first.click()
    expect(page.get_by_role("region", name="Answer")).to_contain_text(f"{HOSTILE}<img src=x onerror=alert(2)>")
    expect(page.get_by_role("region", name="Answer")).to_contain_text("{{ 7 * 7 }}")
    assert page.locator("main b:has-text('\"')").count() == 0, "the name of a directory made no tag"
    visitor.visit(f"/run?in=runs&{EVIL}")
    assert page.locator("script:not([src])").count() == 0


def test_huge_answers_are_cut_and_the_page_stays_quick_to_use(visitor: Visitor) -> None:
    page = visitor.visit("/rows?in=runs&path=huge/night-drive")
    assert len(page.content()) < 500_000
    page.locator("table.rows tbody th a").first.click()
    expect(page.get_by_text("cut; the export has all of it")).to_be_visible()
    assert len(page.content()) < 1_000_000
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_what_is_empty_or_broken_says_so_in_a_line(visitor: Visitor) -> None:
    page = visitor.visit("/")
    expect(page.get_by_role("row", name="half")).to_contain_text("damaged")
    page = visitor.visit("/run?in=runs&path=damaged", 404)
    expect(page.get_by_role("heading", level=1)).to_have_text("This cannot be shown")
    expect(page.locator("main")).to_contain_text("spec.yaml")
    visitor.visit("/run?in=runs&path=half", 404)
    expect(page.locator("main")).to_contain_text("damaged")
    page = visitor.visit("/rows?in=runs&path=half")
    expect(page.get_by_role("alert").first).to_contain_text("are not here")
    page = visitor.visit("/rows?in=runs&path=empty")
    expect(page.get_by_role("status")).to_contain_text("0 of 0 records")
