"""``proctor compare``: runs or checkpoints beside each other, row by row."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proctor.cli.output import json_line, stdout
from proctor.cli.run import Json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proctor.paired.comparing import Wish
    from proctor.paired.model import Comparison
    from proctor.paired.sides import Side


class By(StrEnum):
    """What pairs two rows."""

    ROW_ID = "row-id"
    SAMPLE_ID = "sample-id"


Pairing = Annotated[
    By, typer.Option("--by", help="What pairs rows. Row ids need the same source on both sides; sample ids do not.")
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="COLUMN[~REGEX]",
        help="Rows with the same value in this column of the records (or the same first group of REGEX in it) are one "
        "unit of the intervals, e.g. 'sample_id~^(drive-\\d+)'.",
    ),
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Rows without a score count as wrong in the shares of right answers.")
]


def compare(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN[:CHECKPOINT]...", help="Two to four; each is compared with the first.")
    ],
    by: Pairing = By.ROW_ID,
    metric: Annotated[
        str | None, typer.Option("--metric", help="What the regressions are about. Default: the task's headline.")
    ] = None,
    cluster: ClusterOption = None,
    strict: Strict = False,
    limit: Annotated[int, typer.Option("--limit", min=0, max=100_000, help="Most regressions to list.")] = 20,
    export: Annotated[
        Path | None,
        typer.Option("--export", metavar="FILE", help="Write every row that changed: FILE.csv or FILE.parquet."),
    ] = None,
    ids: Annotated[
        Path | None, typer.Option("--ids", metavar="FILE", help="Write the ids of the regressions, one a line.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the comparison as one HTML page as well.")
    ] = None,
    json: Json = False,
) -> None:
    """Compare runs, or checkpoints of them, row by row: what got better, what got worse, and what could be seen.

    First comes the account of all rows: scored on both sides, on one, or on none, and why. Then every metric over the
    rows that both sides have it for, with the 95 % interval of the difference, the rows that changed either way, the
    exact McNemar test, and the smallest difference that so many rows would show. Then the regressions.

    Runs of several checkpoints are compared checkpoint by checkpoint, by name.

    Exit code: 0 compared, whatever the result (`proctor gate` judges); 1 a mistake in the input.
    """
    from proctor.paired.comparing import Wish
    from proctor.paired.sides import line_up, open_run

    groups, missing = line_up([open_run(text) for text in runs])
    if (export or ids) and len(groups) > 1:
        from proctor.rows import UserError

        raise UserError("files are written for one comparison", where="--export, --ids", fix="name RUN:CHECKPOINT")
    wish = Wish(by.value, metric, cluster, strict, limit, export, ids)
    results = [found for group in groups for found in _told(group, wish, as_json=json)]
    for text in missing:
        if json:
            json_line("not_compared", checkpoint=text)
        else:
            stdout.say(f"not compared: {text}", style="yellow")
    if html is not None:
        from proctor.view.compare import write_compare_page

        write_compare_page(html, results)
    if not json:
        for path in filter(None, (export, ids, html)):
            stdout.say(f"written: {path}")


def _told(group: Sequence[Side], wish: Wish, *, as_json: bool) -> Iterator[Comparison]:
    """The comparisons of a group, each told as soon as it is made."""
    from proctor.cli.compare_text import show_comparison
    from proctor.paired.comparing import compare as compared

    for found in compared(group, wish):
        (_lines if as_json else show_comparison)(found)
        yield found


def _lines(found: Comparison) -> None:
    """A line for each metric and each regression; at last all the rest."""
    sides = {"a": found.a, "b": found.b}
    for change in found.changes:
        content = asdict(change)
        measure = content.pop("measure")
        values = {"value_a": content.pop("a"), "value_b": content.pop("b")}
        json_line("change", **sides, metric=measure["name"], moved=change.moved, **measure_facts(measure), **values,
                  **content)  # fmt: skip
    for row in found.regressions:
        json_line("regression", **sides, **asdict(row))
    rest = asdict(found)
    for name in ("changes", "regressions"):
        del rest[name]
    json_line("comparison", **rest, sound=found.account.sound)


def measure_facts(measure: dict[str, object]) -> dict[str, object]:
    """What a metric is, besides its name."""
    return {name: measure[name] for name in ("form", "unit", "higher_is_better")}
