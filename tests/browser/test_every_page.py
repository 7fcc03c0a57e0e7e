"""Every page that a link leads to: it is there, axe finds nothing serious, and it fits on a telephone."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from tests.browser.conftest import Visitor
from tests.browser.crawl import barriers, pages, too_wide

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900)]
RUN = "runs/good/night-drive"
BEHIND_FORMS = (
    "/compare",
    f"/compare?side={RUN}:step-0400&side={RUN}:step-1600",
    "/trace/diff?a=runs/traces/before.sqlite&b=runs/traces/after.sqlite",
)
ROOMS = {
    *("/", "/run", "/stalls", "/rows", "/row", "/compare", "/compare/row", "/fleet", "/audit", "/bench"),
    *("/traces", "/trace", "/trace/diff", "/timeline", "/timeline/event"),
}
OF_RUNS = {"/run", "/rows", "/row"}
"""Rooms that show more of a run that is whole."""
BROKEN = ("damaged", "half")
"""Runs with files that cannot be read: their pages may say so."""


def test_every_page_is_there_for_everybody(visitor: Visitor) -> None:
    visitor.guard.expect(404)  # images and files that are broken
    found: list[str] = []
    examined = set[str]()  # axe takes seconds for a page, and others of a room are the same templates once more
    for address, status in pages(visitor, ("/", *BEHIND_FORMS)):
        room = urlsplit(address).path
        problems = too_wide(visitor.page)
        if room not in examined and (room not in OF_RUNS or "good" in address):
            examined.add(room)
            problems += barriers(visitor.page)
        if status != 200 and not any(f"path={name}" in address for name in BROKEN):
            problems.append(f"status {status}: {visitor.page.inner_text('main')[:200]}")
        found += [f"{address}: {problem}" for problem in problems]
    assert not found, "\n".join(found)
    assert examined >= ROOMS
