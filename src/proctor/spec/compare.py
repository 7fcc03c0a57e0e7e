"""How two specs differ, key by key: a resume must ask the same questions of the same model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from proctor.spec.run import RunSpec

FREE_KEYS = (
    "limits",
    "stream",
    "ray",
    "storage",
    "capacity",
    "audit",
    "trackers",
    "requires",
    "metrics",
    "run_dir",
    "engine.replicas",
    "engine.cpus_per_replica",
    "engine.faults",
    "engine.mode",
    "engine.fingerprints",
    "engine.reference",
    "source.cache_gb",
    "source.cache_dir",
    "task.camera",
)
"""Keys that may change between a run and its resume: none of them changes what is asked or answered."""


class Difference(NamedTuple):
    """One key whose value differs."""

    key: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.key}: {self.before!r} -> {self.after!r}"


def differences(before: RunSpec, after: RunSpec) -> list[Difference]:
    """The keys whose change makes `after` another run than `before`. Checkpoints may be added, not taken away."""
    return [d for d in walk("", _comparable(before), _comparable(after)) if not _is_free(d.key) and not _is_new(d)]


def _comparable(spec: RunSpec) -> dict[str, Any]:
    data = spec.model_dump()
    data["engine"]["checkpoints"] = {c["name"]: c["path"] for c in data["engine"]["checkpoints"]}
    return data


def _is_new(difference: Difference) -> bool:
    return difference.key.startswith("engine.checkpoints.") and difference.before is None


def _is_free(key: str) -> bool:
    return any(key == free or key.startswith(f"{free}.") for free in FREE_KEYS)


def walk(key: str, before: Any, after: Any) -> Iterator[Difference]:
    """Every value that differs between two pieces of plain data, by its dotted key below `key`."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before.keys() | after.keys()):
            yield from walk(f"{key}.{name}" if key else name, before.get(name), after.get(name))
    elif before != after:
        yield Difference(key, before, after)
