"""The report: a run frozen into one HTML file that needs no network, no script and no other file.

Nothing in it is trusted: model answers, messages and file names are escaped by the template engine, and the page
forbids itself to load or run anything (a content security policy without sources), whatever might slip through.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2

import proctor
from proctor.results import RunDir
from proctor.results.files import write_text
from proctor.view import formats
from proctor.view.gather import RunView, gather

_NAME = "report.html"
_TEMPLATES = Path(__file__).parent / "templates"


def write_report(run: RunDir) -> str:
    """Writes ``report.html`` into the run directory, whole or not at all, and returns its path or URL.

    Raises:
        UserError: there is no run, or its spec is not understood.
    """
    write_text(run.folder, _NAME, render(gather(run)))
    return f"{run.location}/{_NAME}"


def render(view: RunView) -> str:
    """The page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= _filters()
    template = environment.get_template("report.html.j2")
    return template.render(view=view, style=_read("style.css"), version=proctor.__version__)


def _filters() -> dict[str, Any]:
    names = ("clip", "duration", "metric_interval", "metric_value", "moment", "percent", "since", "whole")
    return {name: getattr(formats, name) for name in names}


def _read(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")
