"""What a tracker was told, on disk, and how much of it has arrived: ``trackers/NAME.jsonl`` and ``NAME.state.json``."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import msgspec

from proctor.storage.folder import Folder
from proctor.trackers.entries import Entry, Kind, Value, cleaned

FOLDER = "trackers"


class State(msgspec.Struct):
    """Content of ``trackers/NAME.state.json``.

    Attributes:
        key: names the run at the tracker, so that a later process goes on with the same one (32 hex digits).
        arrived: number of the last entry of which the tracker has said that it has it, and all before.
    """

    key: str
    arrived: int = 0


class Book:
    """One tracker's file. Everything is written here before it is sent anywhere.

    Opening it reads what earlier processes wrote.

    Raises:
        OSError: the run directory cannot be read or written.
    """

    def __init__(self, run: Folder, name: str) -> None:
        run.prepare(FOLDER)
        self._folder = run.below(FOLDER)
        self._journal = self._folder.journal(name)
        self._state_file = f"{name}.state.json"
        self._state = self._read_state()
        entries = self.entries()
        self.is_new = not entries
        # A state that is ahead of the file (object storage gathers lines for a second) must not hide what comes now.
        self._next = 1 + max(self._state.arrived, max((entry.n for entry in entries), default=0))
        self._step = max((entry.step for entry in entries), default=0)

    @property
    def key(self) -> str:
        """Names the run at the tracker."""
        return self._state.key

    @property
    def arrived(self) -> int:
        """Number of the last entry that the tracker has."""
        return self._state.arrived

    @property
    def last(self) -> int:
        """Number of the last entry written, 0 before the first."""
        return self._next - 1

    def write(self, kind: Kind, time: float, step: int, values: Mapping[str, Value]) -> Entry:
        """Adds an entry. A step below the last one becomes that: most trackers know no way back.

        Raises:
            OSError: it could not be written.
        """
        self._step = max(self._step, step)
        entry = Entry(self._next, kind, time, self._step, cleaned(values))
        self._journal.append(msgspec.json.encode(entry))
        self._next += 1
        return entry

    def flush(self) -> None:
        """Writes what object storage keeps back.

        Raises:
            OSError: it could not be written.
        """
        self._journal.flush()

    def entries(self) -> list[Entry]:
        """All entries; lines that a crash has cut short are left out."""
        found = []
        for line in self._journal.lines():
            try:
                found.append(msgspec.json.decode(line, type=Entry))
            except msgspec.MsgspecError:
                continue
        return found

    def unsent(self) -> list[Entry]:
        """Entries that have not arrived, those among them that object storage still keeps back.

        Raises:
            OSError: these could not be written.
        """
        self.flush()
        return [entry for entry in self.entries() if entry.n > self._state.arrived]

    def acknowledge(self, number: int) -> None:
        """Remembers that all entries up to `number` have arrived.

        Raises:
            OSError: that could not be written; they will be sent again.
        """
        if number > self._state.arrived:
            self._state.arrived = number
            self._write_state()

    def _read_state(self) -> State:
        try:
            return msgspec.json.decode(self._folder.read(self._state_file), type=State)
        except (FileNotFoundError, msgspec.MsgspecError):
            self._state = State(uuid.uuid4().hex)
            self._write_state()
            return self._state

    def _write_state(self) -> None:
        self._folder.write(self._state_file, msgspec.json.encode(self._state))
