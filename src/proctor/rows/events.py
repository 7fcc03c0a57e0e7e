"""Events: one line in ``events.jsonl`` for everything out of the ordinary."""

from __future__ import annotations

import time

import msgspec


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that happened to a run: a fault, the action taken, what it touched.

    Attributes:
        kind: dotted name, e.g. ``engine.started``, ``engine.crashed``, ``engine.stalled``, ``sweep.started``.
        time: seconds since the epoch.
        action: what was done about it (``restart``, ``quarantine``, ``breaker open`` ...).
        rows: ids of the rows it touched (at most a handful are listed; `count` has the whole number).
        count: how many rows it touched.
        engine: name of the engine, if one was concerned.
        host: the machine it happened on.
        duration: seconds that it took or cost, if known.
        message: one line for a person.
        data: further facts, as plain values.
    """

    kind: str
    time: float = msgspec.field(default_factory=time.time)
    action: str = ""
    rows: tuple[int, ...] = ()
    count: int = 0
    engine: str = ""
    host: str = ""
    duration: float | None = None
    message: str = ""
    data: dict[str, str | int | float | bool | None] = {}
