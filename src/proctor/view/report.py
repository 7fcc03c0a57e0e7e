"""The report: a run frozen into one HTML file that needs no network, no script and no other file.

Nothing in it is trusted: model answers, messages and file names are escaped by the template engine, and the page
forbids itself to load or run anything (a content security policy without sources), whatever might slip through.
"""

from __future__ import annotations

from proctor.results import RunDir
from proctor.results.files import write_text
from proctor.view.gather import RunView, gather
from proctor.view.pages import page

_NAME = "report.html"


def write_report(run: RunDir) -> str:
    """Writes ``report.html`` into the run directory, whole or not at all, and returns its path or URL.

    Raises:
        UserError: there is no run, or its spec is not understood.
    """
    write_text(run.folder, _NAME, render(gather(run)))
    return f"{run.location}/{_NAME}"


def render(view: RunView) -> str:
    """The page."""
    return page("report.html.j2", "style.css", view=view)
