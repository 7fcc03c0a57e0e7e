"""Every page that a link leads to: it is there, axe finds nothing serious, and it fits on a telephone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from urllib.parse import urlsplit

import pytest

from tests.browser.conftest import Visitor
from tests.browser.crawl import barriers, pages, too_wide

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900)]
ROOMS = {"/", "/run", "/rows", "/row"}
BROKEN = ("damaged", "half")
"""Runs with files that cannot be read: their pages may say so."""
COPIES = (*BROKEN, "empty", "evil", "faults")
"""Runs whose pages are the same templates once more: axe costs seconds for each."""
MOST_OF_A_ROOM = 2


def test_every_page_is_there_for_everybody(visitor: Visitor) -> None:
    visitor.guard.expect(404)  # images and files that are broken
    found: list[str] = []
    rooms, examined = set(), Counter[str]()
    for address, status in pages(visitor, most=1):
        room = urlsplit(address).path
        rooms.add(room)
        problems = too_wide(visitor.page)
        if examined[room] < MOST_OF_A_ROOM and not of(address, COPIES):
            examined[room] += 1
            problems += barriers(visitor.page)
        if status != 200 and not of(address, BROKEN):
            problems.append(f"status {status}: {visitor.page.inner_text('main')[:200]}")
        found += [f"{address}: {problem}" for problem in problems]
    assert not found, "\n".join(found)
    assert rooms >= ROOMS
    assert set(examined) == rooms


def of(address: str, runs: Sequence[str]) -> bool:
    return any(f"path={name}" in address for name in runs)
