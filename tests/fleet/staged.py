"""A fleet on a cluster that is plain data, with run directories that tests write."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from proctor.fleet.book import Book
from proctor.fleet.finding import find
from proctor.fleet.folder import Fleet, FleetDir, storage_options
from proctor.fleet.jobs import Order, Sighting, TwiceError, UnreachableError
from proctor.fleet.loading import load_fleet
from proctor.fleet.loop import Ears, Watcher
from proctor.fleet.notes import Notes
from proctor.fleet.observe import submission_of
from proctor.fleet.resubmit import enter
from proctor.fleet.silence import Clocks
from proctor.fleet.view import FleetView, Job, JobState, LastWords
from proctor.rows import Event
from tests.fleet.making import write_fleet


class FakeCluster:
    """Jobs by submission id; what is submitted waits until a test moves it on."""

    def __init__(self, gpus: float = 12.0) -> None:
        self.jobs: dict[str, Job] = {}
        self.orders: list[Order] = []
        self.stopped: list[str] = []
        self.gpus, self.used = gpus, 0.0
        self.down = ""
        self.faults: list[Exception] = []
        self.swallows = False

    def look(self) -> Sighting:
        if self.down:
            raise UnreachableError(self.down)
        return Sighting(dict(self.jobs), self.gpus, self.used, 8.0)

    def submit(self, order: Order) -> None:
        if self.faults:
            raise self.faults.pop(0)
        if order.submission in self.jobs:
            raise TwiceError(order.submission)
        self.orders.append(order)
        self.jobs[order.submission] = Job(order.submission, JobState.PENDING)
        if self.swallows:
            raise UnreachableError("no answer in time")

    def stop(self, submission: str) -> None:
        self.stopped.append(submission)

    def move(self, submission: str, state: JobState, **about: Any) -> None:
        self.jobs[submission] = Job(submission, state, **about)


class Stage:
    """A fleet of the checkpoints a, b and c, 6 GPUs each; two of them fit at once."""

    def __init__(self, directory: Path, **keys: Any) -> None:
        (directory / "rows.jsonl").write_text('{"target": "x"}\n')
        keys = {"matrix": {"checkpoints": ["a", "b", "c"]}, "gpus_per_unit": 6, **keys}
        self.file = write_fleet(directory, **keys)
        spec = load_fleet(self.file)
        self.place = FleetDir(spec.fleet_dir, storage_options(spec))
        self.cluster = FakeCluster()
        self._later = 0.0
        self.submit()

    def submit(self) -> Fleet:
        spec = load_fleet(self.file)
        return enter(self.place, spec, find(spec).checkpoints).fleet

    def later(self, seconds: float) -> None:
        """Time passes for watchers."""
        self._later += seconds

    def clocks(self) -> Clocks:
        return Clocks(time.time() + self._later, time.monotonic() + self._later, "this machine")

    def watcher(self, **options: Any) -> Watcher:
        ears, place = options.pop("ears", Ears()), options.pop("place", self.place)
        book = Book(lambda: self.clocks().ticks, lambda: self.clocks().time)
        return Watcher(place, self.cluster, ears, pace=0.01, book=book, clocks=self.clocks, **options)

    def id(self, unit: str, attempt: int = 1) -> str:
        return submission_of(self.place.fleet(), unit, attempt)

    def kinds(self, unit: str | None = None) -> list[str]:
        return [event.kind for event in self.place.events() if unit is None or event.data.get("unit") == unit]

    def last(self, kind: str) -> Event:
        return [event for event in self.place.events() if event.kind == kind][-1]

    def finish(self, unit: str, attempt: int = 1, *, code: int = 0, complete: bool = True) -> None:
        ledger = {"checkpoint": unit, "complete": complete}
        run = self.place.run(unit)
        run.write("reconciliation", {"complete": complete, "checkpoints": [ledger], "exit_code": code})
        Notes(self.place.folder).leave(self.id(unit, attempt), LastWords(code))
        self.cluster.move(self.id(unit, attempt), JobState.FAILED if code else JobState.SUCCEEDED)


def steps(watcher: Watcher, count: int = 4) -> FleetView | None:
    """Has a watcher look `count` times; gives what there was to see at last."""
    view = None
    for _ in range(count):
        view, _acted = watcher.step()
    return view
