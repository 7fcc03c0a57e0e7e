"""A fleet whose storage fails, or whose watcher dies, at each single write: it is run once for each of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from proctor.fleet import words
from proctor.fleet.view import JobState
from proctor.storage import local
from tests.fleet.staged import Stage

Fault = Literal["fails before", "fails after", "writes late", "dies before", "dies after"]


class Death(BaseException):
    """The watcher's process is killed."""


class Trap:
    """Counts the writes of this thread, other than heartbeats, and springs at one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.armed, self.dead, self.count, self.at = False, False, 0, -1
        self.fault: Fault = "fails before"
        self._kept: list[Callable[[], None]] = []
        self._thread = threading.get_ident()
        whole, append, delete = local.write_whole, local.Lines.append, local.LocalFolder.delete
        monkeypatch.setattr(local, "write_whole", lambda path, make: self.sprung(path, whole, path, make))
        monkeypatch.setattr(local.Lines, "append", lambda it, line: self.sprung(it.path, append, it, line))
        monkeypatch.setattr(local.LocalFolder, "delete", lambda it, name: self.sprung(it.root / name, delete, it, name))

    def sprung(self, path: Path, write: Callable[..., None], *arguments: Any) -> None:
        if not self.armed or path.name == "lease.json" or threading.get_ident() != self._thread:
            write(*arguments)
            return
        if self.dead:
            raise OSError(5, "the dead do not write")
        self.count += 1
        here = self.count == self.at
        while self._kept and path.suffix == ".jsonl":  # as the journal of a bucket does it
            self._kept.pop()()
        if here and self.fault == "writes late":
            self._kept.append(lambda: write(*arguments))
        elif not (here and self.fault.endswith("before")):
            write(*arguments)
        if here:
            self.dead = self.fault.startswith("dies")
            raise Death if self.dead else OSError(5, "input/output error")


def play(stage: Stage, trap: Trap) -> int:
    """The first job of `a` never starts, any other one completes its run. Watchers follow each other as they die."""
    for _watcher in range(3):
        watcher = stage.watcher()
        trap.armed, trap.dead = True, False
        try:
            with watcher.watching():
                for _ in range(40):
                    watcher.step()
                    trap.armed = False
                    for submission, job in list(stage.cluster.jobs.items()):
                        unit, attempt = submission.split("-")[-2:]
                        if job.state is JobState.PENDING and (unit, attempt) != ("a", "1"):
                            stage.finish(unit, int(attempt))
                    stage.later(100)
                    trap.armed = True
                    if all(watcher.book.unit(unit).over for unit in "ab"):
                        return watcher.watch()
        except (Death, OSError):
            continue
        finally:
            trap.armed = False
    raise AssertionError("no end")


@pytest.mark.parametrize("fault", ["fails before", "fails after", "writes late", "dies before", "dies after"])
def test_no_single_write_is_one_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    trap, writes = Trap(monkeypatch), 0
    while trap.count >= writes:  # as long as there was one to spring at
        writes += 1
        trap.count, trap.at, trap.fault = 0, writes, fault
        place = tmp_path / str(writes)
        place.mkdir()
        stage = Stage(place, matrix={"checkpoints": ["a", "b"]}, pending_seconds=900)
        assert play(stage, trap) == 0, f"write {writes}"
        submitted = [order.submission for order in stage.cluster.orders]
        assert submitted == [stage.id("a"), stage.id("b"), stage.id("a", 2)], f"write {writes}"
        assert not stage.cluster.stopped
        again = stage.watcher()
        again.book.read(stage.place.events())
        assert [again.book.unit(unit).over for unit in "ab"] == ["ended", "ended"], f"write {writes}"
        assert (again.book.unit("a").failures, again.book.unit("a").interruptions) == (0, 1), f"write {writes}"
        assert stage.kinds().count(words.FLEET_CREATED) <= 2
    assert writes > 15
