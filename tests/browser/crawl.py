"""Goes from page to page by links, as a person would who tries everything once, and looks at each closely."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.conftest import Visitor

NO_PAGES = ("/export", "/image", "/compare/ids")
_LINKS = "links => links.map(link => link.getAttribute('href')).filter(link => link.startsWith('/'))"
_WIDE = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  const inside = node => node.parentElement && (node.parentElement.matches('.table, figure, pre, .forest, svg')
    || inside(node.parentElement));
  const wide = [...document.querySelectorAll('main *')]
    .filter(node => node.getBoundingClientRect().right > width + 1 && !inside(node));
  return [`${document.documentElement.scrollWidth} px`,
    ...wide.slice(0, 4).map(node => `${node.tagName} ${node.getAttribute('class')}: ${node.textContent.slice(0, 40)}`)];
}"""
_AXE = """async only => {
  const options = {resultTypes: ['violations'], ...(only ? {runOnly: {type: 'rule', values: [only]}} : {})};
  return (await axe.run(document, options)).violations
    .filter(found => ['serious', 'critical'].includes(found.impact))
    .map(found => `${found.id} (${found.impact}): ${found.nodes.length} x ${found.nodes[0].html.slice(0, 160)}`
      + ` ${found.nodes[0].any.map(one => one.message).join('; ').slice(0, 200)}`);
}"""


def pages(visitor: Visitor, begin: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Addresses of pages that links lead to, and their status; each is open when it is given.

    Of a room and a thing that it shows only the first page is opened: others differ in what they are asked.

    Args:
        visitor: goes there.
        begin: addresses to begin with.
    """
    waiting, opened, kinds = deque(begin), set[str](), set[str]()
    while waiting:
        address = waiting.popleft()
        if address not in opened and (address in begin or _kind(address) not in kinds):
            opened.add(address)
            kinds.add(_kind(address))
            yield address, visitor.look(address)
            links = visitor.page.eval_on_selector_all("a[href]", _LINKS)
            waiting += [link.partition("#")[0] for link in links if urlsplit(link).path not in NO_PAGES]


def _kind(address: str) -> str:
    """The room of a page, and the thing that it shows."""
    parts = urlsplit(address)
    shown = {name: values for name, values in parse_qs(parts.query).items() if name in ("in", "path")}
    return f"{parts.path} {json.dumps(shown, sort_keys=True)}"


def barriers(page: Page) -> list[str]:
    """What axe finds serious or critical on the page that is open, in light and in dark."""
    page.evaluate(resources.files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8"))
    found = page.evaluate(_AXE, None)
    page.emulate_media(color_scheme="dark")
    found += [f"dark: {line}" for line in page.evaluate(_AXE, "color-contrast")]
    page.emulate_media(color_scheme="light")
    with narrow(page):
        found += [f"narrow: {line}" for line in page.evaluate(_AXE, "scrollable-region-focusable")]
    return [str(line) for line in found]


def too_wide(page: Page) -> list[str]:
    """What sticks out of the page that is open on a telephone, so that all of it would scroll sideways."""
    with narrow(page):
        return [f"too wide: {line}" for line in page.evaluate(_WIDE)]


@contextmanager
def narrow(page: Page) -> Iterator[None]:
    """The page as wide as on a telephone."""
    size = page.viewport_size
    assert size is not None
    page.set_viewport_size({"width": 390, "height": 844})
    yield
    page.set_viewport_size(size)
