"""What the pages have in common: the directories that are open, their runs and rows, and how a page is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

import proctor
from proctor.results import RunDir
from proctor.rows import ProctorError, UserError
from proctor.rows.text import line_of, told
from proctor.storage.folder import Folder
from proctor.view.app.cells import cell, minute, rate, tone, whole_text
from proctor.view.app.images import Images
from proctor.view.app.links import Address
from proctor.view.app.shelf import Shelf
from proctor.view.app.statics import address_of
from proctor.view.app.watching import Watching
from proctor.view.browse.marks import Sight
from proctor.view.browse.places import Opened
from proctor.view.browse.runs import open_run
from proctor.view.pages import environment

FOLDER = Path(__file__).parent / "templates"
Answer = Callable[[Request], Response | Awaitable[Response]]
Look = Callable[[Address], Sight]


class Site:
    """What the pages have in common.

    Args:
        opened: the directories.
        images: how images are read.
        watching: tells those who listen of changes.

    Attributes:
        looks: for each kind of thing whose pages can be followed, how it is looked at. Rooms add theirs.
        closing: what is done when the server ends. Rooms add theirs.
    """

    def __init__(self, opened: Sequence[Opened], images: Images, watching: Watching) -> None:
        self.opened = {one.name: one for one in opened}
        self.watching, self.looks = watching, dict[str, Look]()
        self.shelf, self.images = Shelf(), images
        self.closing = ExitStack()
        self.closing.callback(self.shelf.close)
        self._templates = environment(FOLDER)
        self._templates.globals["asset"] = partial(address_of, FOLDER)
        self._templates.filters |= {
            "cell": cell,
            "minute": minute,
            "rate": rate,
            "tone": tone,
            "whole_text": whole_text,
        }

    def folder(self, address: Address) -> Folder:
        """The folder of an address.

        Raises:
            UserError: there is none, or it may not be read.
        """
        opened = self.opened.get(address.opened)
        if opened is None:
            raise UserError("no such directory is open", where=line_of(address.opened)[:80])
        return opened.below(address.path)

    def run(self, address: Address) -> RunDir:
        """The run of an address.

        Raises:
            UserError: there is none, or it may not be read.
        """
        return open_run(self.folder(address))

    def following(self, kind: str, address: Address) -> str | None:
        """Where a page about something of a `kind` in `looks` can be followed; None if nothing more is to come.

        Asked before the page reads anything, so that no change is missed. The page takes it as ``live``.

        Raises:
            UserError: there is no such thing.
            OSError: storage failed.
        """
        sight = self.looks[kind](address.place)
        return None if sight.over else address.place.to("live", of=kind, seen=sight.mark)

    def page(self, template: str, code: int = 200, **context: Any) -> Response:
        """Renders a template. Halves of characters, which no page can hold, are replaced."""
        text = self._templates.get_template(template).render(version=proctor.__version__, **context)
        return Response(text.encode("utf-8", "replace"), code, media_type="text/html; charset=utf-8")

    def failed(self, _request: Request, error: Exception) -> Response:
        """What a person sees when a page cannot be."""
        line = str(error) if isinstance(error, ProctorError) else told(error)
        return self.page("failed.html.j2", 404, line=line[:1_000])

    def missing(self, _request: Request, _error: Exception) -> Response:
        """What a person sees where there is no page."""
        return self.page("failed.html.j2", 404, line="There is no such page.")

    def broken(self, _request: Request, error: Exception) -> Response:
        """What a person sees where something else goes wrong: never a traceback."""
        return self.page("failed.html.j2", 500, line=f"This is a fault of Proctor: {told(error)}")
