"""Where a run keeps everything it knows, and who may write there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from proctor.results.chosen import NAME as CHOSEN_NAME
from proctor.results.chosen import ChosenFacts, read_chosen
from proctor.results.files import add_event, read_events, read_json, write_json, write_text
from proctor.results.parts import is_damage, parts_of
from proctor.rows import Event, UserError
from proctor.spec import RunSpec, build_spec, dump_spec
from proctor.spec.yamltext import parse_yaml
from proctor.storage.connect import DEFAULT_OPTIONS, StorageOptions
from proctor.storage.folder import Folder, Journal, Place, open_folder
from proctor.storage.lease import NAME as LEASE_NAME
from proctor.storage.lease import Lease, is_live

if TYPE_CHECKING:
    import duckdb

_FOLDERS = ("results", "attempts", "stalls", "faults", "aside", "events", "audit", "trackers")
_FILES = (
    "spec.yaml",
    "events.jsonl",
    "metrics.prom",
    "report.html",
    "records.csv",
    "records.jsonl",
    "records.parquet",
    CHOSEN_NAME,
)
_DOCUMENTS = ("source", "versions", "plan", "status", "reconciliation", "metrics")
_CONTENT = (*_FOLDERS, *_FILES, *(f"{name}.json" for name in _DOCUMENTS))
OWN_NAMES = (*_CONTENT, LEASE_NAME)
"""What a run keeps in its directory; whatever else lies there is not touched."""


class SourceFacts(msgspec.Struct, frozen=True):
    """Content of ``source.json``: what the run's source was when the run began.

    Attributes:
        fingerprint: changes whenever the data does.
        rows: how many there are.
        only: the list of rows that the run keeps to; None if it has all of them.
    """

    fingerprint: str
    rows: int
    only: ChosenFacts | None = None

    @property
    def expected(self) -> int:
        """Rows that the run has to answer."""
        return self.rows if self.only is None else self.only.rows

    def same_data(self, other: SourceFacts) -> bool:
        """Whether another run's source has the same rows."""
        return (self.fingerprint, self.rows) == (other.fingerprint, other.rows)


class RunDir:
    """Plain reading and writing of a run directory, on a local disk or on object storage. Holds no state: the files
    are the state.

    Args:
        place: path or URL of the directory.
        options: how object storage is reached, for a URL.
    """

    def __init__(self, place: Place, options: StorageOptions = DEFAULT_OPTIONS) -> None:
        self.folder: Folder = open_folder(place, options)

    @property
    def location(self) -> str:
        """Its path or URL."""
        return self.folder.location

    @property
    def root(self) -> Path:
        """Its directory, for one on a local disk."""
        return Path(self.location)

    @property
    def results(self) -> Folder:
        """Final records: ``part-*.parquet``."""
        return self.folder.below("results")

    @property
    def attempts(self) -> Folder:
        """Tries that failed for a reason that was not the row's own."""
        return self.folder.below("attempts")

    @property
    def journal(self) -> Journal:
        """The events: one JSON line for everything out of the ordinary."""
        return self.folder.journal("events")

    @classmethod
    def existing(cls, place: Place, options: StorageOptions = DEFAULT_OPTIONS) -> RunDir:
        """The run directory at `place`.

        Raises:
            UserError: there is no run, or it cannot be seen whether there is one.
        """
        run = cls(place, options)
        try:
            found = run.folder.exists("spec.yaml")
            if not found:
                run.folder.names()  # fails where there is no bucket: that is not known from one object's absence
        except OSError as error:
            raise UserError(f"cannot be read: {error}", where=run.location) from error
        if not found:
            raise UserError("no run here (no spec.yaml)", where=run.location, fix="start one with `proctor run SPEC`")
        return run

    def hasty(self, seconds: float) -> RunDir:
        """The same directory for what is not worth waiting for: each request is tried once, with that limit."""
        return RunDir(self.folder.hasty(seconds))

    def own_entries(self) -> list[str]:
        """Names of what lies here under the names that a run uses; empty folders do not count."""
        there = {name.rstrip("/") for name in self.folder.names()}
        return [name for name in _CONTENT if name in there]

    def move_own_entries(self, to: str) -> None:
        """Moves all of that into the folder `to`."""
        for name in self.own_entries():
            self.folder.move(name, f"{to}/{name}")

    def create(self, spec: RunSpec) -> None:
        """Makes the directories and stores the resolved spec, secrets masked."""
        if not self.folder.exists("spec.yaml"):
            self.folder.clear_workspaces()
        self.folder.prepare("results", "attempts", "stalls")
        write_text(self.folder, "spec.yaml", dump_spec(spec))

    def spec_text(self) -> str | None:
        """The stored spec as YAML, None before the run was created.

        Raises:
            UnicodeDecodeError: it is damaged.
        """
        try:
            return self.folder.read("spec.yaml").decode("utf-8")
        except FileNotFoundError:
            return None

    def spec(self) -> RunSpec | None:
        """The stored spec, None before the run was created.

        Raises:
            UserError: the stored spec is not one that this version understands.
        """
        try:
            text = self.spec_text()
            if text is None:
                return None
            data, _ = parse_yaml(text, "spec.yaml")
            return build_spec(data)
        except (UserError, UnicodeDecodeError) as error:
            where = f"{self.location}/spec.yaml"
            raise UserError(f"stored spec not understood: {error}", where=where, fix="use --fresh") from error

    def read(self, name: str) -> Any:
        """A JSON file of the run, by its name without the suffix; None if absent.

        Raises:
            UserError: it is not JSON (any more).
        """
        return read_json(self.folder, f"{name}.json")

    def source(self) -> SourceFacts | None:
        """What the run's source was when it began; None before that.

        Raises:
            UserError: ``source.json`` is damaged.
        """
        try:
            content = self.read("source")
            return None if content is None else msgspec.convert(content, SourceFacts)
        except msgspec.ValidationError as error:
            where = f"{self.location}/source.json"
            what = f"does not say what the run's source was: {error}"
            raise UserError(what, where=where, fix="put the file back, or use --fresh") from error

    def chosen(self) -> BitMap64 | None:
        """The rows that the run was told to keep to; None if it has all of its source, or has not begun.

        Raises:
            UserError: ``source.json`` or the list is damaged.
        """
        facts = self.source()
        return None if facts is None or facts.only is None else read_chosen(self.folder, facts.only)

    def write(self, name: str, value: Any) -> None:
        """Writes a JSON file of the run, whole or not at all."""
        write_json(self.folder, f"{name}.json", value)

    def events(self) -> list[Event]:
        """All events so far; a line cut short by a crash is left out."""
        return read_events(self.journal)

    def append_event(self, event: Event) -> None:
        """Appends one event and waits until it is written.

        Raises:
            OSError: it could not be written.
        """
        add_event(self.journal, event)

    def records(
        self, connection: duckdb.DuckDBPyConnection, checkpoint: str | None = None, *, places: bool = False
    ) -> duckdb.DuckDBPyRelation:
        """All records, or those of one checkpoint, as a DuckDB relation.

        Args:
            connection: where it lives.
            checkpoint: only records of this one.
            places: add where each record lies, as the columns ``filename`` (of its part) and ``file_row_number``.

        Raises:
            LookupError: there are no records yet.
            UserError: a part is damaged; to leave it out here would be to say that its rows were never asked.
        """
        parts = parts_of(self.results, checkpoint)
        if not parts:
            raise LookupError(f"no records yet in {self.location}")
        paths = self.results.local_copies(parts)
        for part, path in zip(parts, paths, strict=True):
            _check_part(path, f"{self.results.location}/{part}")
        connection.execute("set enable_progress_bar = false")  # it would be drawn into what a command prints
        return connection.read_parquet(
            [str(path) for path in paths], union_by_name=True, filename=places, file_row_number=places
        )

    @contextmanager
    def locked(self, on_lost: Callable[[str], None]) -> Iterator[Lease]:
        """Holds the run directory for one driver during the block.

        Args:
            on_lost: is told the reason, once and in another thread, if this driver no longer holds it.

        Raises:
            UserError: another driver holds it, or there can be no directory.
        """
        lease = Lease(self.folder, on_lost)
        try:
            lease.acquire()
        except OSError as error:
            named = error.filename is not None and str(error.filename) != self.location
            detail = f"{error.filename}: {error.strerror}" if named else error.strerror or error
            fix = "move it away" if isinstance(error, IsADirectoryError) else None
            raise UserError(f"cannot be a run directory: {detail}", where=self.location, fix=fix) from error
        try:
            yield lease
        finally:
            lease.release()

    @property
    def live(self) -> bool:
        """Whether a driver holds the run directory now."""
        return is_live(self.folder)


def _check_part(path: Path, where: str) -> None:
    try:
        pq.read_metadata(path)
    except (OSError, pa.ArrowInvalid) as error:
        if not is_damage(error):
            raise
        raise UserError(
            "this part of the results is damaged",
            where=where,
            fix="`proctor run` with the same spec puts it aside and runs its rows again",
        ) from error
