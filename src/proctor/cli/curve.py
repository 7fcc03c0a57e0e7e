"""``proctor curve``: a metric over checkpoints."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proctor.cli.output import counted, escaped, json_line, stderr, stdout, table
from proctor.cli.run import Json

if TYPE_CHECKING:
    from proctor.paired.curve import LearningCurve, Point

_BAR = 20
"""Characters of the bar of a share of 1."""


class Order(StrEnum):
    """In which order checkpoints stand."""

    NUMBER = "number"
    GIVEN = "given"


def curve(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN[:CHECKPOINT]|FLEET...", help="Runs, each with its checkpoints, or whole fleets."),
    ],
    metric: Annotated[str | None, typer.Option("--metric", help="Default: the task's headline.")] = None,
    order: Annotated[
        Order,
        typer.Option("--order", help="By the numbers in the checkpoints' names (where all have one), or as given."),
    ] = Order.NUMBER,
    page: Annotated[
        Path | None, typer.Option("--page", metavar="FILE", help="Write the chart as one HTML file, too.")
    ] = None,
    cells: Annotated[
        str, typer.Option("--cells", metavar="PATTERN", help="Which cells of a fleet, by their names: 'step-*--vqa'.")
    ] = "*",
    json: Json = False,
) -> None:
    """Show how a metric developed over checkpoints: each value with its interval, and each step with its own.

    A step is paired row by row, so that it shows what two overlapping intervals cannot. Checkpoints of several runs
    form one curve; a step is only given between runs of the same source. The cells of a fleet are such runs, as far as
    they have begun; those of one task and one choice of keys make a curve.

    Exit code: 0, or 1 for a mistake in the input.
    """
    from proctor.paired.curve import learning_curve
    from proctor.paired.sides import open_run

    found = learning_curve([open_run(text) for given in runs for text in _runs_of(given, cells)], metric, order.value)
    if page is not None:
        from proctor.view.curve import write_curve_page

        write_curve_page(page, found)
    if json:
        for point in found.points:
            json_line("point", metric=found.metric, **_point(point))
        best = found.best
        json_line("curve", metric=found.metric, order=found.order, best=best.label if best else None,
                  page=None if page is None else str(page))  # fmt: skip
        return
    _show(found)
    if page is not None:
        stdout.say(f"page: {page}")


def _runs_of(given: str, cells: str) -> list[str]:
    """A run is itself; a fleet is the runs of its cells."""
    from proctor.fleet.addresses import addresses, is_fleet

    if not is_fleet(given):
        return [given]
    found = addresses(given, cells)
    if found.missing:
        stderr.print(f"not begun yet: {counted(len(found.missing), 'cell')} of {escaped(given)}", soft_wrap=True)
    return found.runs


def _point(point: Point) -> dict[str, object]:
    content = asdict(point)
    del content["summary"]
    return content


def _show(found: LearningCurve) -> None:
    by = "in the order of their numbers" if found.order == "number" else "as given"
    columns = ["checkpoint", found.metric, "95 % interval", "n", "", "step", "95 % interval", "p", "moved"]
    stdout.print(f"[bold]{escaped(found.metric)} over {len(found.points)} checkpoints, {by}[/]")
    stdout.print(table(columns, [(point.label, *_value(point), *_step(point)) for point in found.points]))
    best = found.best
    if best is not None and len(found.points) > 1:
        stdout.print(f"best: [bold]{escaped(best.label)}[/]")


def _value(point: Point) -> tuple[str, str, str, str]:
    """The value with its interval, the rows it covers, and a bar for a share."""
    from proctor.view.formats import is_share, metric_interval, metric_value

    metric = point.value
    if metric is None:
        return "-", "-", "-", ""
    bar = "\u2588" * round(_BAR * (metric.value or 0.0)) if is_share(metric) else ""
    return metric_value(metric), metric_interval(metric), f"{metric.n:,}", bar


def _step(point: Point) -> tuple[str, str, str, str]:
    """What became of it since the checkpoint before."""
    from proctor.paired.words import interval_of, p_value, size_of

    change = point.change
    if change is None or change.difference is None:
        return "-", "-", "-", point.note or "-"
    tested = "-" if change.p is None else p_value(change.p)
    moved = "-" if change.moved == "no" else change.moved
    return size_of(change.difference, change.measure), interval_of(change), tested, moved
