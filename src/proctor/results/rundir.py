"""Where a run keeps everything it knows, and who may write there."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from proctor.results.files import read_json, write_json, write_text
from proctor.results.parts import parts_of
from proctor.rows import Event, UserError
from proctor.spec import RunSpec, build_spec, dump_spec
from proctor.spec.yamltext import parse_yaml

if TYPE_CHECKING:
    import duckdb

_FOLDERS = ("results", "attempts", "stalls", "faults", "aside")
_FILES = ("spec.yaml", "events.jsonl", "report.html", "records.csv", "records.jsonl", "records.parquet")
_DOCUMENTS = ("source", "versions", "status", "reconciliation", "metrics")
OWN_NAMES = (*_FOLDERS, *_FILES, *(f"{name}.json" for name in _DOCUMENTS))
"""What a run keeps in its directory; whatever else lies there is not touched."""


@dataclass(frozen=True, slots=True)
class RunDir:
    """Paths and plain reading and writing of a run directory. Holds no state: the files are the state."""

    root: Path

    @property
    def results(self) -> Path:
        """Final records: ``part-*.parquet``."""
        return self.root / "results"

    @property
    def attempts(self) -> Path:
        """Tries that failed for a reason that was not the row's own."""
        return self.root / "attempts"

    @property
    def stalls(self) -> Path:
        """Stack dumps and engine logs."""
        return self.root / "stalls"

    @property
    def events_file(self) -> Path:
        """One JSON line for everything out of the ordinary."""
        return self.root / "events.jsonl"

    @property
    def report_file(self) -> Path:
        """The frozen report."""
        return self.root / "report.html"

    @classmethod
    def existing(cls, root: str | Path) -> RunDir:
        """The run directory at `root`.

        Raises:
            UserError: there is no run.
        """
        run = cls(Path(root))
        if not (run.root / "spec.yaml").is_file() or not run.results.is_dir():
            raise UserError(
                "no run here (no spec.yaml and results/)", where=str(root), fix="start one with `proctor run SPEC`"
            )
        return run

    def own_entries(self) -> list[Path]:
        """What lies here under the names that a run uses; empty folders do not count."""
        there = [self.root / name for name in OWN_NAMES]
        return [path for path in there if path.is_file() or (path.is_dir() and any(path.iterdir()))]

    def create(self, spec: RunSpec) -> None:
        """Makes the directories and stores the resolved spec, secrets masked."""
        for folder in (self.root, self.results, self.attempts, self.stalls):
            folder.mkdir(parents=True, exist_ok=True)
        self._end_last_event()
        write_text(self.root / "spec.yaml", dump_spec(spec))

    def spec(self) -> RunSpec | None:
        """The stored spec, None before the run was created.

        Raises:
            UserError: the stored spec is not one that this version understands.
        """
        path = self.root / "spec.yaml"
        if not path.is_file():
            return None
        try:
            data, _ = parse_yaml(path.read_text(encoding="utf-8"), path.name)
            return build_spec(data)
        except (UserError, UnicodeDecodeError) as error:
            raise UserError(f"stored spec not understood: {error}", where=str(path), fix="use --fresh") from error

    def read(self, name: str) -> Any:
        """A JSON file of the run, by its name without the suffix; None if absent.

        Raises:
            UserError: it is not JSON (any more).
        """
        return read_json(self.root / f"{name}.json")

    def write(self, name: str, value: Any) -> None:
        """Writes a JSON file of the run, whole or not at all."""
        write_json(self.root / f"{name}.json", value)

    def events(self) -> list[Event]:
        """All events so far; a last line cut short by a crash is left out."""
        if not self.events_file.is_file():
            return []
        events = []
        for line in self.events_file.read_bytes().splitlines():
            try:
                events.append(msgspec.json.decode(line, type=Event))
            except msgspec.MsgspecError:
                continue
        return events

    def _end_last_event(self) -> None:
        """Ends a line that a crash has cut short, so that the next event is not lost with it."""
        if self.events_file.is_file() and self.events_file.read_bytes()[-1:] not in (b"", b"\n"):
            with self.events_file.open("ab") as file:
                file.write(b"\n")

    def append_event(self, event: Event) -> None:
        """Appends one event. Only for the driver, while no other process writes events."""
        with self.events_file.open("ab") as file:
            file.write(msgspec.json.encode(event) + b"\n")

    def records(self, connection: duckdb.DuckDBPyConnection, checkpoint: str | None = None) -> duckdb.DuckDBPyRelation:
        """All records, or those of one checkpoint, as a DuckDB relation.

        Raises:
            LookupError: there are no records yet.
            UserError: a part is damaged; to leave it out here would be to say that its rows were never asked.
        """
        paths = [str(path) for path in parts_of(self.results, checkpoint)]
        if not paths:
            raise LookupError(f"no records yet in {self.root}")
        for path in paths:
            _check_part(path)
        return connection.read_parquet(paths, union_by_name=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the run directory for one driver.

        Raises:
            UserError: another process holds it, or there can be no directory.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            lock = (self.root / ".lock").open("a+")
        except OSError as error:
            raise UserError(f"cannot be a run directory: {error.strerror}", where=str(self.root)) from error
        with lock as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                holder = (self.root / ".lock").read_text(encoding="utf-8").strip()
                raise UserError(f"another driver is running here ({holder})", where=str(self.root)) from error
            file.truncate(0)
            file.write(f"pid {os.getpid()} on {os.uname().nodename}\n")
            file.flush()
            yield

    @property
    def live(self) -> bool:
        """Whether a driver holds the run directory now."""
        lock = self.root / ".lock"
        if not lock.is_file():
            return False
        with lock.open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
        return False


def _check_part(path: str) -> None:
    try:
        pq.read_metadata(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise UserError(
            "this part of the results is damaged",
            where=path,
            fix="`proctor run` with the same spec puts it aside and runs its rows again",
        ) from error
