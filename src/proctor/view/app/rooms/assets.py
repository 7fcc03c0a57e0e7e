"""The style sheet, the sign in a tab and the scripts: all of this package, none from elsewhere.

Pages ask for them by an address that says what is in them, so that a browser may keep them,
and never keeps them too long.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from proctor.view.app.site import FOLDER, Answer, Site
from proctor.view.app.statics import assets, version_of

_TYPES = {".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".css": "text/css; charset=utf-8"}
_KEPT = "private, max-age=31536000, immutable"


def answers(_site: Site) -> dict[str, Answer]:
    """What this room answers."""
    return {f"/{name}": _asset(text, _TYPES[name[name.rindex(".") :]]) for name, text in assets(FOLDER).items()}


def _asset(text: str, media_type: str) -> Answer:
    version = version_of(text)

    def answer(request: Request) -> Response:
        named = request.query_params.get("v") == version
        return Response(text, media_type=media_type, headers={"Cache-Control": _KEPT} if named else None)

    return answer
