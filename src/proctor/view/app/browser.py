"""The browser as an ASGI application: its rooms behind the guard."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp

from proctor.rows import ProctorError
from proctor.view.app.guard import Door, Guard
from proctor.view.app.images import Images
from proctor.view.app.rooms import ROOMS
from proctor.view.app.site import Site
from proctor.view.app.watching import Watching
from proctor.view.browse.places import Opened


def make_site(
    opened: Sequence[Opened], door: Door, *, images: bool = True, watching: Watching | None = None
) -> ASGIApp:
    """The browser over the opened directories.

    Args:
        opened: what may be looked at; nothing else is read, but for the images of rows, which lie where the run's spec
            says.
        door: where it is reached, and who may come in.
        images: whether images of rows are read.
        watching: tells those who follow a page of changes; whoever stops the server tells it so.
    """
    site = Site(opened, Images(allowed=images), watching or Watching())

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        site.closing.close()

    app = Starlette(
        routes=[Route(path, answer) for room in ROOMS for path, answer in room.answers(site).items()],
        exception_handlers={404: site.missing, ProctorError: site.failed, OSError: site.failed, 500: site.broken},
        lifespan=lifespan,
    )
    return Guard(app, door)
