"""Checkpoints whose files change, errors amid a swap, stores that fail: nothing false is kept or served."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.engines import EngineConfig
from proctor.engines.fingerprint_store import FingerprintStore
from proctor.engines.weights import Weights
from proctor.rows import Request, Response, UserError
from proctor.storage.base import Folder
from proctor.storage.folder import open_folder
from proctor.supervise.hotswap import HotSwap, SwapSetup
from tests.supervise.helpers import Supervised, scripted, wait_until

Start = Callable[..., Supervised]


class Disk:
    """Checkpoints by name. `content` is what a file says, and `then` is called in the middle of the next reading."""

    def __init__(self, *names: str) -> None:
        self.content = dict.fromkeys(names, 1)
        self.then: Callable[[], object] = lambda: None

    def read(self, config: EngineConfig) -> Weights:
        if config.model not in self.content:
            raise UserError("not there", where=config.model)
        found = Weights(f"{config.model}.{self.content[config.model]}", stamps=self.look(config))
        self.then()
        return found

    def look(self, config: EngineConfig) -> Mapping[str, str]:
        return {"weights": str(self.content[config.model])} if config.model in self.content else {}


class Course:
    def __init__(self, supervise: Start, folder: Path, **settings: Any) -> None:
        self.disk = Disk("a", "b")
        self.a, self.b = (
            msgspec.structs.replace(scripted(folder, answer="{checkpoint} {row_id}", **settings), model=name)
            for name in "ab"
        )
        self.one = supervise(self.a)
        self.folder = open_folder(str(folder / "fingerprints"))
        self.hot = self.new(self.one, self.a)

    def new(self, one: Supervised, first: EngineConfig) -> HotSwap:
        return HotSwap(
            one.supervisor, first, SwapSetup(self.folder), one.supervisor._settings, one.events.append,
            name="e", seen=self.disk.look(first), read=self.disk.read, look=self.disk.look,
        )  # fmt: skip

    def serve(self, *configs: EngineConfig) -> None:
        for config in configs:
            self.hot.to(config)
            assert self.one.answers([7])[7].text == f"{config.model} 7"

    def count(self, kind: str) -> int:
        return self.one.kinds().count(kind)

    def known(self) -> int:
        return len([name for name in self.folder.names() if name.endswith(".json")])


@pytest.fixture
def course(supervise: Start, tmp_path: Path) -> Course:
    return Course(supervise, tmp_path)


def test_what_was_read_ahead_is_read_again_when_its_files_have_changed(course: Course) -> None:
    course.serve(course.a, course.b, course.a)
    course.hot.read_ahead(course.b)
    assert course.hot._ahead is not None
    course.hot._ahead.weights()
    course.disk.content["b"] = 2
    course.serve(course.b)
    assert course.count("engine.swapped") == 1  # to a; nothing is known of b's new content
    assert course.count("engine.swap_skipped") == 2
    assert course.known() == 3


def test_files_that_change_while_an_engine_starts_with_them_leave_no_fingerprint(course: Course) -> None:
    course.serve(course.a)
    course.disk.then = lambda: course.disk.content.update(b=2)
    course.serve(course.b)
    assert course.known() == 1
    course.disk.then = lambda: None
    course.serve(course.a, course.b)  # its content is known to nobody: started, and then kept
    assert course.known() == 2
    course.serve(course.a, course.b)
    assert course.count("engine.unsteady") == 0
    assert course.count("engine.swapped") == 3


def test_files_that_changed_between_the_start_and_the_first_reading_leave_no_fingerprint(course: Course) -> None:
    course.disk.content["a"] = 2
    course.serve(course.a)
    assert course.known() == 0


def test_files_that_change_during_the_swap_have_the_engine_started(course: Course) -> None:
    course.serve(course.a, course.b, course.a)
    course.disk.then = lambda: course.disk.content.update(b=2)
    course.serve(course.b)
    assert "its files have changed" in course.one.event("engine.swap_failed").message
    assert course.known() == 2


def test_files_that_change_while_rows_are_answered_are_told_once(course: Course) -> None:
    course.serve(course.a)
    course.disk.content["a"] = 2
    course.hot.close()
    course.hot.close()
    assert course.count("engine.checkpoint_changed") == 1
    assert "either content" in course.one.event("engine.checkpoint_changed").message


def test_a_checkpoint_that_has_vanished_is_started_and_nothing_is_kept(course: Course) -> None:
    course.serve(course.a, course.b, course.a)
    course.hot.read_ahead(course.b)
    assert course.hot._ahead is not None
    course.hot._ahead.weights()
    del course.disk.content["b"]
    course.hot.to(course.b)
    skipped = [event.message for event in course.one.events if event.kind == "engine.swap_skipped"]
    assert "cannot be read ahead: UserError: b: not there" in skipped[-1]
    assert course.count("engine.swapped") == 1


def test_an_error_in_the_middle_leaves_nothing_that_counts_as_proven(
    course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    course.serve(course.a, course.b, course.a)

    def broken() -> None:
        raise OSError("no more descriptors")

    with monkeypatch.context() as patched:
        patched.setattr(course.hot, "_fingerprint", broken)
        with pytest.raises(OSError, match="descriptors"):
            course.hot.to(course.b)
    before = course.count("engine.swapped")
    course.serve(course.b)
    assert course.count("engine.swapped") == before + 1
    assert course.known() == 2


def test_a_store_that_cannot_be_used_is_told(course: Course) -> None:
    (Path(course.folder.location)).write_text("a file where a folder should be")
    course.serve(course.a, course.b, course.a)
    assert course.count("engine.fingerprint_lost") == 3
    assert "cannot be read" in course.one.event("engine.swap_skipped").message


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_store_that_takes_nothing_costs_the_fingerprint_and_no_answer(
    course: Course, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A full disk, one that became read-only, and one that is not ours to write to: what is there still counts."""

    def full(folder: Folder, name: str, data: bytes) -> None:
        raise OSError(number, os.strerror(number), name)

    course.serve(course.a)
    monkeypatch.setattr(type(course.folder), "create", full)
    course.serve(course.b, course.a, course.b)
    lost = [event for event in course.one.events if event.kind == "engine.fingerprint_lost"]
    assert len(lost) == 2  # b's, each time that it is started
    assert os.strerror(number) in lost[0].message
    assert lost[0].action == "the next run starts an engine for it"
    assert (course.count("engine.swapped"), course.known()) == (1, 1)  # a's was there


def test_a_fingerprint_under_another_name_is_none(course: Course) -> None:
    course.serve(course.a, course.b)
    one, other = (name for name in course.folder.names() if name.endswith(".json"))
    course.folder.write(one, course.folder.read(other))
    store = FingerprintStore(course.folder)
    assert store.get(one.removesuffix(".json")) is None
    assert store.get(other.removesuffix(".json")) is not None
    course.serve(course.a, course.b, course.a)
    assert course.count("engine.unsteady") == 0


def test_probes_that_get_no_answer_at_all_prove_nothing(supervise: Start, tmp_path: Path) -> None:
    """Every checkpoint would have the same fingerprint, and a swap that changes nothing would count."""
    course = Course(supervise, tmp_path, swap="stale")
    for config in (course.a, course.b):
        config.options["answer"] = "  "
    for config in (course.a, course.b, course.a, course.b):
        course.hot.to(config)
    assert course.known() == 0
    assert course.count("engine.swapped") == 0
    assert course.one.supervisor.counters.starts == 4


@pytest.mark.parametrize("probe", range(0, 6, 2))
@pytest.mark.parametrize("known", [True, False])
def test_an_engine_that_is_killed_at_a_probe_is_not_proven(
    course: Course, monkeypatch: pytest.MonkeyPatch, probe: int, known: bool
) -> None:
    course.serve(course.a)
    if known:
        course.serve(course.b, course.a)
    submit = course.one.supervisor.submit

    def killed(request: Request) -> Future[Response]:
        if request.id == -1 - probe:
            wait_until(lambda: course.one.supervisor._loop.ready)
            engine = course.one.supervisor._loop.engine
            assert engine is not None
            os.kill(engine.pid, signal.SIGKILL)
            monkeypatch.undo()
        return submit(request)

    monkeypatch.setattr(course.one.supervisor, "submit", killed)
    course.serve(course.b)
    if known:
        assert "ended while it answered the probes" in course.one.event("engine.swap_failed").message
    assert course.count("engine.swapped") == known  # back to a
    course.serve(course.a, course.b)
    assert course.count("engine.unsteady") == 0


def test_an_engine_that_has_not_loaded_yet_is_not_swapped(course: Course, supervise: Start) -> None:
    course.serve(course.a, course.b)
    slow = msgspec.structs.replace(course.a, options={**course.a.options, "load_seconds": 30})
    one = supervise(slow)
    hot = course.new(one, slow)
    hot.to(course.b)
    assert "has not been loaded yet" in one.event("engine.swap_skipped").message
    assert one.answers([7])[7].text == "b 7"
    assert "engine.unsteady" not in one.kinds()
    assert course.known() == 2
