"""``proctor fleet list``: how every cell stands."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING

from proctor.cli.fleet_given import given
from proctor.cli.fleet_watch import FleetPlace
from proctor.cli.output import counted, escaped, json_line, stdout, table
from proctor.cli.run import Json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proctor.fleet.standing import Standing


def list_cells(fleet: FleetPlace, json: Json = False) -> None:
    """Show how every cell of a fleet stands, from its directory alone: while it is at work and afterwards.

    Answered, errors and unanswered add up to the rows expected. The rate is that of the run that a cell is, or was, in.

    Exit code: 0, or 1 for a mistake in the input.
    """
    from proctor.fleet.standing import standings

    found = given(fleet)
    rows = standings(found.place, found.units)
    states = dict(Counter(row.state for row in rows))
    gpu_hours = sum(row.gpu_hours for row in rows)
    if json:
        for row in rows:
            json_line("cell", **_plain(row))
        json_line("fleet", place=found.place.location, recorded=found.recorded, watched=found.place.watched,
                  way=found.spec.way, cells=len(rows), states=states, gpu_hours=gpu_hours)  # fmt: skip
        return
    said = ", ".join(f"{count:,} {state.replace('_', ' ')}" for state, count in states.items())
    stdout.print(f"[bold]{counted(len(rows), 'cell')}[/]: {escaped(said or 'none yet')}", soft_wrap=True)
    stdout.print(table(_COLUMNS, [_cells(row) for row in rows]))
    _show_notes(rows)
    watcher = "watched" if found.place.watched else "nobody watches it"
    recorded = watcher if found.recorded else "never submitted"
    stdout.say(f"{found.place.location}: {recorded}; {gpu_hours:,.2f} GPU hours")


def _plain(row: Standing) -> dict[str, object]:
    content = asdict(row)
    cell = content.pop("cell")
    return {"name": cell.pop("name"), **cell, **content}


_COLUMNS = (
    "cell", "state", "answered", "errors", "unanswered", "score", "95 % interval", "of rows", "rows/s", "tries",
    "GPU h",
)  # fmt: skip


def _cells(row: Standing) -> tuple[object, ...]:
    from proctor.view.formats import metric_interval, metric_value

    known = row.expected is not None
    score = None if row.score is None or row.score.value is None else row.score
    return (
        row.cell.name,
        row.state.replace("_", " "),
        row.answered if known else "-",
        row.errors if known else "-",
        row.unanswered if known else "-",
        "-" if score is None else f"{metric_value(score)} {score.name}",
        "-" if score is None else metric_interval(score),
        "-" if score is None else score.n,
        "-" if row.rate is None else f"{row.rate:,.1f}",
        row.attempts or "-",
        f"{row.gpu_hours:.2f}" if row.gpu_hours else "-",
    )


def _show_notes(rows: Sequence[Standing]) -> None:
    """What else there is to say; the cells of a unit share most of it."""
    said: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.note:
            said.setdefault((row.unit, row.note), []).append(row.cell.name)
    for (unit, note), names in said.items():
        stdout.say(f"{names[0] if len(names) == 1 else unit}: {note}", style="yellow")
