"""Pages that are complete in themselves: no network, no script, no other file, and nothing in them is trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2

import proctor
from proctor.rows import UserError
from proctor.storage.local import write_whole
from proctor.view import formats

TEMPLATES = Path(__file__).parent / "templates"
_FILTERS = ("clip", "duration", "metric_interval", "metric_value", "moment", "percent", "since", "whole")


def page(template: str, *styles: str, **context: Any) -> str:
    """Renders a template, everything in it escaped.

    Args:
        template: its file name.
        styles: style sheets that stand inside the page, by file name.
        context: what the template shows.
    """
    template_of = environment().get_template(template)
    style = "".join((TEMPLATES / name).read_text(encoding="utf-8") for name in styles)
    return template_of.render(style=style, version=proctor.__version__, **context)


def write_page(place: Path, text: str) -> None:
    """Writes a page, whole or not at all. Halves of characters, which no file can hold, are replaced.

    Raises:
        UserError: there is no such directory, or it cannot be written to.
    """
    if not place.parent.is_dir():
        raise UserError("no such directory", where=str(place.parent), fix="make it, or choose another place")
    content = text.encode("utf-8", "replace")
    try:
        write_whole(place, lambda draft: _put(draft, content))
    except OSError as error:
        raise UserError(f"cannot write: {error.strerror or error}", where=str(place)) from error


def _put(draft: Path, content: bytes) -> None:
    draft.write_bytes(content)


def environment(*folders: Path) -> jinja2.Environment:
    """Templates of this package and of `folders`: everything is escaped, and a name that is missing is an error."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*folders, TEMPLATES]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {name: getattr(formats, name) for name in _FILTERS}
    return made
