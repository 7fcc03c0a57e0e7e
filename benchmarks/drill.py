"""A real Ray cluster on this machine, a fleet on it, and everything that can go wrong with both.

The head and a second node have 12 GPUs each that do not exist, and every cell takes 6. One cell hangs, the job of
another never starts; the watcher is killed and started again; the second node is removed; the head is killed and
started again.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from benchmarks.drill_cells import HUNG, ROWS, STUCK, EngineKind, answers_of, write_drill
from benchmarks.drill_seen import Seen, engines_under, gpus_at_most, looking, working
from benchmarks.nodes import BIN, ENVIRONMENT, Nodes, wait_for
from proctor.fleet import words
from proctor.fleet.folder import FleetDir
from proctor.fleet.jobs import Order, RayJobs
from proctor.fleet.observe import submission_of
from proctor.rows import Event


@dataclass
class Drilled:
    """What came of a drill.

    Attributes:
        exit_code: of the last watcher.
        cells: how many there were.
        seconds: from the first submission to the end.
        seen: see there.
        gpus: most GPUs that were admitted at the same time.
        complete: cells of which every row has its answer.
        differing: checkpoints whose cells did not all give the same answers.
        events: what happened, by kind.
        interrupted: attempts that the cluster ended.
        hung, stuck: what ended the attempts of these two that were gone.
        node_caught: engines at work on the second node when it was ended.
        head_caught: units at work when the head was ended.
        reap_after: seconds without progress after which a job was stopped.
    """

    engine: EngineKind
    exit_code: int
    cells: int
    seconds: float
    seen: Seen
    gpus: float
    complete: int
    differing: list[str]
    events: dict[str, int]
    interrupted: int
    hung: list[str]
    stuck: list[str]
    reap_after: float
    node_caught: int
    head_caught: int


def drill(
    cells: int,
    engine: EngineKind,
    say: Callable[[str], None] = print,
    seconds: float = 3600.0,
    place: Path | None = None,
) -> Drilled:
    """Runs a fleet of `cells` through everything. See the module.

    Args:
        cells: how many, at least three.
        engine: what answers in them.
        say: is told what is about to happen.
        seconds: most of them for the whole drill.
        place: an empty directory with a short path, for everything that is written, which is kept; default: one of its
            own, which is not.

    Raises:
        TimeoutError: something took far too long.
    """
    with contextlib.ExitStack() as stack:
        if place is None:
            place = Path(tempfile.mkdtemp(prefix="drill-", dir="/tmp"))
            stack.callback(shutil.rmtree, place, ignore_errors=True)
        nodes = Nodes(place)
        stack.callback(nodes.close)
        nodes.start_head()
        nodes.start_second()
        return _Drill(place, nodes, cells, engine, say).run(seconds)


class _Drill:
    def __init__(self, place: Path, nodes: Nodes, cells: int, engine: EngineKind, say: Callable[[str], None]) -> None:
        self._nodes, self._cells, self._engine, self._say = nodes, cells, engine, say
        self._log = (place / "watchers.log").open("ab")
        self._file = write_drill(place, cells, nodes.address, engine)
        self._fleet = FleetDir(str(place / "fleet"))
        self._node_caught = self._head_caught = 0

    def run(self, seconds: float) -> Drilled:
        began = time.monotonic()
        subprocess.run(
            [*_PROCTOR, "submit", str(self._file), "--detach"], check=True, env=ENVIRONMENT, stdout=self._log
        )
        stuck = submission_of(self._fleet.fleet(), STUCK, 1)
        RayJobs(self._nodes.address).submit(Order(stuck, "true", {"a resource that no node has": 1.0}))
        self._watcher = self._watch(self._log)
        try:
            with looking(self._fleet) as seen:
                self._accidents(seconds)
                code = self._watcher.wait(max(1.0, seconds - (time.monotonic() - began)))
        finally:
            self._watcher.kill()
            self._watcher.wait()
            self._log.close()
        return self._drilled(code, time.monotonic() - began, seen)

    def _accidents(self, seconds: float) -> None:
        self._await(words.UNIT_STARTED, 2, seconds)
        self._say("killing the watcher")
        self._watcher.send_signal(signal.SIGKILL)
        self._watcher.wait()
        self._watcher = self._watch(self._log)
        self._await(words.UNIT_ENDED, max(1, self._cells // 6), seconds)
        wait_for(self._second_works, "an engine works on the second node", seconds)
        self._say(f"ending the second node; engines at work there: {self._node_caught}")
        self._nodes.end_second()
        self._await(words.UNIT_ENDED, max(2, self._cells // 3), seconds)
        wait_for(self._both_again, "the cells that hang and wait are tried again", seconds)
        wait_for(self._head_works, "a unit is at work", seconds)
        self._say(f"ending the head; units at work: {self._head_caught}")
        self._nodes.end()
        self._await(words.CLUSTER_LOST, 1, seconds)
        self._nodes.start_head()
        self._nodes.start_second()

    def _second_works(self) -> bool:
        self._node_caught = engines_under(self._nodes.second.pid)
        return self._node_caught > 0 or self._watcher.poll() is not None

    def _head_works(self) -> bool:
        self._head_caught = len(working(self._fleet.events()))
        return self._head_caught > 0 or self._watcher.poll() is not None

    def _both_again(self) -> bool:
        again = {event.data["unit"] for event in self._fleet.events() if _is_second(event)}
        return {HUNG, STUCK} <= again or self._watcher.poll() is not None

    def _watch(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        command = [*_PROCTOR, "watch", str(self._file)]
        return subprocess.Popen(command, stdout=log, stderr=log, env=ENVIRONMENT)

    def _await(self, kind: str, count: int, seconds: float) -> None:
        wait_for(lambda: self._kinds()[kind] >= count or self._watcher.poll() is not None, f"{count} {kind}", seconds)

    def _kinds(self) -> Counter[str]:
        return Counter(event.kind for event in self._fleet.events())

    def _drilled(self, code: int, seconds: float, seen: Seen) -> Drilled:
        fleet, events = self._fleet.fleet(), self._fleet.events()
        ledgers = [self._fleet.run(unit.name).read("reconciliation") for unit in fleet.units()]
        whole = [found for found in ledgers if found is not None and found["complete"]]
        gone = [event for event in events if event.kind == words.UNIT_GONE]

        def told(unit: str) -> list[str]:
            return [event.message for event in gone if event.data["unit"] == unit]

        return Drilled(
            engine=self._engine,
            exit_code=code,
            cells=self._cells,
            seconds=seconds,
            seen=seen,
            gpus=gpus_at_most(events),
            complete=sum(found["checkpoints"][0]["answered"] == ROWS for found in whole),
            differing=differing(self._fleet),
            events=dict(self._kinds()),
            interrupted=sum(not event.data["counts"] for event in gone),
            hung=told(HUNG),
            stuck=told(STUCK),
            reap_after=fleet.spec.reap_after,
            node_caught=self._node_caught,
            head_caught=self._head_caught,
        )


def differing(place: FleetDir) -> list[str]:
    """Paths of the checkpoints whose cells have not all given the same answers to every row."""
    first: dict[str, dict[int, str]] = {}
    found = set()
    for unit in place.fleet().units():
        path, answers = unit.spec.engine.checkpoints[0].path, answers_of(place.run(unit.name))
        if first.setdefault(path, answers) != answers:
            found.add(path)
    return sorted(found)


def _is_second(event: Event) -> bool:
    return event.kind == words.UNIT_ADMITTED and event.data["attempt"] != 1


_PROCTOR = [str(BIN / "proctor"), "fleet"]
