"""Looks at a page the way a browser does: elements, attributes, text."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

_VOID = {"meta", "img", "br", "link", "input", "base"}


class Page(HTMLParser):
    """A parsed page; `problems` lists end tags that do not fit."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.problems: list[str] = []
        self.text = ""  # with a space where an element begins or ends
        self._open: list[str] = []
        self.feed(Path(path).read_text(encoding="utf-8"))
        self.problems += [f"<{tag}> is not closed" for tag in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.text += " "
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.text += " "
        if not self._open or self._open.pop() != tag:
            self.problems.append(f"</{tag}> closes nothing at {self.getpos()}")

    def handle_data(self, data: str) -> None:
        self.text += data

    def tags(self) -> set[str]:
        return {tag for tag, _ in self.elements}

    def attributes(self, tag: str, name: str) -> list[str]:
        return [attrs[name] or "" for found, attrs in self.elements if found == tag and name in attrs]

    def words(self) -> str:
        """The text with single spaces."""
        return " ".join(self.text.split())
