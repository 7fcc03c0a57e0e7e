"""``fleet.json``: what people, copies and checkpoints that come do to it, also while a watcher is at work."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from proctor.fleet.arriving import Arrivals
from proctor.fleet.folder import FleetDir
from proctor.fleet.loop import Ears
from proctor.fleet.resubmit import extend
from proctor.fleet.standing import standings
from proctor.rows import UserError
from proctor.spec import Checkpoint
from tests.fleet.making import write_checkpoint, write_fleet
from tests.fleet.staged import Stage, steps


def test_a_record_that_is_damaged_or_changed_under_a_watcher(stage: Stage, tmp_path: Path) -> None:
    said: list[str] = []
    document = tmp_path / "fleet" / "fleet.json"
    good = document.read_bytes()
    with (watcher := stage.watcher(ears=Ears(trouble=said.append))).watching():
        steps(watcher, 1)
        for name in "ab":
            stage.finish(name)
        document.write_bytes(good[: len(good) // 2])
        steps(watcher)
        assert [text.partition(":")[0] for text in said] == ["the fleet goes on as it was"]
        assert len(stage.cluster.jobs) == 3
        document.write_bytes(good)
        write_fleet(
            tmp_path,
            matrix={"checkpoints": ["a", "b", "c"]},
            gpus_per_unit=6,
            cluster={"address": "http://127.0.0.1:1", "python": "/other/python"},
        )
        stage.submit()
        steps(watcher, 1)
        assert said[-1] == "cluster.address: changed, which counts from the next watcher on"
        other = json.dumps({**json.loads(good), "id": "0123456789ab"})
        document.write_text(other)
        with pytest.raises(UserError, match="another fleet is here now"):
            watcher.step()
    document.write_bytes(good.replace(b'"format": 1', b'"format": 2'))
    with pytest.raises(UserError, match="a fleet of format 2, this version writes 1"):
        stage.watcher()


@pytest.mark.parametrize("identity", ["", "../../x", "ABCDEF012345", "0123456789abc"])
def test_an_id_that_is_none_is_refused(stage: Stage, tmp_path: Path, identity: str) -> None:
    document = tmp_path / "fleet" / "fleet.json"
    document.write_text(json.dumps({**json.loads(document.read_text()), "id": identity}))
    with pytest.raises(UserError, match="12 hex digits"):
        stage.place.fleet()


@pytest.mark.parametrize("name", ["../../x", "a/b", "/a", "..", ""])
def test_no_name_in_a_record_leads_out_of_it(stage: Stage, tmp_path: Path, name: str) -> None:
    document = tmp_path / "fleet" / "fleet.json"
    content = json.loads(document.read_text())
    content["batches"][0][0]["name"] = name
    document.write_text(json.dumps(content))
    with pytest.raises(UserError, match="does not describe a fleet"):
        stage.place.unit(name)


def test_a_fleet_by_another_path_is_the_same_and_a_copy_is_not(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("fleet")
    for path in ("fleet", "link"):
        with (watcher := stage.watcher(place=FleetDir(path))).watching():
            watcher.step()
    assert {order.entrypoint.split()[5] for order in stage.cluster.orders} == {str(tmp_path / "fleet")}
    shutil.copytree("fleet", "copy")
    stood = standings(FleetDir("copy"), stage.place.fleet().units())
    assert [row.address for row in stood] == [f"{tmp_path}/copy/cells/{name}:{name}" for name in "abc"]
    with pytest.raises(UserError, match="and its jobs work there"):
        stage.watcher(place=FleetDir("copy"))
    write_fleet(tmp_path, fleet_dir="copy", matrix={"checkpoints": ["a", "b", "c"]}, gpus_per_unit=6)
    before, stage.place = stage.place.fleet().id, FleetDir(tmp_path / "copy")
    assert stage.submit().id != before  # so that neither takes over the other's jobs


def test_a_fleet_under_another_path_is_not_made_another_one_under_its_watcher(stage: Stage, tmp_path: Path) -> None:
    document = tmp_path / "fleet" / "fleet.json"
    content = json.loads(document.read_text())
    document.write_text(json.dumps({**content, "spec": {**content["spec"], "fleet_dir": "/mounted/fleet"}}))
    with stage.place.held(lambda _reason: None), pytest.raises(UserError, match="recorded in /mounted/fleet"):
        stage.submit()
    with pytest.raises(
        UserError, match="and its jobs work there"
    ):  # nor is a unit run in a place that somebody wrote in
        stage.place.unit("a")
    assert stage.submit().id != content["id"]


def test_a_checkpoint_that_cannot_be_taken_keeps_no_other_one_out(tmp_path: Path) -> None:
    models = tmp_path / "models"
    write_checkpoint(models / "a")
    stage = Stage(tmp_path, matrix={"checkpoints": {"watch": "models"}}, way="parallel", at_once=9)
    refused: list[tuple[str, str]] = []
    arrivals = Arrivals(stage.place, lambda one, reason: refused.append((one.name, reason)))
    for _ in range(2):
        arrivals.take(stage.place.fleet())
    for name in ("A", "b", "B", "c", "d"):
        write_checkpoint(models / name)
    for _ in range(3):
        arrivals.take(stage.place.fleet())
    assert [[one.name for one in batch] for batch in stage.place.fleet().batches] == [["a"], ["B", "c", "d"]]
    assert sorted(name for name, _ in refused) == ["A", "b"]
    assert "are named 'b'" in dict(refused)["b"]


def test_a_checkpoint_that_comes_takes_nothing_back_that_a_person_has_changed(tmp_path: Path) -> None:
    matrix = {"checkpoints": {"watch": "models"}}
    (tmp_path / "models").mkdir()
    stage = Stage(tmp_path, matrix=matrix)
    seen = stage.place.fleet()
    write_fleet(tmp_path, matrix=matrix, gpus_per_unit=6, max_attempts=9)
    stage.submit()
    extend(stage.place, [Checkpoint(name="z", path="/z")])
    now = stage.place.fleet()
    assert (seen.spec.max_attempts, now.spec.max_attempts) == (3, 9)
    assert [one.name for batch in now.batches for one in batch] == ["z"]
    assert extend(stage.place, [Checkpoint(name="z", path="/z")]).changed is False
    (tmp_path / "fleet" / "fleet.json").unlink()
    with pytest.raises(UserError, match="no fleet here any more"):
        extend(stage.place, [Checkpoint(name="y", path="/y")])
