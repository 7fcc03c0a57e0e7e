"""Faults that strike from outside while a cell runs: signals, nodes, disks, a second driver."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable

import psutil

from benchmarks.faults.cell import Cell
from benchmarks.faults.processes import engine_pids, polled, send, task_pids, wait_until

Driver = subprocess.Popen[bytes]
Action = Callable[[Cell, Driver], None]
HOLD_SECONDS = 8.0
LOAD_FAILURES = 60


def signal_engine(number: signal.Signals) -> Action:
    """Sends a signal to the process that holds an engine's model, once, when results have begun to appear."""

    def act(cell: Cell, _driver: Driver) -> None:
        cell.wait_for_results(2)
        pids = engine_pids(cell.id, cell.state)
        if not pids:
            cell.notes.append("NOT PLANTED: no engine process was found")
        for pid in pids[:1]:
            send(pid, number)

    return act


def kill_actor(cell: Cell, _driver: Driver) -> None:
    """SIGKILLs the Ray worker of an engine actor: Proctor's engine is its child, the naive one lives in it."""
    cell.wait_for_results(2)
    for pid in engine_pids(cell.id, cell.state)[:1]:
        send(psutil.Process(pid).ppid() if cell.system.name == "proctor" else pid, signal.SIGKILL)


def kill_worker(cell: Cell, driver: Driver) -> None:
    """SIGKILLs a Ray worker while it reads or prepares rows."""
    for _ in polled(90, 0.02):
        if pids := task_pids(cell.id):
            send(pids[0], signal.SIGKILL)
            return
        if driver.poll() is not None:
            break
    cell.notes.append("NOT PLANTED: no worker was seen at work")


def kill_one_slot(cell: Cell, driver: Driver) -> None:
    """One of the two engines dies each time it starts, until the run ends: a GPU that is broken."""
    first: int | str | None = None
    for _ in polled(cell.fault.limit, 0.05):
        if driver.poll() is not None:
            return
        slots = _slots(cell)
        if slots and (first is None or (isinstance(first, int) and not psutil.pid_exists(first))):
            first = min(slots.values(), key=str)  # a new sweep has new actors, one of which sits on the same GPU
        for pid, slot in slots.items():
            if slot == first:
                send(pid, signal.SIGKILL)


def _slots(cell: Cell) -> dict[int, int | str]:
    """Engine processes and what stays the same of each when it is started anew: its actor."""
    slots: dict[int, int | str] = {}
    if cell.system.name == "proctor":
        for pid in engine_pids(cell.id, cell.state):
            try:
                slots[pid] = psutil.Process(pid).ppid()
            except psutil.Error:
                continue
        return slots
    for file in cell.state.glob("engine-*-*"):
        _, actor, pid_text = file.name.split("-")
        if psutil.pid_exists(int(pid_text)):
            slots[int(pid_text)] = actor
    return slots


def heal_loads(cell: Cell) -> None:
    """Lets engines load from now on: takes all turns that are left to fail."""
    cell.state.mkdir(parents=True, exist_ok=True)
    for turn in range(LOAD_FAILURES):
        (cell.state / f"load-{turn}").touch()


def signal_driver(number: signal.Signals) -> Action:
    """Sends a signal to the driver when results have begun to appear."""

    def act(cell: Cell, driver: Driver) -> None:
        cell.wait_for_results(5)
        if driver.poll() is not None:
            cell.notes.append("NOT PLANTED: the driver had ended")
        send(driver.pid, number)

    return act


def cut_files(cell: Cell) -> None:
    """What a power cut leaves: half of the newest result file and half of the last line of the log of events."""
    time.sleep(2.0)  # workers of the dead driver may still be writing
    newest = max(cell.results(), key=lambda file: file.stat().st_mtime_ns)
    os.truncate(newest, newest.stat().st_size // 2)
    events = cell.place.disk / "run" / "events.jsonl"
    if events.is_file():
        last = events.read_bytes().splitlines()[-1]
        os.truncate(events, events.stat().st_size - len(last) // 2)


def start_another(cell: Cell, _driver: Driver) -> None:
    """The same command a second time while the first is at work."""
    cell.wait_for_results(1)
    cell.notes.append(f"the second driver: {cell.finish(cell.start())}")


def lose_node(cell: Cell, _driver: Driver) -> None:
    """Ends the node of an engine as a power cut would; another node comes some seconds later."""
    assert cell.ray is not None
    cell.wait_for_results(2)
    (pid, *_) = engine_pids(cell.id, cell.state)
    parents = {parent.pid for parent in psutil.Process(pid).parents()}
    cell.ray.lose_worker(next(raylet for raylet in cell.ray.workers if raylet in parents))
    time.sleep(3.0)
    cell.ray.add_worker(cell.fault.worker_cpus[0])


def fill_disk(cell: Cell, driver: Driver) -> None:
    """Fills the disk to the last byte for some seconds once results have begun to appear."""
    cell.wait_for_results(2)
    ballast = cell.place.disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
        wait_until(lambda: driver.poll() is not None, HOLD_SECONDS)
    if driver.poll() is None:
        ballast.unlink()


def free_disk(cell: Cell) -> None:
    """Makes room."""
    (cell.place.disk / "ballast").unlink(missing_ok=True)


def lock_disk(cell: Cell, driver: Driver) -> None:
    """Makes the disk read-only for some seconds once results have begun to appear, as the kernel does after an error.

    A read-only mount is laid over the disk: files that are open stay as they are, nothing else can be opened to write.
    """
    cell.wait_for_results(2)
    disk = str(cell.place.disk)
    subprocess.run(["mount", "--bind", disk, disk], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", disk], check=True)
    wait_until(lambda: driver.poll() is not None, HOLD_SECONDS)
    if driver.poll() is None:
        unlock_disk(cell)


def unlock_disk(cell: Cell) -> None:
    """Takes the read-only mount away, if it is still there."""
    disk = str(cell.place.disk)
    if os.statvfs(disk).f_flag & os.ST_RDONLY:
        subprocess.run(["umount", "--lazy", disk], check=True)
