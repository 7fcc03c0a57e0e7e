"""Pages that are complete in themselves: no network, no script, no other file, and nothing in them is trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2

import proctor
from proctor.view import formats

_TEMPLATES = Path(__file__).parent / "templates"
_FILTERS = ("clip", "duration", "metric_interval", "metric_value", "moment", "percent", "since", "whole")


def page(template: str, *styles: str, **context: Any) -> str:
    """Renders a template, everything in it escaped.

    Args:
        template: its file name.
        styles: style sheets that stand inside the page, by file name.
        context: what the template shows.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {name: getattr(formats, name) for name in _FILTERS}
    style = "".join((_TEMPLATES / name).read_text(encoding="utf-8") for name in styles)
    return environment.get_template(template).render(style=style, version=proctor.__version__, **context)
