"""The watcher against a cluster that is plain data, and run directories that the tests write."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from proctor.fleet import words
from proctor.fleet.jobs import RefusedError
from proctor.fleet.loop import Ears, Watcher, described
from proctor.fleet.notes import Notes
from proctor.fleet.observe import parsed
from proctor.fleet.view import JobState
from proctor.rows import Event, UserError
from proctor.storage.lease import Lease
from tests.fleet.making import RUN, write_checkpoint, write_fleet
from tests.fleet.staged import Stage, steps
from tests.storage.bucket import served


def test_a_fleet_runs_to_its_end_as_room_comes_free(stage: Stage) -> None:
    heard: list[str] = []
    watcher = stage.watcher(ears=Ears(event=lambda event: heard.append(event.kind)))
    with watcher.watching():
        steps(watcher)
        assert set(stage.cluster.jobs) == {stage.id("a"), stage.id("b")}
        assert stage.cluster.orders[0].entrypoint.split()[-6:] == [
            *("fleet", "unit", stage.place.location, "a", "--attempt", "1")
        ]
        for name in ("a", "b"):
            stage.finish(name, code=2 if name == "b" else 0)
        steps(watcher)
        assert stage.id("c") in stage.cluster.jobs
        stage.finish("c")
        assert watcher.watch() == 2
    assert heard == stage.kinds()
    assert stage.kinds("a") == [words.UNIT_ADMITTED, words.UNIT_ENDED]
    assert stage.last(words.FLEET_ENDED).data["complete"] == 3
    stage.cluster.down = "gone"  # a fleet that is complete needs no cluster any more
    with (again := stage.watcher()).watching():
        assert again.watch() == 2
        with pytest.raises(UserError, match="another driver"), stage.watcher().watching():
            pass


@pytest.mark.parametrize("known", [False, True], ids=["the job never arrived", "the job arrived"])
def test_a_watcher_killed_while_it_submits_costs_nothing(stage: Stage, known: bool) -> None:
    about = {"unit": "a", "attempt": 1, "submission": stage.id("a")}
    stage.place.append_event(Event(words.UNIT_ADMITTED, data=about))
    if known:
        stage.cluster.move(stage.id("a"), JobState.RUNNING)
    watcher = stage.watcher()
    with watcher.watching():
        steps(watcher)
    assert [order.submission for order in stage.cluster.orders] == [stage.id(x) for x in ("b" if known else "ab")]
    assert stage.kinds("a") == [words.UNIT_ADMITTED]


def test_jobs_that_the_events_do_not_hold_are_taken_over_and_others_left_alone(stage: Stage) -> None:
    stage.cluster.move(stage.id("b"), JobState.PENDING)
    stage.cluster.move("proctor-ffffffffffff-a-1", JobState.RUNNING)
    stage.cluster.move("somebody-else", JobState.RUNNING)
    watcher = stage.watcher()
    with watcher.watching():
        steps(watcher)
        assert stage.kinds("b") == [words.UNIT_ADOPTED]
        for name in ("a", "b", "c"):
            Notes(stage.place.folder).hold(name)
        assert watcher.until(lambda view: all(unit.attempt is None for unit in view.units), 60)
    assert not {"proctor-ffffffffffff-a-1", "somebody-else"} & set(stage.cluster.stopped)
    assert parsed(stage.place.fleet(), "proctor-ffffffffffff-a-1") is None
    assert parsed(stage.place.fleet(), stage.id("a", 12)) == ("a", 12)


def test_answers_that_get_lost_and_jobs_that_are_refused(stage: Stage) -> None:
    stage.cluster.swallows = True
    watcher = stage.watcher()
    with watcher.watching():
        steps(watcher)
        assert set(stage.cluster.jobs) == {stage.id("a"), stage.id("b")}
        stage.cluster.jobs.clear()  # the head was started anew: both were known, so these are new attempts
        stage.cluster.swallows, stage.cluster.faults = False, [RefusedError("no such resource")]
        steps(watcher)
        assert stage.kinds("a")[:4] == [words.UNIT_ADMITTED, words.UNIT_GONE, words.UNIT_REQUEUED, words.UNIT_ADMITTED]
        gone = [event.data["counts"] for event in stage.place.events() if event.kind == words.UNIT_GONE]
        assert gone == [False, False, True]
        assert "no such resource" in stage.last(words.UNIT_GONE).message


def test_nothing_is_decided_while_the_cluster_is_away(stage: Stage) -> None:
    said: list[str] = []
    watcher = stage.watcher(ears=Ears(trouble=said.append))
    with watcher.watching():
        steps(watcher)
        stage.cluster.down = "connection refused"
        steps(watcher)
        stage.cluster.down = ""
        steps(watcher, 1)
    assert stage.kinds()[-3:-1] == [words.CLUSTER_LOST, words.CLUSTER_BACK]
    assert stage.last(words.CLUSTER_LOST).message == "connection refused"
    assert len(said) == 2
    assert said[1] == ""


def test_a_job_that_waits_too_long_is_withdrawn_and_its_unit_tried_again(tmp_path: Path) -> None:
    stage = Stage(tmp_path, pending_seconds=900, matrix={"checkpoints": ["a"]})
    watcher = stage.watcher()
    with watcher.watching():
        steps(watcher, 2)
        stage.later(800)
        steps(watcher, 1)
        assert stage.kinds("a") == [words.UNIT_ADMITTED]
        stage.later(200)
        steps(watcher, 4)
    assert Notes(stage.place.folder).stop_asked(stage.id("a"))
    assert stage.kinds("a") == [
        *(words.UNIT_ADMITTED, words.UNIT_STOPPING, words.UNIT_GONE, words.UNIT_REQUEUED, words.UNIT_ADMITTED)
    ]
    assert set(stage.cluster.jobs) == {stage.id("a"), stage.id("a", 2)}


def test_a_job_without_progress_is_stopped_then_ended_then_given_up(tmp_path: Path) -> None:
    stage = Stage(
        tmp_path,
        reap_after=7200,
        stop_seconds=30,
        max_attempts=1,
        matrix={"checkpoints": ["a", "b"]},
        gpus_per_unit=12,
    )
    watcher = stage.watcher()
    with watcher.watching():
        steps(watcher, 1)
        stage.cluster.move(stage.id("a"), JobState.RUNNING)
        for seconds in (0, 7300, 40):
            assert not stage.cluster.stopped
            stage.later(seconds)
            watcher.step()
        assert stage.cluster.stopped == [stage.id("a")]
        stage.cluster.move(stage.id("a"), JobState.STOPPED)
        steps(watcher, 3)
        assert stage.kinds("a")[-2:] == [words.UNIT_GONE, words.UNIT_GIVEN_UP]
        assert stage.id("b") in stage.cluster.jobs  # the rest goes on
        stage.finish("b")
        assert watcher.watch() == 3
    stage.submit()
    Notes(stage.place.folder).try_again("a")
    again = stage.watcher()
    with again.watching():
        steps(again)
    assert stage.id("a", 2) in stage.cluster.jobs


def test_a_mistake_told_twice_is_not_tried_again(stage: Stage) -> None:
    for attempt in (1, 2):
        about = {"unit": "a", "attempt": attempt}
        stage.place.append_event(Event(words.UNIT_ADMITTED, time=1.0, data=about))
        ended = {**about, "exit_code": 1, "complete": False}
        stage.place.append_event(Event(words.UNIT_ENDED, time=2.0, message="no such file", data=ended))
    watcher = stage.watcher()
    with watcher.watching():
        steps(watcher)
    assert stage.kinds("a")[-1] == words.UNIT_GIVEN_UP
    assert "no such file" in stage.last(words.UNIT_GIVEN_UP).message


def test_a_unit_whose_run_directory_is_held_is_left_alone(stage: Stage) -> None:
    lease = Lease(stage.place.run("a").folder, lambda _reason: None)
    watcher = stage.watcher()
    with watcher.watching(), lease.held():
        steps(watcher)
        assert set(stage.cluster.jobs) == {stage.id("b")}  # and the GPUs of that run count
    assert stage.kinds("a") == []


def test_what_would_be_done_can_be_asked_while_another_watches(stage: Stage) -> None:
    with stage.watcher().watching():
        foreseen = [described(action) for action in stage.watcher().foresee()]
        assert foreseen == ["admit a, attempt 1", "admit b, attempt 1"]
        assert not stage.cluster.orders
        assert stage.watcher(admits=False).foresee() == []
    stage.cluster.down = "no route"
    with pytest.raises(UserError, match="no route"):
        stage.watcher().foresee()


def test_a_round_ends_when_what_it_stops_is_gone(tmp_path: Path) -> None:
    stage = Stage(tmp_path, pending_seconds=900)
    with (first := stage.watcher()).watching():
        steps(first, 2)
    stage.later(1000)
    with (reaper := stage.watcher(admits=False)).watching():  # it knows since when they wait
        reaper.round()
        assert [stage.kinds(name)[-1:] for name in "abc"] == [[words.UNIT_REQUEUED], [words.UNIT_REQUEUED], []]
        stage.cluster.down = "no route"
        with pytest.raises(UserError, match="no route"):
            reaper.round()


def test_cells_added_while_a_watcher_is_at_work(stage: Stage, tmp_path: Path) -> None:
    watcher = stage.watcher()
    with watcher.watching():
        steps(watcher, 2)
        write_fleet(tmp_path, matrix={"checkpoints": ["a", "b", "c", "d"]}, gpus_per_unit=6)
        stage.submit()
        stage.cluster.gpus = 24.0
        steps(watcher, 2)
    assert stage.id("d") in stage.cluster.jobs
    assert stage.last(words.FLEET_EXTENDED).message == "d"
    assert stage.kinds().count(words.FLEET_CREATED) == 1


def test_a_fleet_in_a_bucket(tmp_path: Path) -> None:
    with served(tmp_path / "server") as bucket:
        run = {**RUN, "storage": {"endpoint": bucket.endpoint, "anonymous": True}}
        stage = Stage(tmp_path, fleet_dir=bucket.url("fleets/one"), run=run)
        with (watcher := stage.watcher()).watching():
            steps(watcher, 2)
            words_of = shlex.split(stage.cluster.orders[0].entrypoint)
            assert json.loads(words_of[words_of.index("--storage") + 1])["endpoint"] == bucket.endpoint
            for name in ("a", "b"):
                stage.finish(name)
            Notes(stage.place.folder).hold("c")
            steps(watcher, 3)
            assert watcher.exit_code() == 3
            assert set(stage.cluster.jobs) == {stage.id("a"), stage.id("b")}
            Notes(stage.place.folder).release("c")
            steps(watcher, 2)
            stage.finish("c")
            assert watcher.watch() == 0
        with (again := stage.watcher()).watching():
            assert again.watch() == 0
        assert stage.kinds().count(words.WATCHER_STOPPED) == 2


def test_checkpoints_that_come_later_are_admitted(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    write_checkpoint(models / "step-1")
    stage = Stage(tmp_path, matrix={"checkpoints": {"watch": "models"}})
    said: list[str] = []
    watcher = stage.watcher(ears=Ears(trouble=said.append))
    with watcher.watching():
        _until(watcher, lambda: stage.id("step-1") in stage.cluster.jobs)
        write_checkpoint(models / "step-2")
        _until(watcher, lambda: stage.id("step-2") in stage.cluster.jobs)
        models.rename(tmp_path / "away")
        _until(watcher, lambda: any("no new checkpoints" in text for text in said))
        (tmp_path / "away").rename(models)
        write_checkpoint(models / "step-3")
        stage.cluster.gpus = 24.0
        _until(watcher, lambda: stage.id("step-3") in stage.cluster.jobs)


def _until(watcher: Watcher, holds: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < give_up
        watcher.step()
        time.sleep(0.05)


def test_a_watcher_that_lost_its_lease_stops(stage: Stage) -> None:
    watcher = stage.watcher()
    with watcher.watching():
        watcher._lose("taken over")
        with pytest.raises(UserError, match="taken over"):
            watcher.step()
    assert not stage.cluster.orders
