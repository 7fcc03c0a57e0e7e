"""The fleet directory: what a fleet is and what happened to it. It is the truth; everything else can be made anew.

::

    fleet.json      the resolved spec and the checkpoints, in the order in which they became known
    cells/<unit>/   run directories
    events.jsonl    every decision, written by the holder of the lease
    lease.json      who watches
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec
from pydantic import ValidationError

from proctor.fleet.cells import CELLS, Unit, expand
from proctor.results import RunDir
from proctor.results.files import add_event, read_events, read_json
from proctor.rows import Event, UserError
from proctor.spec import Checkpoint
from proctor.spec.fleet import FleetSpec
from proctor.storage.base import Version
from proctor.storage.connect import DEFAULT_OPTIONS, StorageOptions
from proctor.storage.folder import Folder, Place, open_folder
from proctor.storage.lease import Lease, is_live

_Of = TypeVar("_Of")
_T = TypeVar("_T")
DOCUMENT = "fleet.json"
_FORMAT = 1
_ID = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Fleet:
    """Content of ``fleet.json``.

    Attributes:
        id: 12 hex digits, drawn when the fleet was first submitted.
        created: when that was, in seconds since the epoch.
        spec: resolved: with the run spec inside it, and absolute paths.
        batches: its checkpoints; those that were found together are one batch.
    """

    id: str
    created: float
    spec: FleetSpec
    batches: tuple[tuple[Checkpoint, ...], ...]

    @property
    def base(self) -> dict[str, Any]:
        """Keys of the run spec."""
        return base_of(self.spec)

    def units(self) -> list[Unit]:
        """All units, in the order of the matrix. A fleet that grows may be without any; another one may not.

        Raises:
            UserError: as `expand`.
        """
        if self.spec.grows and not self.batches:
            return []
        return expand(self.spec, self.base, self.batches)

    def to_json(self) -> bytes:
        """As it is stored."""
        content = {
            "format": _FORMAT,
            "id": self.id,
            "created": self.created,
            "spec": self.spec.model_dump(mode="json", exclude_unset=True),
            "batches": [[checkpoint.model_dump() for checkpoint in batch] for batch in self.batches],
        }
        return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"

    @classmethod
    def from_json(cls, content: dict[str, Any], where: str) -> Fleet:
        """What `to_json` wrote.

        Raises:
            UserError: it is damaged, or of another version of Proctor.
        """
        try:
            if content["format"] != _FORMAT:
                raise UserError(f"a fleet of format {content['format']}, this version writes {_FORMAT}", where=where)
            if not _ID.fullmatch(str(content["id"])):  # it becomes part of names of files and of jobs
                raise ValueError("its id is not 12 hex digits")
            batches = [[Checkpoint.model_validate(one) for one in batch] for batch in content["batches"]]
            spec = FleetSpec.model_validate(content["spec"])
            return cls(str(content["id"]), float(content["created"]), spec, tuple(map(tuple, batches)))
        except (KeyError, TypeError, ValueError, ValidationError) as error:
            line = " ".join(str(error).split())
            raise UserError(f"does not describe a fleet: {line}", where=where, fix="put the file back") from error


def base_of(fleet: FleetSpec) -> dict[str, Any]:
    """Keys of the run spec of a resolved fleet spec."""
    if isinstance(fleet.run, str):
        raise TypeError("not resolved: load it with load_fleet")
    return dict(fleet.run)


def storage_options(fleet: FleetSpec) -> StorageOptions:
    """How the object storage of a resolved fleet spec is reached."""
    given = base_of(fleet).get("storage")
    return StorageOptions(**given) if isinstance(given, dict) else DEFAULT_OPTIONS


class FleetDir:
    """Plain reading and writing of a fleet directory. Holds no state: the files are the state.

    Args:
        place: path or URL of the directory.
        options: how object storage is reached, for a URL.
    """

    def __init__(self, place: Place, options: StorageOptions = DEFAULT_OPTIONS) -> None:
        self.folder: Folder = open_folder(place, options)
        self._options = options
        self._journal = self.folder.journal("events")  # one for all events: in object storage it knows where it stands

    @classmethod
    def existing(cls, place: Place, options: StorageOptions = DEFAULT_OPTIONS) -> FleetDir:
        """The fleet directory at `place`.

        Raises:
            UserError: there is no fleet.
        """
        found = cls(place, options)
        if not found.exists:
            raise UserError(
                "no fleet here (no fleet.json)", where=found.location, fix="start one with `proctor fleet submit FLEET`"
            )
        return found

    @property
    def location(self) -> str:
        """Its path or URL."""
        return self.folder.location

    @property
    def exists(self) -> bool:
        """Whether there is a fleet.

        Raises:
            UserError: that cannot be seen.
        """
        try:
            return self.folder.exists(DOCUMENT)
        except OSError as error:
            raise UserError(f"cannot be read: {error}", where=self.location) from error

    def read(self) -> Fleet | None:
        """The fleet, None if there is none.

        Raises:
            UserError: ``fleet.json`` is damaged.
        """
        content = read_json(self.folder, DOCUMENT)
        return None if content is None else Fleet.from_json(content, f"{self.location}/{DOCUMENT}")

    def fleet(self) -> Fleet:
        """The fleet.

        Raises:
            UserError: there is none, or ``fleet.json`` is damaged.
        """
        found = self.read()
        if found is None:
            raise UserError("no fleet here (no fleet.json)", where=self.location)
        return found

    def check_place(self, fleet: Fleet) -> None:
        """Whether this is the place in which the jobs of `fleet` work: it may have been moved or copied.

        Raises:
            UserError: it is another one.
        """
        if not same_place(self.location, fleet.spec.fleet_dir):
            raise UserError(
                f"this fleet was recorded in {fleet.spec.fleet_dir}, and its jobs work there",
                where=self.location,
                fix="move it back, or submit it with this fleet_dir",
            )

    def write(self, fleet: Fleet, over: Version | None) -> bool:
        """Writes ``fleet.json`` in place of the state `over`, or as the first one; False if another was faster."""
        data = fleet.to_json()
        self.folder.prepare()
        if over is None:
            return self.folder.create(DOCUMENT, data) is not None
        return self.folder.replace(DOCUMENT, data, over) is not None

    def unit(self, name: str) -> Unit:
        """The unit of that name, which works in this directory.

        Raises:
            UserError: there is none, or the fleet was recorded in another place.
        """
        fleet = self.fleet()
        self.check_place(fleet)
        unit = next((unit for unit in fleet.units() if unit.name == name), None)
        if unit is None:
            raise UserError(f"no unit {name!r} in this fleet", where=self.location)
        return unit

    def run(self, unit: str) -> RunDir:
        """The run directory of a unit; it need not be there yet."""
        return RunDir(self.folder.below(CELLS).below(unit), self._options)

    def each(self, look: Callable[[_Of], _T], items: Sequence[_Of]) -> list[_T]:
        """What `look` gives for each of `items`, in their order; as many at once as is worth it here."""
        if self.folder.concurrency == 1 or len(items) < 2:
            return [look(item) for item in items]
        with ThreadPoolExecutor(self.folder.concurrency) as pool:
            return list(pool.map(look, items))

    def events(self) -> list[Event]:
        """All events so far; a line cut short by a crash is left out."""
        return read_events(self._journal)

    def append_event(self, event: Event) -> None:
        """Appends one event and waits until it is written. Only for the holder of the lease.

        Raises:
            OSError: it could not be written.
        """
        add_event(self._journal, event)

    @contextmanager
    def held(self, on_lost: Callable[[str], None]) -> Iterator[Lease]:
        """Holds the fleet for one watcher during the block; see `proctor.storage.lease.Lease`.

        Raises:
            UserError: another watcher holds it.
        """
        lease = Lease(self.folder, on_lost)
        with lease.held():
            yield lease

    @property
    def watched(self) -> bool:
        """Whether a watcher holds the fleet now."""
        return is_live(self.folder)


def same_place(one: str, other: str) -> bool:
    """Whether two paths or URLs mean one directory."""
    one, other = (
        unquote(place.removeprefix("file://")) if place.startswith("file://") else place for place in (one, other)
    )
    if "://" in one or "://" in other:
        return one.rstrip("/") == other.rstrip("/")
    return os.path.realpath(one) == os.path.realpath(other)


def now() -> float:
    """Seconds since the epoch, for `Fleet.created`."""
    return time.time()
