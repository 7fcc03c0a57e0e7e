"""Finds the processes of a cell: all of them carry a variable in their environment that no other cell's have."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

MARK = "PROCTOR_FAULTS_CELL"
_OWN_OF_RAY = (
    *("raylet", "gcs_server", "ray/_private/", "ray/dashboard/", "ray/core/", "ray::IDLE"),
    *("ray::_StatsActor", "ray::ActorLocationTracker", "ray::_AutoscalingCoordinatorActor"),
)
_TASK_TITLES = ("ray::ReadRows", "ray::MapBatches(prepare)", "ray::ReadCustom", "ray::Read")


def marked(cell: str) -> list[psutil.Process]:
    """Live processes of the cell `cell`."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            mine = process.environ().get(MARK) == cell
            if mine and process.status() != psutil.STATUS_ZOMBIE and process.pid != os.getpid():
                found.append(process)
    return found


def title(process: psutil.Process) -> str:
    """Command line, empty once the process is gone."""
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def engine_pids(cell: str, state: Path) -> list[int]:
    """Processes that run an engine: Proctor's children, or the actors of the naive pipeline (files in `state`)."""
    children = [
        process.pid for process in marked(cell) if "supervise/entry.py" in title(process) and _of_actor(process)
    ]
    actors = [int(file.name.rpartition("-")[2]) for file in state.glob("engine-*-*")]
    return sorted(children) + [pid for pid in actors if psutil.pid_exists(pid)]


def _of_actor(process: psutil.Process) -> bool:
    """Whether its parent is a Ray worker: the driver, too, starts an engine's process, to ask it for mistakes."""
    with contextlib.suppress(psutil.Error):
        return title(psutil.Process(process.ppid())).startswith("ray::")
    return False


def task_pids(cell: str) -> list[int]:
    """Workers that read or prepare rows at this moment."""
    return [process.pid for process in marked(cell) if title(process).startswith(_TASK_TITLES)]


def orphans(cell: str) -> list[psutil.Process]:
    """Processes of engines and their helpers that are still there. Ray's own (daemons, idle workers) do not count."""
    return [process for process in marked(cell) if not any(word in title(process) for word in _OWN_OF_RAY)]


def end(processes: list[psutil.Process]) -> None:
    """Kills what a cell left behind, so that it does not disturb the next one."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, timeout=5)


def end_tree(pid: int) -> None:
    """Kills a process and all that it started."""
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        end([*root.children(recursive=True), root])


def send(pid: int, number: signal.Signals) -> None:
    """Sends a signal to a process that may be gone by now."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def polled(seconds: float, pause: float = 0.1) -> Iterator[None]:
    """Yields again and again, until the time is up."""
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        yield
        time.sleep(pause)


def wait_until(condition: Callable[[], object], seconds: float, pause: float = 0.1) -> bool:
    """Whether the condition came true in time."""
    return any(condition() for _ in polled(seconds, pause))
