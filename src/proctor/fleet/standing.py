"""How each cell stands, from the run directories and the fleet's events alone: no Ray, and nothing that can raise."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from proctor.fleet.addresses import address_of
from proctor.fleet.cells import Cell, Unit
from proctor.fleet.folder import FleetDir
from proctor.fleet.history import Tries, tries_of
from proctor.fleet.notes import Notes
from proctor.results import Ledger, Reconciliation, RunDir
from proctor.rows import Event, told
from proctor.runner.status import RunStatus, read_status
from proctor.tasks import Metric, Summary

WAITING = "waiting"
"""No run yet, and nothing submitted."""
SUBMITTED = "submitted"
"""Its GPUs are its own, and its run has not begun."""
GIVEN_UP = "given up"
HELD = "held"
"""A person has stopped it."""
UNREADABLE = "unreadable"
DONE = ("complete", "too_many_errors")
"""States of a run whose rows are all accounted for."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One cell.

    Attributes:
        cell: which.
        unit: name of its unit.
        address: ``RUN_DIR:CHECKPOINT``, as ``proctor compare`` takes it.
        state: `WAITING`, `SUBMITTED`, ``running``, ``crashed``, the name of its run's exit code, `GIVEN_UP`, `HELD`,
            or `UNREADABLE`.
        expected: rows of the source; None while that is not known.
        answered, errors, unanswered: of these; they add up to `expected` once it is known.
        score: the headline of its task, once the run has closed.
        rate: rows a second of the run that it is, or was, in; None before.
        attempts: tries of its unit.
        gpu_hours: that its unit has held GPUs, divided among the cells of the unit.
        note: what else a person should know: why it was queued again or given up, what is wrong with its files.
        seconds_ago: since its run last said how it goes; None before.
    """

    cell: Cell
    unit: str
    address: str
    state: str
    expected: int | None = None
    answered: int = 0
    errors: int = 0
    unanswered: int | None = None
    score: Metric | None = None
    rate: float | None = None
    attempts: int = 0
    gpu_hours: float = 0.0
    note: str = ""
    seconds_ago: float | None = None


def standings(place: FleetDir, units: Sequence[Unit], events: Iterable[Event] | None = None) -> list[Standing]:
    """How every cell of `units` stands, in their order.

    A run directory that is half written, damaged or of another version gives rows with the reason.

    Args:
        place: the fleet directory; it need not be there yet.
        units: of the fleet.
        events: of the fleet; default: those in the directory.

    Raises:
        OSError: the events cannot be read.
    """
    tries, held = tries_of(place.events() if events is None else events, time.time()), Notes(place.folder).held()

    def stand(unit: Unit) -> list[Standing]:
        mine = tries.get(unit.name, Tries())
        mine.held = unit.name in held
        return unit_standings(place.run(unit.name), unit, mine)

    return [row for rows in place.each(stand, units) for row in rows]


def unit_standings(run: RunDir, unit: Unit, tries: Tries) -> list[Standing]:
    """How the cells of one unit stand."""
    try:
        return list(_told(run, unit, tries))
    except Exception as error:  # whatever lies there, the other cells are shown
        note = told(error)
        return [replace(row, state=UNREADABLE, note=note) for row in _bare(run, unit, tries)]


def _told(run: RunDir, unit: Unit, tries: Tries) -> Iterator[Standing]:
    if not run.folder.exists("spec.yaml"):
        yield from _bare(run, unit, tries)
        return
    status = read_status(run)
    seconds = _number(status.last.get("seconds"))
    if not tries.attempts:  # a run that somebody started by hand
        tries = replace(tries, attempts=1, seconds=seconds)
    summaries, trouble = _summaries(run)
    ledgers = _ledgers(status)
    last = _number(status.last.get("time"))
    for row in _bare(run, unit, tries):
        name = row.cell.checkpoint
        counted = _counted(row, status, ledgers.get(name))
        summary = summaries.get(name)
        yield replace(
            counted,
            state=_state(status, ledgers.get(name), tries, unit),
            score=None if summary is None else _headline(summary),
            rate=_rate(status, seconds),
            note="; ".join(filter(None, (counted.note, trouble, row.note if status.state not in DONE else ""))),
            seconds_ago=max(0.0, time.time() - last) if last else None,
        )


def _bare(run: RunDir, unit: Unit, tries: Tries) -> Iterator[Standing]:
    """The cells of a unit, from the fleet's events alone."""
    over = GIVEN_UP if tries.given_up else HELD if tries.held else ""
    state = over or (SUBMITTED if tries.under_way else WAITING)
    for cell in unit.cells:
        yield Standing(
            cell,
            unit.name,
            address_of(run, cell),
            state,
            attempts=tries.attempts,
            gpu_hours=tries.seconds * unit.gpus / 3600 / len(unit.cells),
            note=tries.why,
        )


def _ledgers(status: RunStatus) -> dict[str, Ledger]:
    """The accounts of a run that has closed and not been opened again since."""
    if status.verdict is None or status.state in ("running", "crashed"):
        return {}
    return {ledger.checkpoint: ledger for ledger in Reconciliation.from_json(status.verdict).ledgers}


def _counted(row: Standing, status: RunStatus, ledger: Ledger | None) -> Standing:
    name = row.cell.checkpoint
    doubt = next((text for text in status.doubts if text.startswith(f"{name}: ")), "")
    if ledger is None or doubt:
        done, errors = status.done.get(name, 0), status.errors.get(name, 0)
        left = status.total - done if status.total else None
        return replace(
            row, expected=status.total or None, answered=done - errors, errors=errors, unanswered=left, note=doubt
        )
    odd = {"duplicate": ledger.duplicate, "unexpected": ledger.unexpected, "unsound": ledger.unsound}
    return replace(
        row,
        expected=ledger.expected,
        answered=ledger.answered,
        errors=sum(ledger.errors.values()),
        unanswered=sum(ledger.unanswered.values()) + ledger.missing,
        note=", ".join(f"{count:,} {what}" for what, count in odd.items() if count),
    )


def _state(status: RunStatus, ledger: Ledger | None, tries: Tries, unit: Unit) -> str:
    """The state of a cell; in a run that could not finish all of its cells, of this one."""
    if status.state in ("incomplete", *DONE) and ledger is not None and ledger.complete:
        over = ledger.error_rate > unit.spec.limits.max_error_rate
        return "too_many_errors" if over else "complete"
    if status.state in (*DONE, "running"):
        return status.state
    return GIVEN_UP if tries.given_up else HELD if tries.held else status.state


def _summaries(run: RunDir) -> tuple[dict[str, Summary], str]:
    try:
        return msgspec.convert(run.read("metrics") or {}, dict[str, Summary]), ""
    except Exception as error:  # the counts are none the worse for it
        return {}, f"no scores: {told(error)}"


def _headline(summary: Summary) -> Metric | None:
    return next((metric for metric in summary.metrics if metric.name == summary.headline), None)


def _rate(status: RunStatus, seconds: float) -> float | None:
    if status.state == "running":
        return _number(status.last.get("rate")) or None
    entries = [entry for entry in (status.last.get("checkpoints") or {}).values() if isinstance(entry, dict)]
    rows = sum(_number(entry.get("done")) - _number(entry.get("before")) for entry in entries)
    return rows / seconds if seconds and rows > 0 else None


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
