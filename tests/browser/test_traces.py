"""Traces as a person looks into them: closer and closer, and two beside each other."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Visitor

pytestmark = [pytest.mark.browser, pytest.mark.slow]
TIMELINE = "/timeline?in=runs&path=traces/before.sqlite"


def window(page: Page) -> tuple[int, int]:
    """What time the timeline shows, in nanoseconds."""
    begin, end = (page.locator("#lanes").get_attribute(name) for name in ("data-begin", "data-end"))
    assert begin is not None
    assert end is not None
    return int(begin), int(end)


def closer(page: Page, than: int) -> None:
    """Waits until less time is shown."""
    page.wait_for_function(f"() => {{ const d = lanes.dataset; return d.end - d.begin < {than}; }}")


def test_a_timeline_is_zoomed_and_moved_by_wheel_keys_and_links(visitor: Visitor) -> None:
    page = visitor.visit(TIMELINE)
    begin, end = window(page)
    page.locator("#lanes").focus()
    page.keyboard.press("+")
    closer(page, end - begin)
    shown = window(page)
    assert page.evaluate("document.activeElement.id") == "lanes"
    asked = parse_qs(urlsplit(page.url).query)
    assert (int(asked["from"][0]), int(asked["to"][0])) == shown, "the address says what is shown"
    box = page.locator("#lanes svg").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 60)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    closer(page, shown[1] - shown[0])
    before = window(page)
    page.get_by_role("link", name="Later →").click()
    page.wait_for_function(f"() => lanes.dataset.begin > {before[0]}")
    address, there = page.url, window(page)
    page.reload()
    assert (page.url, window(page)) == (address, there), "the address leads back to it"
    page.locator("#longest tbody a").first.click()
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert "/timeline/event" in page.url


def test_two_traces_are_chosen_and_set_beside_each_other(visitor: Visitor) -> None:
    page = visitor.visit("/")
    page.get_by_role("link", name="before.sqlite").first.click()
    expect(page.locator("main")).to_contain_text("GPU")
    page.get_by_role("link", name="Compare with another").click()
    page.get_by_role("row", name="before.sqlite").locator("input[name=a]").check()
    page.get_by_role("row", name="after.sqlite").locator("input[name=b]").check()
    page.get_by_role("button").click()
    assert "/trace/diff" in page.url
    expect(page.locator("main")).to_contain_text("ncclDevKernel_AllReduce")
    page.locator("a[href^='/timeline']").first.click()
    expect(page.locator("#lanes")).to_be_visible()
