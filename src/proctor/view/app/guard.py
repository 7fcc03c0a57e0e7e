"""Who may ask: the wall in front of every page.

On this machine's own address anybody who can reach it may read, but a web page of somebody else may not: it gets
through neither by another name for this address (``Host``), nor from within (``Origin``, ``Sec-Fetch-Site``). On any
other address a token is needed besides.
"""

from __future__ import annotations

import ipaddress
import re
import secrets
import socket
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_PARAMETER = "token"
_PLAIN_PATH = re.compile(r"/|(/[a-z]+)+")
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
"""Names of this machine that no other can reach."""
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; "
    "connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class Door:
    """Where the server is reached, and what for.

    Attributes:
        port: that is listened on.
        token: that has to be shown; None on this machine's own address.
    """

    port: int
    token: str | None = None

    @property
    def cookie(self) -> str:
        """Name of the cookie that holds the token: browsers do not keep the cookies of two ports apart."""
        return f"proctor-view-{self.port}"

    def knows(self, host: str) -> bool:
        """Whether a ``Host`` header names this server.

        Where a token is needed it may also be any address in numbers, or this machine's own name: whoever owns a domain
        can make it point here, but not these.
        """
        try:
            parts = urlsplit(f"http://{host}")
            name, port = (parts.hostname or "").rstrip("."), parts.port or 80
        except ValueError:
            return False
        if parts.netloc != host or "@" in host or port != self.port:
            return False
        return name in LOOPBACK or (self.token is not None and (_is_address(name) or name == _own_name()))

    def opens_for(self, shown: str | None) -> bool:
        """Whether a token is the right one."""
        if self.token is None:
            return True
        return shown is not None and secrets.compare_digest(shown.encode(errors="replace"), self.token.encode())


class Guard:
    """Asks `Door` before the pages are asked, and sees to the headers of every answer."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app, self._door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or passes it on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # nothing here speaks anything else

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        await (refusal if refusal is not None else self._app)(scope, receive, sealed)

    def _refusal(self, scope: Scope) -> Response | None:
        """What is answered in place of a page; None if nothing is in the way."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._door.knows(hosts[0]):
            return _said(421, "This server does not go by that name.")
        origins = headers.getlist("origin")
        if any(origin != f"http://{hosts[0]}" for origin in origins) or _is_embedded(headers):
            return _said(403, "Pages of other sites may not ask here.")
        if scope["method"] not in ("GET", "HEAD"):
            return _said(405, "Nothing can be changed here.", Allow="GET, HEAD")
        return self._unknown(scope, headers)

    def _unknown(self, scope: Scope, headers: Headers) -> Response | None:
        door = self._door
        if door.token is None:
            return None
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        shown = next((value for name, value in pairs if name == _PARAMETER), None)
        if shown is not None and door.opens_for(shown):
            rest = urlencode([(name, value) for name, value in pairs if name != _PARAMETER])
            answer = RedirectResponse("/" if not rest else f"{_own_path(scope)}?{rest}", status_code=303)
            answer.set_cookie(door.cookie, door.token, httponly=True, samesite="lax")
            return answer
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        cookie = cookie_parser(headers.get("cookie", "")).get(door.cookie)
        if door.opens_for(cookie) or door.opens_for(bearer):
            return None
        return _said(401, "A token is needed: open the address that `proctor view` printed.")


def _said(status: int, line: str, **headers: str) -> Response:
    return PlainTextResponse(f"{line}\n", status, headers)


def _own_path(scope: Scope) -> str:
    path = str(scope["path"])
    return path if _PLAIN_PATH.fullmatch(path) else "/"


def _is_embedded(headers: Headers) -> bool:
    """Whether a page of another site asks for something to show in itself; a link that a person follows is none."""
    site = headers.get("sec-fetch-site", "none")
    return site not in ("none", "same-origin") and headers.get("sec-fetch-mode") != "navigate"


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _own_name() -> str:
    return socket.gethostname().lower()
