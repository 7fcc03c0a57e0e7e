"""The processes of the soak by what they do. All carry the mark of their driver in their environment."""

from __future__ import annotations

import contextlib

import psutil

from benchmarks.faults.processes import marked, title

_SCRIPTS = (
    ("supervise/entry.py", "engine"),
    ("supervise/warden.py", "warden"),
    ("sleep 86400", "helper"),
    (" -m proctor run ", "driver"),
)
_RAY_ACTORS = ("ray::_StatsActor", "ray::ActorLocationTracker", "ray::_AutoscalingCoordinatorActor")
_ENGINES_OWN = frozenset({"engine", "helper", "warden", "check"})
_AT_WORK = {"worker.reading": ("ReadRows", "prepare"), "worker.writing": ("finish",), "worker.idle": ("ray::IDLE",)}


def role_of(command: str) -> str:
    """What a process with this command line does."""
    for words, role in _SCRIPTS:
        if words in command:
            return role
    if not command.startswith("ray::") or command.startswith(_RAY_ACTORS):
        return "ray"
    if "_Hub" in command:
        return "hub"
    if "MapWorker" in command:
        return "actor"
    return next((role for role, words in _AT_WORK.items() if any(word in command for word in words)), "worker")


def by_role(mark: str) -> list[tuple[str, psutil.Process]]:
    """Live processes of the driver with this mark, itself included, in order of their numbers.

    An engine that the driver itself has started only checks the spec.
    """
    found = [(role_of(title(process)), process) for process in sorted(marked(mark), key=lambda one: one.pid)]
    drivers = {process.pid for role, process in found if role == "driver"}
    return [("check" if role == "engine" and _parent(process) in drivers else role, process) for role, process in found]


def of_engines(mark: str) -> list[psutil.Process]:
    """Engines with all that belongs to them."""
    return [process for role, process in by_role(mark) if role in _ENGINES_OWN]


def engine_name(process: psutil.Process, role: str) -> str | None:
    """The name under which events tell of the engine that an engine's or an actor's process belongs to."""
    pid = _parent(process) if role == "engine" else process.pid
    return f":{pid}" if pid else None


def _parent(process: psutil.Process) -> int:
    """Number of the parent, 0 once the process is gone."""
    with contextlib.suppress(psutil.Error):
        return process.ppid()
    return 0
