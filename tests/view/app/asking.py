"""Asks the browser for pages in this process, and looks at what comes as a web browser would."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

from starlette.testclient import TestClient

from proctor.view.app.browser import make_site
from proctor.view.app.guard import Door
from proctor.view.browse.places import open_places

_HOST = "127.0.0.1:7777"
_OWN_TAGS = {
    *("html", "head", "meta", "title", "link", "body", "main", "nav", "header", "section", "article", "footer"),
    *(
        "h1",
        "h2",
        "h3",
        "h4",
        "ins",
        "del",
        "fieldset",
        "legend",
        "script",
        "a",
        "p",
        "div",
        "span",
        "b",
        "strong",
        "code",
        "pre",
        "mark",
        "ul",
        "li",
        "dl",
        "dt",
        "dd",
        "img",
    ),
    *("ol", "aside", "dialog", "kbd"),
    *("table", "thead", "tbody", "tr", "th", "td", "form", "input", "label", "button", "details", "summary"),
    *("svg", "g", "path", "line", "rect", "circle", "text", "polyline", "polygon", "tspan", "figure", "figcaption"),
}


class Asked(HTMLParser):
    """Tags, links and images of a page; fails on anything that the templates do not write."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.images: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "script":
            assert re.fullmatch(r"/[a-z.]+\.js\?v=[0-9a-f]{16}", dict(attrs)["src"] or "")
        for name, value in attrs:
            assert not name.startswith("on")
            assert name != "style"
            if name == "href" and tag == "a":
                self.links.append(value or "")
            if name == "src" and tag != "script":
                self.images.append(value or "")


def client_of(*places: Path, images: bool = True) -> TestClient:
    site = make_site(open_places(places), Door(7777), images=images)
    return TestClient(site, base_url=f"http://{_HOST}")


def ask(client: TestClient, address: str, status: int = 200) -> tuple[str, Asked]:
    answer = client.get(address)
    assert answer.status_code == status, answer.text[:2000]
    page = Asked(answer.text)
    assert page.tags <= _OWN_TAGS
    assert all(link.startswith(("/", "#")) for link in [*page.links, *page.images])
    return answer.text, page


def links(page: Asked, path: str) -> list[str]:
    return [link for link in page.links if link.startswith(f"/{path}?")]
