"""The page of a bench of compilation: one HTML file, like a run's report (see `proctor.view.report`)."""

from __future__ import annotations

from pathlib import Path

from proctor.compile.model import Measured, Verdict
from proctor.compile.store import write_whole
from proctor.view.compile_view import gather
from proctor.view.pages import page


def write_compile_page(path: Path, measured: Measured, verdict: Verdict) -> None:
    """Writes the page to the file `path`, whole or not at all.

    Raises:
        UserError: it cannot be written there.
    """
    write_whole(path, render_compile(measured, verdict).encode("utf-8"))


def render_compile(measured: Measured, verdict: Verdict) -> str:
    """The page."""
    return page("compile.html.j2", "style.css", "compile.css", view=gather(measured, verdict))
