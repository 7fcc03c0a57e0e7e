"""The page of a learning curve: one HTML file, like a run's report (see `proctor.view.report`)."""

from __future__ import annotations

from pathlib import Path

from proctor.paired.curve import LearningCurve
from proctor.rows import UserError
from proctor.storage.local import write_whole
from proctor.tasks import Summary
from proctor.view.charts.curve import curves
from proctor.view.pages import page


def write_curve_page(place: Path, found: LearningCurve) -> None:
    """Writes the page, whole or not at all.

    Raises:
        UserError: there is no such directory, or it cannot be written to.
    """
    if not place.parent.is_dir():
        raise UserError("no such directory", where=str(place.parent), fix="make it, or choose another place")
    text = render_curve(found)
    try:
        write_whole(place, lambda draft: _put(draft, text))
    except OSError as error:
        raise UserError(f"cannot write: {error.strerror or error}", where=str(place)) from error


def render_curve(found: LearningCurve) -> str:
    """The page: the chart of the metric, and the same numbers as a table."""
    chosen = {
        point.label: Summary(found.metric, (point.value,)) for point in found.points if point.value is not None
    }  # fmt: skip
    charts = curves(chosen)
    return page("curve.html.j2", "style.css", found=found, charts_=charts)


def _put(draft: Path, text: str) -> None:
    draft.write_text(text, encoding="utf-8")
