"""Small files by which a watcher, the units' own processes and people tell each other things::

stops/<submission>.json   a job is asked to stop; one that has not begun will not begin any more
exits/<submission>.json   with what a unit's process ended
holds/<unit>.json         a person does not want a unit to run
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from proctor.fleet.naming import shortened
from proctor.fleet.view import LastWords
from proctor.results.files import write_json
from proctor.storage.folder import Folder

_STOPS, _EXITS, _HOLDS, _AGAIN, _SUFFIX = "stops", "exits", "holds", "again", ".json"
_LONGEST = 200
"""Characters of a name before the suffix: a file under way has forty more, and file systems take 255 bytes. Units have
no longer names; jobs may."""


class Notes:
    """These files of a fleet directory. Methods raise `OSError` when storage fails."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def ask_to_stop(self, submission: str, reason: str) -> None:
        """Asks a job to stop, whether it has begun or not."""
        write_json(self._folder, _name(_STOPS, submission), {"reason": reason, "time": time.time()})

    def stop_asked(self, submission: str) -> bool:
        """Whether a job is asked to stop."""
        return self._folder.exists(_name(_STOPS, submission))

    def leave(self, submission: str, last: LastWords) -> None:
        """Says with what a unit's process ends."""
        content = {"exit_code": last.exit_code, "message": last.message, "time": time.time()}
        write_json(self._folder, _name(_EXITS, submission), content)

    def left(self, submission: str) -> LastWords | None:
        """With what a unit's process ended; None if it said nothing, or nothing that can be understood."""
        try:
            content = msgspec.json.decode(self._folder.read(_name(_EXITS, submission)), type=dict[str, Any])
            return msgspec.convert({key: content[key] for key in ("exit_code", "message")}, LastWords)
        except (FileNotFoundError, KeyError, msgspec.MsgspecError):
            return None

    def hold(self, unit: str) -> None:
        """Says that a unit is not to run."""
        self._put(_HOLDS, unit)

    def release(self, unit: str) -> None:
        """Takes that back."""
        self._folder.delete(_name(_HOLDS, unit))

    def held(self) -> set[str]:
        """The units that are not to run."""
        return self._units(_HOLDS)

    def try_again(self, unit: str) -> None:
        """Says that a unit which was given up is to be tried again."""
        self._put(_AGAIN, unit)

    def tried_again(self, unit: str) -> None:
        """Takes note that it is."""
        self._folder.delete(_name(_AGAIN, unit))

    def to_try_again(self) -> set[str]:
        """The units that are to be tried again."""
        return self._units(_AGAIN)

    def _put(self, kind: str, unit: str) -> None:
        write_json(self._folder, _name(kind, unit), {"time": time.time()})

    def _units(self, kind: str) -> set[str]:
        try:
            names = self._folder.names(kind)
        except FileNotFoundError:
            return set()
        return {name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)}


def _name(kind: str, of: str) -> str:
    return f"{kind}/{shortened(of, _LONGEST)}{_SUFFIX}"
