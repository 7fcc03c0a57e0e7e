"""How a run goes: the driver adds up what comes back, watches each sweep, and tells whoever asks."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from proctor.results import Settled
from proctor.rows import Event
from proctor.runner.cluster import cluster_room
from proctor.runner.course import Sweep, Swept
from proctor.runner.exam import Exam
from proctor.runner.hub import HubClient, HubView
from proctor.runner.snapshot import CheckpointProgress, Observer, Progress, status_json
from proctor.runner.watch import Sight, Verdict, WatchedSweep, judge
from proctor.storage.base import StorageError

_TICK = 0.5
"""Seconds between two looks."""
_ASK_FOR_ROOM_SECONDS = 5.0
"""Silence after which Ray is asked what nodes are left."""
_STATUS_SECONDS = 2.0
"""Seconds between two writings of ``status.json``."""


class Tracker:
    """Adds up what the stream reports, keeps ``status.json`` fresh, and tells the observer."""

    def __init__(self, exam: Exam, observer: Observer) -> None:
        self._exam, self._observer = exam, observer
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._rate = Rate()
        total = len(exam.expected)
        names = [checkpoint.name for checkpoint in exam.spec.engine.checkpoints]
        self._now = Progress({name: CheckpointProgress(total) for name in names})
        self._watched: WatchedSweep | None = None
        self._under_way: tuple[str, ...] = ()
        self.lost: str | None = None
        self._mute = False  # it was told already that progress cannot be told
        self._opened: set[str] = set()
        self._next_status = 0.0
        self.repaired: Counter[str] = Counter()
        self.reasons: dict[str, str] = {}
        self.sweeps: Counter[str] = Counter()

    @property
    def checkpoints(self) -> list[str]:
        """Names, in order."""
        return list(self._now.checkpoints)

    @property
    def snapshot(self) -> Progress:
        """How the run goes now."""
        with self._lock:
            return self._now

    def lose(self, reason: str) -> None:
        """Ends the sweep that is under way: this driver no longer holds the run directory and must not write there."""
        self.lost = reason
        if self._watched is not None:
            self._watched.end(Verdict(reason, Swept(halted=True)))

    def check_held(self) -> None:
        """Goes on only while this driver holds the run directory.

        Raises:
            StorageError: it does not.
        """
        if self.lost is not None:
            raise StorageError(self.lost)

    def settled(self, checkpoint: str, settled: Settled) -> None:
        """Takes over what the files say; they have the last word."""
        self.repaired[checkpoint] += settled.duplicates
        done = len(settled.done & self._exam.expected)
        with self._lock:
            entry = replace(self._now.checkpoints[checkpoint], done=done)
            if checkpoint not in self._opened:
                self._opened.add(checkpoint)
                entry = replace(entry, before=done)
            self._put(checkpoint, entry)

    def add(self, checkpoint: str, tally: dict[str, Any]) -> None:
        """Adds a block's tally (see `blocks.TALLY`)."""
        errors, retries = Counter(json.loads(tally["errors"])), Counter(json.loads(tally["retries"]))
        final = tally["answered"] + errors.total()
        self._rate.add(final)
        if self._watched is not None:
            self._watched.moved()
        with self._lock:
            entry = self._now.checkpoints[checkpoint]
            self._put(
                checkpoint,
                replace(
                    entry,
                    done=entry.done + final,
                    answered=entry.answered + tally["answered"],
                    errors=entry.errors + errors,
                    retries=entry.retries + retries,
                    output_tokens=entry.output_tokens + tally["output_tokens"],
                ),
            )

    @contextmanager
    def sweeping(self, sweep: Sweep, watched: WatchedSweep, checkpoints: Sequence[str] = ()) -> Iterator[None]:
        """Watches a sweep (over `checkpoints`, if there are several), which the block runs: raises `Stopped` when the
        sweep has to end."""
        self._under_way = tuple(checkpoints) or (sweep.checkpoint,)
        for name in self._under_way:
            self.sweeps[name] = sweep.number
        self._active((sweep.checkpoint, sweep.number))
        try:
            with watched:
                self._watched = watched
                self.check_held()
                yield
        finally:
            self._watched = None
            self._active(None)

    @contextmanager
    def watching(self, hub: HubClient) -> Iterator[HubClient]:
        """Looks at the hub and tells the observer, twice a second, while the block runs."""
        stop = threading.Event()

        def watch() -> None:
            while not stop.wait(_TICK):
                self._tick(hub)

        thread = threading.Thread(target=watch, name="proctor-progress", daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            stop.set()
            thread.join(timeout=10)
            self._tick(hub)

    def _tick(self, hub: HubClient) -> None:
        view = hub.view()
        with self._lock:
            rate = self._rate.value()
            left = sum(entry.total - entry.done for entry in self._now.checkpoints.values())
            self._now = replace(
                self._now,
                seconds=time.monotonic() - self._began,
                rate=rate,
                eta_seconds=left / rate if rate else None,
                events=view.events or self._now.events,
                note=view.note,
            )
        self._watch(view)
        try:
            self._tell()
        except Exception as error:  # a full disk, an observer that fails: no reason to end a run
            if not self._mute:
                hub.emit(Event("progress.failed", message=f"{type(error).__name__}: {error}"))
            self._mute = True

    def _tell(self) -> None:
        if self.lost is None and time.monotonic() >= self._next_status:
            self._next_status = time.monotonic() + _STATUS_SECONDS
            self._exam.run.hasty(_STATUS_SECONDS).write("status", status_json(self._now, "running"))
        self._observer(self._now)

    def _watch(self, view: HubView) -> None:
        watched, now = self._watched, self.snapshot
        if watched is not None and now.active is not None:
            entries = [now.checkpoints[name] for name in self._under_way]
            answered, errors = sum(e.answered for e in entries), sum(e.errors.total() for e in entries)
            room = cluster_room(self._exam.spec) if watched.silent > _ASK_FOR_ROOM_SECONDS else watched.engines
            sight = Sight(watched.silent, view, answered, errors, room)
            verdict = judge(sight, self._exam.spec.limits, watched.engines)
            if verdict is not None:
                watched.end(verdict)

    def _active(self, active: tuple[str, int] | None) -> None:
        with self._lock:
            self._now = replace(self._now, active=active)

    def _put(self, checkpoint: str, entry: CheckpointProgress) -> None:
        self._now = replace(self._now, checkpoints={**self._now.checkpoints, checkpoint: entry})


class Rate:
    """Rows a second over a sliding window."""

    def __init__(self, window: float = 30.0) -> None:
        self._window = window
        self._marks: list[tuple[float, int]] = []

    def add(self, rows: int) -> None:
        """Rows that were just finished."""
        self._marks.append((time.monotonic(), rows))

    def value(self) -> float:
        """The rate now."""
        now = time.monotonic()
        self._marks = [mark for mark in self._marks if now - mark[0] <= self._window]
        if not self._marks:
            return 0.0
        return sum(rows for _, rows in self._marks) / max(now - self._marks[0][0], _TICK)
