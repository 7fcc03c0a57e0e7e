"""Text and JSON files of a run, each whole or not at all."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from proctor.rows import Event, UserError
from proctor.storage.folder import Folder, Journal


def write_text(folder: Folder, name: str, text: str) -> None:
    """Writes a text file."""
    folder.write(name, text.encode("utf-8"))


def write_json(folder: Folder, name: str, value: Any) -> None:
    """Writes a JSON file. Numbers that JSON does not know (NaN, infinity) are null."""
    folder.write(name, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def read_json(folder: Folder, name: str) -> Any:
    """The object in a JSON file, None where there is none.

    Raises:
        UserError: the file does not hold a JSON object (any more).
    """
    where = f"{folder.location}/{name}"
    try:
        content = json.loads(folder.read(name))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise UserError("not JSON: somebody or something has damaged it", where=where) from error
    if not isinstance(content, dict):
        raise UserError("not a JSON object: somebody or something has damaged it", where=where)
    return content


def read_events(journal: Journal) -> list[Event]:
    """All events so far; a line cut short by a crash is left out."""
    events = []
    for line in journal.lines():
        try:
            events.append(msgspec.json.decode(line, type=Event))
        except msgspec.MsgspecError:
            continue
    return events


def add_event(journal: Journal, event: Event) -> None:
    """Appends one event and waits until it is written.

    Raises:
        OSError: it could not be written.
    """
    journal.append(msgspec.json.encode(event))
    journal.flush()
