"""One actor that gathers events from all workers and keeps ``events.jsonl``, so that the file has a single writer."""

from __future__ import annotations

import contextlib
import platform
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import ray

from proctor.rows import Event


class _Hub:
    """Appends events to the run's file and counts them by kind."""

    def __init__(self, events_file: str) -> None:
        self._path = Path(events_file)
        self._counts: Counter[str] = Counter()
        self._broken: dict[str, str] = {}

    def emit(self, line: bytes) -> None:
        event = msgspec.json.decode(line, type=Event)
        self._counts[event.kind] += 1
        if event.kind == "breaker.opened":
            self._broken[event.engine] = event.message
        elif event.kind in ("breaker.closed", "engine.closed"):
            self._broken.pop(event.engine, None)
        with self._path.open("ab") as file:
            file.write(line + b"\n")

    def snapshot(self) -> tuple[dict[str, int], dict[str, str]]:
        """Events so far by kind, and engines whose breaker is open with the reason."""
        return dict(self._counts), dict(self._broken)


class HubClient:
    """A picklable handle: `emit` never blocks and never raises, a run must not fail because it cannot tell of it."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    @classmethod
    def start(cls, events_file: Path) -> HubClient:
        """Starts the hub on the driver's node."""
        strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        actor = ray.remote(num_cpus=0, max_restarts=-1, scheduling_strategy=strategy)(_Hub).remote(str(events_file))
        return cls(actor)

    def emit(self, event: Event) -> None:
        """Hands an event over."""
        if not event.host:
            event = msgspec.structs.replace(event, host=platform.node())
        with contextlib.suppress(Exception):
            self._actor.emit.remote(msgspec.json.encode(event))

    def await_ends(self, timeout: float = 3.0) -> None:
        """Waits a moment for the last words of engines that are closing; an engine that was killed has none."""
        give_up = time.monotonic() + timeout
        while time.monotonic() < give_up:
            counts, _ = self.snapshot()
            if counts.get("engine.closed", 0) >= counts.get("engine.started", 0):
                return
            time.sleep(0.1)

    def snapshot(self, timeout: float = 5.0) -> tuple[dict[str, int], dict[str, str]]:
        """Counts by kind and broken engines; empty when the hub does not answer in time."""
        try:
            return ray.get(self._actor.snapshot.remote(), timeout=timeout)
        except ray.exceptions.RayError:
            return {}, {}
