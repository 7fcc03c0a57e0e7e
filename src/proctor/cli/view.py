"""``proctor view``."""

from __future__ import annotations

from typing import Annotated

import typer

from proctor.cli.output import stdout
from proctor.rows import UserError

_PORT = 8470
_LIBRARIES = ("starlette", "uvicorn")


Places = Annotated[list[str] | None, typer.Argument(metavar="DIR", help="Directories: paths or URLs. Default: here.")]
_HOST = "Address to listen on. On any but this machine's own a token is needed."
_IMAGES = "Read the images of rows back from where the run had them."


def view(
    places: Places = None,
    host: Annotated[str, typer.Option("--host", help=_HOST)] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one.")] = _PORT,
    images: Annotated[bool, typer.Option("--images/--no-images", help=_IMAGES)] = True,
) -> None:
    """Look at runs and their rows in a web browser. Only reads; ends with Ctrl-C."""
    try:
        from proctor.view.app.serve import serve
    except ModuleNotFoundError as error:
        if error.name not in _LIBRARIES:
            raise
        raise UserError(f"the browser needs {error.name}", fix="pip install 'proctor[view]'") from error
    serve(places or ["."], stdout.say, host=host, port=port, images=images)
