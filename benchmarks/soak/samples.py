"""Memory and open files of every process of the soak, looked at every few seconds while it runs."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.soak.roles import by_role

MB = 1e6


class Sample(NamedTuple):
    """One process at one moment.

    Attributes:
        time: seconds since the epoch.
        rows: rows of the run with a record by then.
        process: number of the process and the moment it began, which no other process shares.
        rss: resident memory, MB.
        own: of that what is not shared with others: the object store is mapped into every worker. MB.
        files: open descriptors.
    """

    time: float
    rows: int
    role: str
    process: tuple[int, float]
    rss: float
    own: float
    files: int


class RowCount:
    """Rows in the parts of a run; each part's footer is read once."""

    def __init__(self, results: Path) -> None:
        self._results = results
        self._known: dict[str, int] = {}

    def __call__(self) -> int:
        """Rows now, tombstones aside."""
        names = {part.name: part for part in self._results.glob("part-*.parquet") if ".tombstone" not in part.name}
        self._known = {name: rows for name, rows in self._known.items() if name in names}
        for name in names.keys() - self._known.keys():
            with contextlib.suppress(OSError, pa.ArrowInvalid):
                self._known[name] = pq.read_metadata(names[name]).num_rows
        return sum(self._known.values())


class Sampler:
    """Takes samples from a thread of its own while the block runs."""

    def __init__(self, mark: Callable[[], str], rows: RowCount, pause: float) -> None:
        self._mark, self._rows, self._pause = mark, rows, pause
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="soak-samples", daemon=True)
        self.samples: list[Sample] = []
        self.done = 0
        self.roles: tuple[str, frozenset[str]] = ("", frozenset())
        """Of the last look: the mark, and the roles that there were."""

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.done = self._rows()
            now = time.time()
            mark = self._mark()
            found = by_role(mark)
            self.roles = (mark, frozenset(role for role, _ in found))
            for role, process in found:
                with contextlib.suppress(psutil.Error, OSError):
                    memory, files = process.memory_info(), process.num_fds()
                    key = (process.pid, process.create_time())
                    own = (memory.rss - memory.shared) / MB
                    self.samples.append(Sample(now, self.done, role, key, memory.rss / MB, own, files))
            self._stop.wait(self._pause)
