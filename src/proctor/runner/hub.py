"""One actor that hears from all workers: it keeps ``events.jsonl``, the engines' pulses and the trail of lone rows."""

from __future__ import annotations

import contextlib
import platform
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
import ray

from proctor.rows import Event
from proctor.runner.metrics import count_event
from proctor.runner.trail import Trail
from proctor.storage.folder import Folder

ANSWER_SECONDS = 5.0
"""Longest wait for the hub: a run must not hang because it cannot tell of itself."""


_FLUSHES = 5


class Pulse(NamedTuple):
    """An engine's last sign of life: how many seconds ago it was, and how many rows the engine had."""

    age: float
    rows: int


class HubView(NamedTuple):
    """What the hub has heard: events by kind, engines whose breaker is open with the reason, pulses by engine.

    `still` is how many seconds ago an engine last came up, took rows or gave them back; `note` says what goes on beside
    the sweeps.
    """

    events: dict[str, int]
    broken: dict[str, str]
    pulses: dict[str, Pulse]
    still: float = 0.0
    note: str = ""


class _Hub:
    """Keeps the run's journal of events and counts them by kind."""

    def __init__(self, run: Folder) -> None:
        self._journal = run.hasty(ANSWER_SECONDS).journal("events")
        self._counts: Counter[str] = Counter()
        self._broken: dict[str, str] = {}
        self._pulses: dict[str, tuple[float, int]] = {}
        self._past: set[str] = set()
        self._moved_at = time.monotonic()
        self._trail = Trail()
        self._note = ""

    def emit(self, line: bytes) -> None:
        event = msgspec.json.decode(line, type=Event)
        self._counts[event.kind] += 1
        count_event(event.kind)
        if event.kind == "breaker.opened":
            self._broken[event.engine] = event.message
        elif event.kind in ("breaker.closed", "engine.closed"):
            self._broken.pop(event.engine, None)
        if event.kind == "engine.closed":
            self._forget(event.engine)
        self._journal.append(line)

    def flush(self) -> None:
        for _ in range(_FLUSHES):
            with contextlib.suppress(OSError):
                self._journal.flush()
                return

    def pulse(self, engine: str, rows: int) -> None:
        if engine in self._past:
            return
        now = time.monotonic()
        if engine not in self._pulses or self._pulses[engine][1] != rows:
            self._moved_at = now
        self._pulses[engine] = (now, rows)

    def note(self, text: str) -> None:
        self._note = text

    def enter(self, row: int, stage: str) -> None:
        self._trail.enter(row, stage)

    def leave(self, row: int) -> None:
        self._trail.leave(row)

    def close_sweep(self, *, ended: bool) -> dict[int, list[str]]:
        """Forgets the engines of the sweep; see `Trail.close` for what comes back."""
        self._broken.clear()
        self._forget(*self._pulses)
        return self._trail.close(ended=ended)

    def _forget(self, *engines: str) -> None:
        self._past.update(engines)
        for engine in engines:
            self._pulses.pop(engine, None)

    def view(self) -> HubView:
        now = time.monotonic()
        pulses = {engine: Pulse(now - at, rows) for engine, (at, rows) in self._pulses.items()}
        return HubView(dict(self._counts), dict(self._broken), pulses, now - self._moved_at, self._note)


class HubClient:
    """A picklable handle: nothing here raises or waits for long, a run must not fail because it cannot tell of it."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    @classmethod
    def start(cls, run: Folder) -> HubClient:
        """Starts the hub on the driver's node."""
        strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        actor = ray.remote(num_cpus=0, max_restarts=-1, scheduling_strategy=strategy)(_Hub).remote(run)
        return cls(actor)

    def emit(self, event: Event) -> None:
        """Hands an event over."""
        if not event.host:
            event = msgspec.structs.replace(event, host=platform.node())
        with contextlib.suppress(Exception):
            self._actor.emit.remote(msgspec.json.encode(event))

    def pulse(self, engine: str, rows: int) -> None:
        """The engine's actor is alive and has so many rows."""
        with contextlib.suppress(Exception):
            self._actor.pulse.remote(engine, rows)

    def note(self, text: str) -> None:
        """What goes on beside the sweeps, for whoever watches the run; empty when it is over."""
        with contextlib.suppress(Exception):
            self._actor.note.remote(text)

    @contextmanager
    def inside(self, row: int, stage: str) -> Iterator[None]:
        """Says that `row` enters a stage of `trail.CRASHES`, and that it leaves; a worker that dies cannot say that."""
        self._ask("enter", row, stage)
        yield
        self._ask("leave", row)

    def close_sweep(self, *, ended: bool) -> dict[int, list[str]]:
        """The guilty rows of the sweeps so far (see `Trail.close`); none if the hub does not answer."""
        return self._ask("close_sweep", ended=ended) or {}

    def view(self) -> HubView:
        """What the hub has heard; nothing when it does not answer in time."""
        return self._ask("view") or HubView({}, {}, {})

    def await_ends(self, timeout: float = 8.0) -> None:
        """Waits a moment for the last words of engines that are closing; an engine that was killed has none."""
        give_up = time.monotonic() + timeout
        while time.monotonic() < give_up:
            events = self.view().events
            if events.get("engine.closed", 0) >= events.get("engine.started", 0):
                return
            time.sleep(0.1)

    def flush(self) -> None:
        """Has every event so far written, if that is possible now."""
        self._ask("flush")

    def _ask(self, method: str, *arguments: Any, **options: Any) -> Any:
        with contextlib.suppress(ray.exceptions.RayError):
            return ray.get(getattr(self._actor, method).remote(*arguments, **options), timeout=ANSWER_SECONDS)
        return None
