"""Sends what did not arrive during a run."""

from __future__ import annotations

import time
from collections.abc import Sequence

from proctor.rows import Event, UserError
from proctor.spec import JsonlTrackerSpec, TrackerSpec, tracker_name
from proctor.storage.folder import Folder
from proctor.trackers.book import Book
from proctor.trackers.outlet import Closed
from proctor.trackers.trackers import check_trackers, sender_of

_TICK = 0.05


def sync(specs: Sequence[TrackerSpec], run: Folder, *, only: str | None = None, seconds: float = 600.0) -> list[Closed]:
    """Sends, tracker by tracker, the entries that each has not said to have; where there is none, nothing is sent.

    Args:
        specs: as in the run's spec.
        run: the run directory, which no driver may hold meanwhile.
        only: name of the one tracker to send to. Default: all.
        seconds: most time for each.

    Raises:
        UserError: there is no such tracker, or it cannot be opened.
        OSError: the run directory cannot be read or written.
    """
    chosen = [spec for spec in specs if only in (None, tracker_name(spec))]
    if only is not None and not chosen:
        names = ", ".join(tracker_name(spec) for spec in specs) or "none"
        raise UserError(f"no tracker named {only!r}", where=run.location, fix=f"the run has: {names}")
    check_trackers(chosen, run)
    return [_sync_one(spec, run, seconds) for spec in chosen]


def _sync_one(spec: TrackerSpec, run: Folder, seconds: float) -> Closed:
    name = tracker_name(spec)
    book = Book(run, name)
    if isinstance(spec, JsonlTrackerSpec):
        return Closed(name, book.last, book.last, 0, "")
    if not book.unsent():
        return Closed(name, book.last, book.arrived, 0, "")
    notes: list[str] = []
    sender = sender_of(spec, run, book, lambda event: _note(event, notes), seconds)
    deadline, ok = time.monotonic() + seconds, _went_well(book)
    try:
        while not sender.done and time.monotonic() < deadline:
            sender.step(time.monotonic(), closing=True, ok=ok)
            time.sleep(_TICK)
    finally:
        sender.end()
    left_over = "" if sender.done else f"not done within {seconds:g} s"
    trouble = sender.trouble or left_over or "; ".join(notes)
    return Closed(name, book.last, book.arrived, 0, trouble)


def _note(event: Event, notes: list[str]) -> None:
    if event.kind == "tracker.refused":
        notes.append(event.message)


def _went_well(book: Book) -> bool | None:
    """Whether the run's last word was that it is complete."""
    codes = [entry.values["exit_code"] for entry in book.entries() if "exit_code" in entry.values]
    return codes[-1] == 0 if codes else None
