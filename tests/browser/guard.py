"""Watches everything that a browser does while a person looks at pages: a visit with a fault behind it is no visit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, ConsoleMessage, Dialog, Request, Response, WebError

_NOT_LOADED = re.compile(r"Failed to load resource: the server responded with a status of (\d+)")


class Guard:
    """Notes what must never be: a line on the console, an uncaught error, a dialog, a fault of the server, a request to
    another host.

    Attributes:
        problems: what was noted.

    Args:
        context: whose pages are watched.
        origin: of the only server that may be asked.
    """

    def __init__(self, context: BrowserContext, origin: str) -> None:
        self.problems: list[str] = []
        self._origin, self._expected = origin, set[int]()
        context.on("console", self._said)
        context.on("weberror", self._failed)
        context.on("request", self._asked)
        context.on("response", self._answered)
        context.on("dialog", self._asked_back)

    def expect(self, status: int) -> None:
        """From now on the server may answer so: Chromium writes a line about every page or image that is refused."""
        self._expected.add(status)

    def _said(self, message: ConsoleMessage) -> None:
        refused = _NOT_LOADED.match(message.text)
        if refused is None or int(refused[1]) not in self._expected:
            self.problems.append(f"console, {message.type}: {message.text} ({message.location['url']})")

    def _failed(self, error: WebError) -> None:
        self.problems.append(f"uncaught: {error.error}")

    def _asked(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if f"{parts.scheme}://{parts.netloc}" != self._origin:
            self.problems.append(f"asked elsewhere: {request.url[:200]}")

    def _answered(self, response: Response) -> None:
        if response.status >= 500:
            self.problems.append(f"status {response.status}: {response.url}")

    def _asked_back(self, dialog: Dialog) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()
