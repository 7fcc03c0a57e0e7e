"""From the list of runs to a row, as a person goes: chips, filters, orders, columns, pages, exports, keys."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Visitor, visiting

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.slow]
ROWS = "/rows?in=runs&path=good/night-drive"


def status(page: Page) -> str:
    return page.get_by_role("status").filter(has_text="records").inner_text()


def ids(page: Page) -> list[str]:
    """Row ids of the table, from top to bottom."""
    return page.locator("table.rows tbody th").all_inner_texts()


def test_a_chip_leads_from_a_run_to_its_rows_and_one_of_them(visitor: Visitor) -> None:
    page = visitor.visit("/")
    page.get_by_role("link", name="good/night-drive", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("night-drive")
    page.locator("a.chip", has_text="prepare.decode").click()
    assert page.get_by_label("Filter").input_value() == 'error.kind = "prepare.decode"'
    assert status(page).startswith("8 of 400 records")
    assert set(ids(page)) == {"13", "58"}
    visitor.guard.expect(404)  # its image is broken
    page.get_by_role("link", name="13", exact=True).first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Row 13")
    assert "prepare.decode" in page.inner_text("main")
    page.locator("a[rel=next]").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Row 13")  # the same row of the next checkpoint
    page.go_back()
    page.go_back()
    assert status(page).startswith("8 of 400 records")


def test_a_mistake_is_shown_where_it_stands_and_what_may_follow_is_a_link(visitor: Visitor) -> None:
    page = visitor.visit(ROWS)
    visitor.guard.expect(400)
    field = page.get_by_label("Filter")
    field.fill("anser contains 'near'")
    field.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("did you mean answer?")
    expect(page.locator("mark")).to_have_text("anser")
    assert page.get_by_label("Filter").input_value() == "anser contains 'near'", "what was typed is still there"
    page.get_by_label("Filter").fill("exact and checkpoint = ")
    page.get_by_label("Filter").press("Enter")
    page.get_by_role("link", name='"step-6400"').click()
    assert re.match(r"[1-9]\d? of 400 records", status(page))


def test_pages_orders_columns_and_searches(visitor: Visitor) -> None:
    page = visitor.visit(f"{ROWS}&filter={quote('checkpoint = ' + chr(34) + 'step-6400' + chr(34))}")
    assert status(page).startswith("100 of 400 records")
    first = ids(page)
    assert first == [str(row) for row in range(50)]
    page.locator("a[rel=next]").click()
    assert ids(page) == [str(row) for row in range(50, 100)]
    page.locator("a[rel=prev]").click()
    assert ids(page) == first
    page.get_by_role("link", name="ade", exact=True).click()
    page.get_by_role("link", name=re.compile("^ade")).click()
    expect(page.locator("th[aria-sort]")).to_have_attribute("aria-sort", "descending")
    heads = page.locator("table.rows thead th").all_inner_texts()
    place = next(place for place, head in enumerate(heads) if head.startswith("ade"))
    cells = page.locator(f"table.rows tbody tr > :nth-child({place + 1})").all_inner_texts()
    ordered = [float(cell) for cell in cells if cell[0].isdigit()]
    assert len(ordered) > 5
    assert ordered == sorted(ordered, reverse=True)
    page.locator("details.columns summary").click()
    page.get_by_role("checkbox", name="target", exact=False).first.check()
    page.get_by_role("checkbox", name=re.compile("^answer")).first.uncheck()
    page.get_by_role("button", name="Show").click()
    heads = page.locator("table.rows thead th").all_inner_texts()
    assert any("target" in head for head in heads)
    assert not any(head.strip() == "answer" for head in heads)
    page.get_by_label("Search").fill("nowhere to be found")
    page.get_by_label("Search").press("Enter")
    assert status(page).startswith("0 of 400 records")


def test_what_is_shown_is_what_is_saved(visitor: Visitor, tmp_path: Path) -> None:
    page = visitor.visit(f"{ROWS}&filter=error.kind+is+not+null")
    shown = int(status(page).split()[0])
    files = {}
    for label in ("CSV", "Parquet", "list of row ids"):
        with page.expect_download() as download:
            page.get_by_role("link", name=label).click()
        files[label] = tmp_path / download.value.suggested_filename
        download.value.save_as(files[label])
    with files["CSV"].open() as opened:
        lines = list(csv.DictReader(opened))
    assert len(lines) == shown
    assert {line["error_kind"] for line in lines} == {"prepare.decode", "infer.crashed"}
    assert pq.read_table(files["Parquet"]).num_rows == shown
    assert files["list of row ids"].read_text().split() == ["13", "58", "90"]


def test_images_of_a_row_load_and_a_broken_one_says_why(visitor: Visitor) -> None:
    page = visitor.visit("/row?in=runs&path=good/night-drive&row=1&checkpoint=step-6400")
    pictures = page.locator(".frames img")
    assert pictures.count() >= 1
    for picture in pictures.all():
        picture.scroll_into_view_if_needed()
        picture.evaluate("image => image.decode()")
        assert picture.evaluate("image => image.naturalWidth") > 0
    visitor.guard.expect(404)
    page = visitor.visit("/row?in=runs&path=good/night-drive&row=13&checkpoint=step-6400")
    page.locator(".frames a").first.click()
    expect(page.locator("main")).to_contain_text("no image that can be shown")


def keyed(page: Page, heading: str) -> None:
    """Waits for a page, and until its keys do something."""
    expect(page.get_by_role("heading", level=1)).to_have_text(heading)
    expect(page.locator("#keys-hint")).to_be_visible()


def test_keys_lead_through_rows(visitor: Visitor) -> None:
    page = visitor.visit(f"{ROWS}&filter={quote('error.kind is not null')}&sort=row_id")
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.closest('tr').rowIndex") == 2
    visitor.guard.expect(404)  # the images of these rows are broken
    page.keyboard.press("Enter")
    keyed(page, "Row 13")
    for checkpoint in ("step-1600", "step-6400"):
        page.keyboard.press("ArrowRight")
        page.wait_for_url(f"**checkpoint={checkpoint}**")
        keyed(page, "Row 13")
    page.keyboard.press("ArrowRight")
    keyed(page, "Row 58")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("Escape")
    keyed(page, "Rows")
    assert page.get_by_label("Filter").input_value() == "error.kind is not null"
    page.keyboard.press("/")
    page.keyboard.type("j/k")
    assert page.get_by_label("Search").input_value() == "j/k", "what is typed is no key"


def test_everything_can_be_read_without_a_script(browser: Browser, origin: str) -> None:
    with visiting(browser, origin, java_script_enabled=False) as plain:
        page = plain.visit("/")
        page.get_by_role("link", name="good/night-drive", exact=True).click()
        page.locator("a.chip", has_text="infer.crashed").click()
        assert status(page).startswith("1 of 400 records")
        page.get_by_label("Filter").fill("ade > 1")
        page.get_by_role("button", name="Show").click()
        page.locator("table.rows tbody th a").first.click()
        expect(page.get_by_role("region", name="Answer")).to_be_visible()
