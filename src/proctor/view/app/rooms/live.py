"""Says when a page has to be asked for anew."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from proctor.rows import UserError
from proctor.view.app.links import Address
from proctor.view.app.site import Answer, Site
from proctor.view.app.watching import MOST_LISTENERS

_HEADERS = {"X-Accel-Buffering": "no"}  # a proxy in between must not keep events back


def answers(site: Site) -> dict[str, Answer]:
    """What this room answers."""

    def live(request: Request) -> Response:
        given, address = request.query_params, Address.of(request.query_params).place
        look = site.looks.get(given.get("of", ""))
        if look is None:
            raise UserError("nothing of that name can be followed", where=given.get("of", "")[:80])
        seen = request.headers.get("last-event-id", given.get("seen", ""))
        first = look(address)
        if first.over and first.mark == seen:
            return Response(status_code=204)  # a browser does not ask again after that
        if site.watching.listeners >= MOST_LISTENERS:
            return PlainTextResponse("Too many pages are followed already.\n", 503)
        stream = site.watching.follow((given.get("of"), address), partial(look, address), seen)
        return StreamingResponse(stream, headers=_HEADERS, media_type="text/event-stream")

    return {"/live": live}
