"""How long ago a unit last got on. Kept in the fleet directory, for watchers that look only now and then."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from proctor.results.files import write_json
from proctor.storage.folder import Folder

_NAME = "progress.json"
_SAVE_SECONDS = 30.0


class _Entry(msgspec.Struct, frozen=True):
    """A mark and when it was first seen, by three clocks.

    Attributes:
        mark: whatever changes when a unit gets on.
        time: the wall clock, which may jump.
        ticks: seconds since the machine started.
        system: the start of the machine that `ticks` counts from.
    """

    mark: str
    time: float
    ticks: float
    system: str


class Clocks(NamedTuple):
    """Now, by the clocks of `_Entry`."""

    time: float
    ticks: float
    system: str

    @classmethod
    def read(cls) -> Clocks:
        """This machine's clocks."""
        return cls(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), _system())


class Silence:
    """Remembers for each unit since when its mark has not changed.

    A clock that is set does no harm while the machine stays up; a watcher on another machine has to trust the wall.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._entries = _stored(folder)
        self._changed, self._saved = False, float("-inf")

    def of(self, unit: str, mark: str, now: Clocks | None = None) -> float:
        """Seconds since `mark` of a unit changed; 0 if it has just changed."""
        now = Clocks.read() if now is None else now
        found = self._entries.get(unit)
        if found is None or found.mark != mark:
            self._entries[unit] = _Entry(mark, now.time, now.ticks, now.system)
            self._changed = True
            return 0.0
        age = now.ticks - found.ticks if found.system == now.system else now.time - found.time
        return max(0.0, age)

    def save(self, *, at_once: bool = False) -> None:
        """Stores what has changed, every half minute or `at_once`.

        Raises:
            OSError: storage failed.
        """
        now = time.monotonic()
        if self._changed and (at_once or now - self._saved > _SAVE_SECONDS):
            write_json(self._folder, _NAME, self._entries)
            self._changed, self._saved = False, now


def mark_of(attempt: int, state: str, status: Any) -> str:
    """What changes when an attempt gets on: the state of its job, its rows, its checkpoint and its sweep. A heartbeat
    changes nothing here, nor do restarts of an engine: a run that only restarts engines does not get on.

    Args:
        attempt: its number.
        state: of its job.
        status: ``status.json`` of its run directory, as far as it can be read.
    """
    found = status if isinstance(status, dict) else {}
    checkpoints = found.get("checkpoints")
    rows = {name: _counts(entry) for name, entry in checkpoints.items()} if isinstance(checkpoints, dict) else {}
    return msgspec.json.encode([attempt, state, found.get("active"), found.get("state"), rows], order="sorted").decode()


def _counts(entry: Any) -> list[Any]:
    if not isinstance(entry, dict):
        return []
    return [entry.get("done"), entry.get("answered"), entry.get("retries")]


def _stored(folder: Folder) -> dict[str, _Entry]:
    try:
        return msgspec.json.decode(folder.read(_NAME), type=dict[str, _Entry])
    except (FileNotFoundError, msgspec.MsgspecError):
        return {}  # ages then begin now


@cache
def _system() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
