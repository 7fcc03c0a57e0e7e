"""Prometheus counters, through Ray: they are on each node's metrics port, as ``ray_proctor_...``."""

from __future__ import annotations

import contextlib
from functools import cache
from typing import Any

_TEXTS = {
    "proctor_events": ("Events of runs, faults among them, by kind.", ("kind",)),
    "proctor_rows": (
        "Rows that came back, by checkpoint and outcome: answered, or the error kind.",
        ("checkpoint", "outcome"),
    ),
    "proctor_output_tokens": ("Tokens of the answers, by checkpoint.", ("checkpoint",)),
}


def count_event(kind: str) -> None:
    """One more event."""
    _add("proctor_events", 1, kind=kind)


def count_rows(checkpoint: str, outcome: str, rows: int) -> None:
    """More rows with this outcome."""
    _add("proctor_rows", rows, checkpoint=checkpoint, outcome=outcome)


def count_tokens(checkpoint: str, tokens: int) -> None:
    """More tokens of answers."""
    _add("proctor_output_tokens", tokens, checkpoint=checkpoint)


def _add(name: str, value: int, **tags: str) -> None:
    if value:  # Ray refuses to add nothing
        with contextlib.suppress(Exception):  # a run must not fail because it cannot be counted
            _counter(name).inc(value, tags=tags)


@cache
def _counter(name: str) -> Any:
    from ray.util.metrics import Counter

    text, tags = _TEXTS[name]
    return Counter(name, description=text, tag_keys=tags)
