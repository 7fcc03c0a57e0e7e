"""The browser as an ASGI application: addresses, and what answers them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import jinja2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

import proctor
from proctor.results import RunDir
from proctor.rows import ProctorError, UserError
from proctor.rows.text import line_of, told
from proctor.view.app.cells import cell, tone, whole_text
from proctor.view.app.guard import Door, Guard
from proctor.view.app.images import Images
from proctor.view.app.links import Address, number
from proctor.view.app.pages import row_page, rows_page, run_page, runs_page
from proctor.view.app.shelf import Shelf
from proctor.view.browse.places import Opened
from proctor.view.browse.rows import EXPORTS, export_rows
from proctor.view.browse.runs import DAMAGE, open_run
from proctor.view.pages import TEMPLATES, environment

_FOLDER = Path(__file__).parent / "templates"
_Answer = Callable[[Request], Response]
_PIECE = 1 << 20


class Site:
    """What the pages have in common.

    Args:
        opened: the directories.
        images: how images are read.
    """

    def __init__(self, opened: Sequence[Opened], images: Images) -> None:
        self.opened = {one.name: one for one in opened}
        self.shelf, self.images = Shelf(), images
        self._templates = environment(_FOLDER)
        self._templates.filters |= {"cell": cell, "tone": tone, "whole_text": whole_text}
        self._icon = (_FOLDER / "icon.svg").read_text("utf-8")
        self._style = "".join((folder / name).read_text("utf-8") for folder, name in _STYLES)

    def run(self, address: Address) -> RunDir:
        """The run of an address.

        Raises:
            UserError: there is none, or it may not be read.
        """
        opened = self.opened.get(address.opened)
        if opened is None:
            raise UserError("no such directory is open", where=line_of(address.opened)[:80])
        return open_run(opened.below(address.path))

    def page(self, template: str, code: int = 200, **context: Any) -> Response:
        """Renders a template. Halves of characters, which no page can hold, are replaced."""
        text = self._template(template).render(version=proctor.__version__, **context)
        return Response(text.encode("utf-8", "replace"), code, media_type="text/html; charset=utf-8")

    def runs(self, _request: Request) -> Response:
        """The list of runs."""
        return self.page("runs.html.j2", directories=runs_page(list(self.opened.values())))

    def one_run(self, request: Request) -> Response:
        """A run."""
        address = Address.of(request.query_params)
        run = self.run(address)
        try:
            return self.page("run.html.j2", address=address, **run_page(run))
        except DAMAGE as error:  # numbers and texts that nobody would write there but to see what happens
            raise UserError(f"a file of this run is damaged: {told(error)}", where=run.location) from error

    def rows(self, request: Request) -> Response:
        """Some of its rows."""
        address = Address.of(request.query_params)
        with self.shelf.table(self.run(address)) as table:
            context = rows_page(table, address, request.query_params)
        return self.page("rows.html.j2", 400 if context["wrong"] else 200, address=address, **context)

    def row(self, request: Request) -> Response:
        """One of them."""
        address, given = Address.of(request.query_params), request.query_params
        run = self.run(address)
        with self.shelf.table(run) as table:
            context = row_page(run, table, address, number(given, "row"), given.get("checkpoint") or None)
        return self.page("row.html.j2", 200 if context["records"] else 404, address=address, **context)

    def image(self, request: Request) -> Response:
        """An image of a row."""
        address, given = Address.of(request.query_params), request.query_params
        data = self.images.jpeg(self.run(address), number(given, "row"), number(given, "n", 0))
        return Response(data, media_type="image/jpeg")

    def export(self, request: Request) -> Response:
        """Rows as a file."""
        address, form = Address.of(request.query_params), request.query_params.get("form", "")
        kind = next((known for known in EXPORTS if known == form), None)
        if kind is None:
            raise UserError(f"no such format: {form[:40]!r}", fix=f"one of {', '.join(EXPORTS)}")
        with self.shelf.table(self.run(address)) as table:
            file = _nameless(export_rows(table, address.query, kind))
        size = str(os.fstat(file.fileno()).st_size)
        headers = {"Content-Disposition": f'attachment; filename="rows{EXPORTS[kind].suffix}"', "Content-Length": size}
        return StreamingResponse(_pieces(file), headers=headers, media_type=EXPORTS[kind].media_type)

    def style(self, _request: Request) -> Response:
        """The style sheet."""
        return Response(self._style, media_type="text/css; charset=utf-8")

    def icon(self, _request: Request) -> Response:
        """The sign in a tab."""
        return Response(self._icon, media_type="image/svg+xml")

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

    def _template(self, name: str) -> jinja2.Template:
        return self._templates.get_template(name)


_STYLES = ((TEMPLATES, "style.css"), (_FOLDER, "app.css"))


def _nameless(path: Path) -> BinaryIO:
    """The file, open, and without a name already: its space is free as soon as nobody reads it any more."""
    file = path.open("rb")
    path.unlink()
    return file


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while piece := file.read(_PIECE):
            yield piece


def make_site(opened: Sequence[Opened], door: Door, *, images: bool = True) -> ASGIApp:
    """The browser over the opened directories.

    Args:
        opened: what may be looked at; nothing else is read, but for the images of rows, which lie where the run's spec
            says.
        door: where it is reached, and who may come in.
        images: whether images of rows are read.
    """
    site = Site(opened, Images(allowed=images))

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        site.shelf.close()

    answers: dict[str, _Answer] = {
        "/": site.runs,
        "/run": site.one_run,
        "/rows": site.rows,
        "/row": site.row,
        "/image": site.image,
        "/export": site.export,
        "/style.css": site.style,
        "/icon.svg": site.icon,
    }
    app = Starlette(
        routes=[Route(path, answer) for path, answer in answers.items()],
        exception_handlers={404: site.missing, ProctorError: site.failed, OSError: site.failed, 500: site.broken},
        lifespan=lifespan,
    )
    return Guard(app, door)
