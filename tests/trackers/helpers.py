"""A library that behaves as a test wants, in place of tensorboardX, and what tests ask of files and processes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proctor.rows import Event
from proctor.spec import TensorBoardTrackerSpec, TrackerSpec
from proctor.storage.local import LocalFolder
from proctor.trackers import Trackers

LIBRARY = """
import atexit, ctypes, json, os, signal, subprocess, sys, threading, time
from pathlib import Path

BEHAVIOUR = os.environ.get("BEHAVIOUR", "")

def misbehave(where):
    if BEHAVIOUR == f"sleep in {where}":
        time.sleep(1000)
    if BEHAVIOUR == f"hold the GIL in {where}":
        ctypes.PyDLL(None).sleep(1000)
    if BEHAVIOUR == f"raise in {where}":
        raise ConnectionError("no route; key " + os.environ["PLANTED_API_KEY"])
    if BEHAVIOUR == f"die in {where}":
        print("last words", file=sys.stderr)
        os.kill(os.getpid(), signal.SIGSEGV)

class SummaryWriter:
    def __init__(self, directory):
        print("chatter that is no reply")
        self.path = Path(directory)
        self.path.mkdir(parents=True, exist_ok=True)
        if BEHAVIOUR == "start a service":
            service = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
            (self.path / "service").write_text(str(service.pid))
        if BEHAVIOUR == "never exit":
            threading.Thread(target=time.sleep, args=(1000,)).start()
            atexit.register(time.sleep, 1000)
        misbehave("open")

    def add_text(self, *args, **kwargs):
        self._write("text", args)

    def add_scalar(self, *args, **kwargs):
        misbehave("send")
        self._write("scalar", args)

    def _write(self, kind, args):
        with (self.path / "got.jsonl").open("a") as file:
            file.write(json.dumps([kind, *args]) + "\\n")

    def flush(self):
        pass

    def close(self):
        misbehave("close")
"""


def plant_library(directory: Path) -> None:
    """Writes the library where a child finds it, with PYTHONPATH."""
    directory.mkdir(exist_ok=True)
    (directory / "tensorboardX.py").write_text(LIBRARY)


def got(run: Path) -> list[Any]:
    """What the planted library was handed."""
    path = run / "trackers" / "tensorboard" / "got.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def scalars(run: Path, name: str) -> list[tuple[float, int]]:
    """Value and step of each scalar of that name."""
    return [(entry[2], entry[3]) for entry in got(run) if entry[0] == "scalar" and entry[1] == name]


def written(run: Path, name: str = "tensorboard") -> list[dict[str, Any]]:
    """What is on disk."""
    return [json.loads(line) for line in (run / "trackers" / f"{name}.jsonl").read_text().splitlines()]


def opened(run: Path, events: list[Event], spec: TrackerSpec | None = None, **keys: Any) -> Trackers:
    """Trackers of a run, by default with the planted library alone."""
    spec = spec or TensorBoardTrackerSpec(kind="tensorboard", every_seconds=0.001, **keys)
    return Trackers([spec], LocalFolder(run), events.append)


def eventually(true: Callable[[], bool], seconds: float = 60.0) -> None:
    """Waits until `true` says so."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def marked(mark: str) -> list[int]:
    """Processes that have `mark` in their environment."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (place / "environ").read_bytes():
                found.append(int(place.name))
        except OSError:
            continue
    return found
