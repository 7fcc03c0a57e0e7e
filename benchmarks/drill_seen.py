"""What is seen of a fleet while it goes through a drill: processes of this machine, and its events."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil

from benchmarks.drill_cells import EACH, HUNG
from proctor.fleet import words
from proctor.fleet.folder import FleetDir
from proctor.rows import Event


@dataclass
class Seen:
    """What a look at the machine's processes, twice a second, has found.

    Attributes:
        most: drivers at the same time.
        twice: units that had two drivers at the same time.
        unasked: drivers of units that were not admitted then.
        drivers: every unit and attempt that had a driver.
        looks: how often.
        load: mean of the system's load average over the last minute.
    """

    most: int = 0
    twice: set[str] = field(default_factory=set)
    unasked: set[str] = field(default_factory=set)
    drivers: set[tuple[str, int]] = field(default_factory=set)
    looks: int = 0
    load: float = 0.0


def drivers_of(fleet: str) -> dict[int, tuple[str, int]]:
    """Unit and attempt of every driver of a fleet on this machine, by process.

    A shell that waits for one is none, nor is a child that a driver has forked and that is not yet what it will be.
    """
    found, parents = {}, {}
    for process in psutil.process_iter(["cmdline", "ppid"]):
        line = process.info["cmdline"] or []
        if fleet in line and line[2:5] == ["proctor", "fleet", "unit"]:
            found[process.pid] = (line[6], int(line[8]))
            parents[process.pid] = process.info["ppid"]
    return {pid: driver for pid, driver in found.items() if parents[pid] not in found}


@contextmanager
def looking(place: FleetDir) -> Iterator[Seen]:
    """Looks at the drivers of a fleet while the block runs."""
    seen, stop = Seen(), threading.Event()

    def look() -> None:
        while not stop.wait(0.5):
            drivers = drivers_of(place.location)
            _stop_the_first(drivers, seen)
            admitted = admitted_now(place.events())
            seen.looks += 1
            seen.load += (os.getloadavg()[0] - seen.load) / seen.looks
            seen.most = max(seen.most, len(drivers))
            seen.drivers |= set(drivers.values())
            units = Counter(unit for unit, _ in drivers.values())
            seen.twice |= {unit for unit, count in units.items() if count > 1}
            seen.unasked |= set(units) - admitted

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


def _stop_the_first(drivers: dict[int, tuple[str, int]], seen: Seen) -> None:
    """Stops the first driver of the cell that is to hang: it lives, it holds its lease, and nothing moves it."""
    for pid, driver in drivers.items():
        if driver == (HUNG, 1) and driver not in seen.drivers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)


def admitted_now(events: list[Event]) -> set[str]:
    """Units that hold their GPUs, or ended so recently that their driver may just be leaving."""
    latest = {str(event.data["unit"]): event for event in events if "unit" in event.data}
    return {
        name
        for name, event in latest.items()
        if event.kind not in (words.UNIT_REQUEUED, words.UNIT_GIVEN_UP) or time.time() - event.time < 10
    }


def gpus_at_most(events: list[Event]) -> float:
    """Most GPUs that were admitted at the same time, by the events."""
    held: dict[str, float] = {}
    most = 0.0
    for event in events:
        unit = str(event.data.get("unit", ""))
        if event.kind in (words.UNIT_ADMITTED, words.UNIT_ADOPTED):
            held[unit] = EACH
        elif event.kind in words.FREEING:
            held.pop(unit, None)
        most = max(most, sum(held.values()))
    return most


def working(events: list[Event]) -> list[str]:
    """Units whose driver is at work, by the events."""
    latest = {str(event.data["unit"]): event.kind for event in events if "unit" in event.data}
    return [name for name, kind in latest.items() if kind == words.UNIT_STARTED]


def engines_under(pid: int) -> int:
    """How many of Ray's workers below a process hold an engine."""
    with contextlib.suppress(psutil.NoSuchProcess):
        below = psutil.Process(pid).children(recursive=True)
        return sum("Infer" in line for process in below if (line := _title(process)))
    return 0


def _title(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""
