"""The style sheet, the sign in a tab and the scripts: all of this package, none from elsewhere."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from proctor.view.app.site import FOLDER, Answer, Site
from proctor.view.pages import TEMPLATES

_STATIC = FOLDER.parent / "static"
_TYPES = {".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".css": "text/css; charset=utf-8"}


def answers(_site: Site) -> dict[str, Answer]:
    """What this room answers."""
    sheets = [TEMPLATES / "style.css", *sorted(TEMPLATES.glob("*.css")), *sorted(FOLDER.glob("*.css"))]
    style = "".join(sheet.read_text("utf-8") for sheet in dict.fromkeys(sheets))
    files = {f"/{file.name}": file for file in [FOLDER / "icon.svg", *_STATIC.glob("*.js")]}
    texts = {"/style.css": style} | {path: file.read_text("utf-8") for path, file in files.items()}
    return {path: _asset(text, _TYPES[path[path.rindex(".") :]]) for path, text in texts.items()}


def _asset(text: str, media_type: str) -> Answer:
    def answer(_request: Request) -> Response:
        return Response(text, media_type=media_type)

    return answer
