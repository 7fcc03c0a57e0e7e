"""What people, storage and other machines can do to a fleet while a watcher is at work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.fleet import words
from proctor.fleet.book import GIVEN_UP, Book
from proctor.fleet.exported import state_of
from proctor.fleet.jobs import UnreachableError
from proctor.fleet.loop import Ears, Watcher
from proctor.fleet.notes import Notes
from proctor.fleet.view import JobState, Rows
from proctor.rows import Event, UserError
from proctor.storage.holder import Holder
from proctor.storage.lease import Lease
from tests.fleet.making import RUN
from tests.fleet.staged import Stage, steps


def hold_from_elsewhere(stage: Stage, unit: str) -> None:
    """A driver of `unit` on another machine, which has no end."""
    holder = msgspec.structs.replace(Holder.me(1e9), host="elsewhere", pid=77, boot="other")
    stage.place.run(unit).folder.write("lease.json", msgspec.json.encode(holder))


def test_a_driver_that_cannot_be_ended_calls_a_person_once(tmp_path: Path) -> None:
    stage = Stage(tmp_path, matrix={"checkpoints": ["a"]})
    watcher = stage.watcher()
    with watcher.watching():
        steps(watcher)
        hold_from_elsewhere(stage, "a")
        stage.cluster.move(stage.id("a"), JobState.FAILED)
        for _ in range(150):  # 25 hours
            watcher.step()
            stage.later(600)
        assert stage.kinds("a").count(words.UNIT_STUCK) == 1
        assert stage.last(words.UNIT_STUCK).message.endswith("end its driver by hand (pid 77 on elsewhere)")
        assert 10 < stage.kinds("a").count(words.UNIT_KILLED) < 40
        watcher.round()  # has nothing more to wait for
        stage.place.run("a").folder.delete("lease.json")
        steps(watcher, 2)
    assert stage.kinds("a")[-2:] == [words.UNIT_GONE, words.UNIT_REQUEUED]


def test_words_about_an_earlier_attempt_change_nothing() -> None:
    book = Book()

    def add(kind: str, attempt: int, **data: Any) -> None:
        book.add(Event(kind, data={"unit": "a", "attempt": attempt, **data}))

    add(words.UNIT_ADMITTED, 1)
    add(words.UNIT_GONE, 1, counts=True)
    add(words.UNIT_GONE, 1, counts=True)  # written late by storage that had said that it could not
    add(words.UNIT_ADMITTED, 1)
    history = book.unit("a")
    assert (history.failures, history.attempt) == (1, None)
    add(words.UNIT_ADMITTED, 2)
    for kind in (words.UNIT_STOPPING, words.UNIT_KILLED, words.UNIT_STUCK, words.UNIT_GONE, words.UNIT_STARTED):
        add(kind, 1, counts=True)
    add(words.UNIT_ENDED, 1, exit_code=0, complete=True)
    assert history.attempt is not None
    assert (history.attempt.number, history.attempt.stopping, history.attempt.kills, history.over) == (2, None, 0, "")
    add(words.UNIT_ENDED, 2, exit_code="zero", complete=True)  # somebody has edited it
    assert (history.over, history.exit_code) == ("ended", 0)


def test_interruptions_in_a_row_rest_ever_longer() -> None:
    now = [100.0]
    book = Book(lambda: now[0], lambda: now[0])
    rests = []
    for attempt in range(1, 12):
        about = {"unit": "a", "attempt": attempt, "counts": False}
        book.add(Event(words.UNIT_ADMITTED, data=dict(about)))
        book.add(Event(words.UNIT_GONE, data=dict(about)))
        rests.append(book.rest("a"))
    assert rests[:4] == [0.0, 5.0, 10.0, 20.0]
    assert rests[-1] == 600.0
    for attempt in range(12, 2000):  # as many as a spec may allow
        book.add(Event(words.UNIT_ADMITTED, data={"unit": "a", "attempt": attempt}))
        book.add(Event(words.UNIT_GONE, data={"unit": "a", "attempt": attempt, "counts": attempt % 2 == 0}))
    assert book.rest("a") == 600.0


def test_a_cluster_that_does_not_answer_is_asked_once_a_round(tmp_path: Path) -> None:
    stage = Stage(tmp_path, gpus_per_unit=1)
    stage.cluster.faults = [UnreachableError("no answer in time")]
    with (watcher := stage.watcher()).watching():
        watcher.step()
        assert stage.kinds().count(words.UNIT_ADMITTED) == 1
        assert not stage.cluster.orders
        steps(watcher, 2)
    assert [order.submission for order in stage.cluster.orders] == [stage.id(name) for name in "abc"]


def test_a_watcher_that_loses_the_fleet_while_it_acts_does_no_more(stage: Stage) -> None:
    watcher: list[Watcher] = []

    def lose(event: Event) -> None:
        if event.kind == words.UNIT_ADMITTED:
            watcher[0]._lose("taken over")

    watcher.append(stage.watcher(ears=Ears(event=lose)))
    with watcher[0].watching(), pytest.raises(UserError, match="taken over"):
        watcher[0].step()
    assert stage.kinds()[-1] == words.UNIT_ADMITTED
    assert stage.kinds().count(words.UNIT_ADMITTED) == 1


def test_a_run_by_hand_that_begins_between_two_looks(stage: Stage) -> None:
    with (watcher := stage.watcher()).watching():
        view, _ = watcher.step()
        assert view is not None
        for name in "ab":
            stage.finish(name)
        with Lease(stage.place.run("c").folder, lambda _reason: None).held():
            view = steps(watcher, 4)
            assert view is not None
            assert [unit.live for unit in view.units] == [False, False, True]
            watcher.round()
        steps(watcher, 1)
        assert stage.kinds("c") == [words.UNIT_ADMITTED]


def test_a_job_with_a_name_as_long_as_there_is_can_be_stopped(tmp_path: Path) -> None:
    matrix = {"checkpoints": ["c" * 120], "set": {f"engine.env.V{n}": ["x" * 20] for n in range(6)}}
    stage = Stage(tmp_path, matrix=matrix, run={**RUN, "engine": {"kind": "transformers"}})
    (unit,) = stage.place.fleet().units()
    assert len(unit.name) == 200
    with (watcher := stage.watcher()).watching():
        steps(watcher)
        Notes(stage.place.folder).hold(unit.name)
        steps(watcher)
    assert Notes(stage.place.folder).stop_asked(stage.id(unit.name))
    assert not Notes(stage.place.folder).stop_asked(stage.id(unit.name, 2))
    assert stage.kinds(unit.name)[-1] == words.UNIT_GONE


def test_how_far_units_are(stage: Stage) -> None:
    status = {"checkpoints": {"a": {"total": 9, "done": 4, "errors": {"read.corrupt": 1}}}}
    stage.place.run("a").write("status", status)
    with (watcher := stage.watcher()).watching():
        view = steps(watcher)
        assert view is not None
        assert view.units[0].rows == Rows(9, 4, 1)
        stage.finish("a")
        ledger = {"checkpoint": "a", "complete": True, "expected": 9, "answered": 7, "errors": {"read.corrupt": 2}}
        stage.place.run("a").write("reconciliation", {"checkpoints": [ledger], "exit_code": 0, "complete": True})
        steps(watcher)
    with (again := stage.watcher()).watching():
        view = steps(again, 1)
    assert view is not None
    assert (view.units[0].rows, state_of(view.units[0])) == (Rows(9, 9, 2), "complete")


def test_a_fleet_without_cells_is_not_complete(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    stage = Stage(tmp_path, matrix={"checkpoints": {"glob": "models/*"}})
    with (watcher := stage.watcher()).watching():
        assert watcher.watch() == 3


def test_storage_that_fails_at_the_end_hides_no_reason(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_event: Event) -> None:
        raise OSError(28, "no space left on device")

    def interrupted() -> None:
        with (watcher := stage.watcher()).watching():
            monkeypatch.setattr(stage.place, "append_event", full)
            assert watcher.step() == (None, False)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not stage.place.watched


def test_a_cluster_that_is_too_small_is_no_silent_wait(stage: Stage) -> None:
    said: list[str] = []
    stage.cluster.gpus = 5.0
    with (watcher := stage.watcher(ears=Ears(trouble=said.append))).watching():
        steps(watcher)
        assert said == ["nothing can start: a takes 6 GPUs, and the fleet may use 5"]
        stage.cluster.gpus, stage.cluster.used = 12.0, 12.0
        steps(watcher)
        assert said[1:] == ["nothing can start now: others use the GPUs that a waits for"]
        stage.cluster.used = 0.0
        steps(watcher)
    assert len(stage.cluster.orders) == 2
    assert len(said) == 2


def test_what_a_person_holds_back_is_not_waited_for(stage: Stage) -> None:
    Notes(stage.place.folder).hold("c")
    with (watcher := stage.watcher()).watching():
        steps(watcher, 1)
        for name in "ab":
            stage.finish(name)
        assert watcher.watch() == 3
    assert stage.last(words.FLEET_ENDED).message == "2 of 3 units complete, 1 held back"


def test_a_log_that_cannot_be_written_ends_no_watch(stage: Stage) -> None:
    def full(_what: object) -> None:
        raise OSError(28, "no space left on device")

    with (watcher := stage.watcher(ears=Ears(full, full, full).unfailing())).watching():
        view, acted = watcher.step()
        assert view is not None
        assert acted
        stage.cluster.down = "no route"
        assert watcher.step() == (None, False)
    assert set(stage.cluster.jobs) == {stage.id("a"), stage.id("b")}


def test_events_that_are_torn_or_of_no_kind(stage: Stage, tmp_path: Path) -> None:
    with (watcher := stage.watcher()).watching():
        steps(watcher, 1)
    journal = tmp_path / "fleet" / "events.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole + b'[]\n{"kind": "unit.unheard_of", "data": {"unit": "a"}}\n\xff\xfe\n{"kind": "unit.giv')
    with (again := stage.watcher()).watching():
        steps(again, 1)
        assert again.book.unit("a").over != GIVEN_UP
    assert stage.kinds()[-1] == words.WATCHER_STOPPED
    assert stage.kinds("a") == [words.UNIT_ADMITTED, "unit.unheard_of"]
