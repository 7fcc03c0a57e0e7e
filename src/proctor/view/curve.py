"""The page of a learning curve: one HTML file, like a run's report (see `proctor.view.report`)."""

from __future__ import annotations

from pathlib import Path

from proctor.paired.curve import LearningCurve
from proctor.tasks import Summary
from proctor.view.charts.curve import curves
from proctor.view.pages import page, write_page


def write_curve_page(place: Path, found: LearningCurve) -> None:
    """Writes the page, whole or not at all.

    Raises:
        UserError: there is no such directory, or it cannot be written to.
    """
    write_page(place, render_curve(found))


def render_curve(found: LearningCurve) -> str:
    """The page: the chart of the metric, and the same numbers as a table."""
    chosen = {
        point.label: Summary(found.metric, (point.value,)) for point in found.points if point.value is not None
    }  # fmt: skip
    charts = curves(chosen)
    return page("curve.html.j2", "style.css", found=found, charts_=charts)
