"""One browser, one world and one server for all tests of pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.guard import Guard
from tests.browser.serving import served
from tests.browser.world import make_world
from tests.chromium import launched

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_PATIENCE = 60_000  # milliseconds, on a machine that does much else


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with launched() as found:
        from playwright.sync_api import expect

        expect.set_options(timeout=_PATIENCE)
        yield found


@pytest.fixture(scope="package")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tests must not change it."""
    return make_world(tmp_path_factory.mktemp("world") / "runs")


@pytest.fixture(scope="package")
def origin(world: Path) -> Iterator[str]:
    with served(world) as origin:
        yield origin


@dataclass(frozen=True, slots=True)
class Visitor:
    """A person at a browser, and what is noted of the visit."""

    page: Page
    guard: Guard
    origin: str

    def visit(self, address: str, status: int = 200) -> Page:
        """Opens an address of the server, which has to answer so."""
        if status >= 400:
            self.guard.expect(status)
        assert self.look(address) == status, self.page.inner_text("main")[:500]
        return self.page

    def look(self, address: str) -> int:
        """Opens an address of the server; gives its status."""
        answer = self.page.goto(self.origin + address)
        assert answer is not None
        return answer.status


@pytest.fixture
def visitor(browser: Browser, origin: str) -> Iterator[Visitor]:
    with visiting(browser, origin) as visitor:
        yield visitor


@contextmanager
def visiting(browser: Browser, origin: str, **options: Any) -> Iterator[Visitor]:
    """A visit; it fails if the guard noted anything. Options are those of a context."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
    context.set_default_timeout(_PATIENCE)
    guard = Guard(context, origin)
    try:
        yield Visitor(context.new_page(), guard, origin)
    finally:
        context.close()
    assert guard.problems == []
