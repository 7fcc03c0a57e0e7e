"""A fleet in a line, from its own files alone: its runs are not looked at."""

from __future__ import annotations

from proctor.fleet.book import ENDED, GIVEN_UP, Book
from proctor.storage.folder import Folder
from proctor.view.browse.fleets.opening import count_fleet
from proctor.view.formats import whole
from proctor.view.verdict import Tone


def fleet_brief(folder: Folder) -> tuple[str, str, Tone]:
    """What a list says of the fleet in a folder: what it comes to, the rest, and how that is coloured.

    Raises:
        UserError: as `proctor.view.browse.fleets.opening.open_fleet`.
        OSError: storage failed.
    """
    found = count_fleet(folder)
    size = f"{_many(found.cells, 'cell')} of {_many(found.checkpoints, 'checkpoint')}"
    if found.problem:
        return size, f"what happened to it is not known: {found.problem}", "bad"
    book = Book()
    book.read(found.events)
    units = {str(event.data["unit"]) for event in found.events if isinstance(event.data.get("unit"), str)}
    told = [book.unit(name) for name in units]
    done = sum(one.over == ENDED for one in told)
    counts = {
        "at work": sum(one.attempt is not None for one in told),
        "given up": sum(one.over == GIVEN_UP for one in told),
        "held": len(found.held),
    }
    said = [f"{whole(count)} {what}" for what, count in counts.items() if count]
    tone: Tone = "bad" if counts["given up"] else "good" if found.units and done >= found.units else "open"
    rest = [size, *said, "watched" if found.watched else "nobody watches it"]
    return f"{whole(done)} of {_many(found.units, 'unit')} complete", "; ".join(rest), tone


def _many(count: int, what: str) -> str:
    return f"{whole(count)} {what}{'' if count == 1 else 's'}"
