"""From a command line to a running server."""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections.abc import Callable, Sequence

import uvicorn

from proctor.rows import UserError
from proctor.storage.folder import Place
from proctor.view.app.browser import make_site
from proctor.view.app.guard import LOOPBACK, Door
from proctor.view.app.watching import Watching
from proctor.view.browse.places import open_places

PORT = 8470
_SECONDS_TO_END = 3


class _Server(uvicorn.Server):
    """Ends the streams of those who listen before it waits for all requests to end."""

    def __init__(self, config: uvicorn.Config, watching: Watching) -> None:
        super().__init__(config)
        self._watching = watching

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._watching.leave()
        await super().shutdown(sockets)


def serve(
    places: Sequence[Place],
    say: Callable[[str], None],
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    images: bool = True,
) -> None:
    """Serves the browser over directories until it is interrupted.

    Args:
        places: paths or URLs of the directories.
        say: is told the address to open.
        host: address to listen on. On any but this machine's own a token is needed, which is part of what is said.
        port: to listen on; 0 is a free one.
        images: whether images of rows are read.

    Raises:
        UserError: a directory is not there, or the address cannot be listened on.
    """
    opened = open_places(places)
    with contextlib.closing(_listening(host, port)) as listening:
        door = Door(listening.getsockname()[1], None if host in LOOPBACK else secrets.token_urlsafe(24))
        watching = Watching()
        server = _Server(
            uvicorn.Config(
                make_site(opened, door, images=images, watching=watching),
                log_level="warning",
                access_log=False,
                ws="none",
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=_SECONDS_TO_END,
            ),
            watching,
        )
        say(address(host, door))
        with contextlib.suppress(KeyboardInterrupt):  # that is how one leaves
            server.run(sockets=[listening])


def address(host: str, door: Door) -> str:
    """What to open in a web browser."""
    name = f"[{host}]" if ":" in host else host
    name = {"0.0.0.0": socket.gethostname(), "[::]": socket.gethostname()}.get(name, name)  # noqa: S104 (only compared)
    return f"http://{name}:{door.port}/" + (f"?token={door.token}" if door.token is not None else "")


def _listening(host: str, port: int) -> socket.socket:
    where = f"{host}:{port}"
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        opened = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise UserError(f"no address to listen on: {error}", where=where) from error
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(place)
        opened.listen(128)
    except OSError as error:
        opened.close()
        fix = "choose another --port; 0 takes a free one"
        raise UserError(f"cannot listen: {error.strerror or error}", where=where, fix=fix) from error
    return opened
