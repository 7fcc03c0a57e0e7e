"""The page of a comparison: one HTML file, like a run's report (see `proctor.view.report`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from proctor.paired.model import Comparison
from proctor.view.compare_view import answers_of, comparison_view
from proctor.view.pages import page, write_page

MOST_CHARACTERS = 2_000
"""Most characters of an answer on the page."""


def write_compare_page(place: Path, found: Sequence[Comparison]) -> None:
    """Writes the page, whole or not at all.

    Raises:
        UserError: there is no such directory, or it cannot be written to.
    """
    write_page(place, render_comparison(found))


def render_comparison(found: Sequence[Comparison]) -> str:
    """The page: what the browser shows of each comparison, and the regressions that were asked for."""
    compared = [
        (comparison_view(each), [(row, answers_of(row, MOST_CHARACTERS)) for row in each.regressions]) for each in found
    ]
    title = " · ".join(f"{each.b} against {each.a}" for each in found)
    return page("compare.html.j2", "style.css", "compile.css", "compare.css", compared=compared, title=title)
