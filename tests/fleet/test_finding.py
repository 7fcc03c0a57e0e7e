"""Which checkpoints count, and when; what submitting a fleet again may change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proctor.fleet.finding import CHANGED, SEEN_ONCE, find
from proctor.fleet.folder import FleetDir
from proctor.fleet.loading import load_fleet
from proctor.fleet.resubmit import Entered, enter
from proctor.rows import UserError
from tests.fleet.making import RUN, write_checkpoint, write_fleet, write_tensor
from tests.storage.bucket import served


def names(path: Path) -> tuple[list[str], dict[str, str]]:
    found = find(load_fleet(path))
    return [one.name for one in found.checkpoints], {Path(at).name: why for at, why in found.waiting.items()}


def test_a_pattern_finds_whole_checkpoints_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    models = tmp_path / "models"
    for step in (200, 1000, 30):
        write_checkpoint(models / f"step-{step}")
    write_checkpoint(models / "step-4", shards=3)
    write_checkpoint(models / "step-5", shards=3, without=1)
    write_checkpoint(models / "step-6", shards=2).joinpath("model.safetensors.index.json").unlink()
    write_checkpoint(models / "step-7").joinpath("config.json").unlink()
    write_checkpoint(models / "step-8").joinpath("model.safetensors").unlink()
    (write_checkpoint(models / "step-9") / "model.safetensors").write_bytes(b"\x40\0\0\0\0\0\0\0{")
    write_checkpoint(models / "step-10 (copy)")
    write_checkpoint(models / "other")
    path = write_fleet(tmp_path, matrix={"checkpoints": {"glob": "models/step-*"}})
    counted, waiting = names(path)
    assert counted == ["step-4", "step-30", "step-200", "step-1000"]
    assert waiting.pop("step-5") == "1 of 3 weight files are missing: model-00002-of-00003.safetensors ..."
    assert waiting.pop("step-6") == "parts of the weights are there, and no index of them yet"
    assert waiting.pop("step-7") == "no config.json yet"
    assert waiting.pop("step-8") == "no weights yet"
    assert "cut short" in waiting.pop("step-9")
    assert "'step-10 (copy)' has other characters" in waiting.pop("step-10 (copy)")
    assert not waiting


def test_a_checkpoint_is_called_by_what_the_pattern_leaves_open(tmp_path: Path) -> None:
    for run in ("r1", "r2"):
        write_checkpoint(tmp_path / "m" / run / "final")
    path = write_fleet(tmp_path, matrix={"checkpoints": {"glob": f"{tmp_path}/m/*/final"}})
    assert names(path)[0] == ["r1.final", "r2.final"]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"glob": "models/a"}, "no *, ? or [ in it"),
        ({"glob": "models/**/a"}, "** is not known here"),
        ({"glob": "models/a-*"}, "no such directory"),
        ({"watch": "models"}, "no such directory"),
    ],
)
def test_a_place_that_cannot_be_looked_at_is_refused(tmp_path: Path, wanted: Any, said: str) -> None:
    with pytest.raises(UserError, match=r"matrix\.checkpoints") as caught:
        names(write_fleet(tmp_path, matrix={"checkpoints": wanted}))
    assert said in str(caught.value)


def test_in_a_watched_directory_only_what_two_looks_find_the_same_counts(tmp_path: Path) -> None:
    models = tmp_path / "models"
    write_checkpoint(models / "a")
    write_checkpoint(models / "b", shards=2)
    fleet = load_fleet(write_fleet(tmp_path, matrix={"checkpoints": {"watch": "models", "match": "?"}}))
    first = find(fleet)
    assert first.checkpoints == ()
    assert set(first.waiting.values()) == {SEEN_ONCE}
    write_tensor(models / "b" / "model-00001-of-00002.safetensors", "written-again")
    write_checkpoint(models / "c")
    second = find(fleet, first.looks)
    assert [one.name for one in second.checkpoints] == ["a"]
    assert second.waiting == {f"{models}/b": CHANGED, f"{models}/c": SEEN_ONCE}
    third = find(fleet, second.looks)
    assert [one.name for one in third.checkpoints] == ["a", "b", "c"]


def submit(directory: Path, **keys: Any) -> Entered:
    fleet = load_fleet(write_fleet(directory, **keys))
    return enter(FleetDir(fleet.fleet_dir), fleet, find(fleet).checkpoints)


def test_a_fleet_submitted_again_is_the_same_fleet_with_more_cells_and_other_limits(tmp_path: Path) -> None:
    first = submit(tmp_path, way="parallel", matrix={"checkpoints": ["a", "b"]})
    assert (first.created, first.added) == (True, ["a+1"])
    same = submit(tmp_path, way="parallel", matrix={"checkpoints": ["a", "b"]})
    assert (same.created, same.changed, same.added, same.fleet) == (False, False, [], first.fleet)
    run = {**RUN, "limits": {"sweeps": 9}}
    more = submit(
        tmp_path, way="parallel", run=run, reap_after=60.0, matrix={"checkpoints": ["c", "a", "b"], "set": {}}
    )
    assert (more.added, more.fleet.id) == (["c"], first.fleet.id)
    assert [unit.name for unit in more.units] == ["a+1", "c"]
    stored = FleetDir(tmp_path / "fleet").fleet()
    assert stored == more.fleet
    assert stored.units()[0].spec.limits.sweeps == 9
    assert FleetDir(tmp_path / "fleet").unit("c").cells[0].checkpoint == "c"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"way": "parallel"}, "way: was 'jobs' and is 'parallel' now"),
        ({"matrix": {"checkpoints": ["a"]}}, "b: in the fleet, and not listed any more"),
        ({"matrix": {"checkpoints": ["a", {"name": "b", "path": "x"}]}}, "the checkpoint b was b, and is x now"),
        ({"run": {**RUN, "sampling": {"max_tokens": 5}}}, "asks something else now: sampling.max_tokens: 64 -> 5"),
        ({"matrix": {"checkpoints": ["a", "b"], "set": {"limits.sweeps": [1]}}}, "the fleet has the cell a, and the"),
    ],
)
def test_another_fleet_in_the_same_directory_is_refused_by_name(tmp_path: Path, keys: Any, said: str) -> None:
    submit(tmp_path, matrix={"checkpoints": ["a", "b"]})
    before = (tmp_path / "fleet" / "fleet.json").read_bytes()
    with pytest.raises(UserError) as caught:
        submit(tmp_path, **{"matrix": {"checkpoints": ["a", "b"]}, **keys})
    assert said in str(caught.value)
    assert (tmp_path / "fleet" / "fleet.json").read_bytes() == before


def test_what_is_no_fleet_directory_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no fleet here"):
        FleetDir.existing(tmp_path)
    (tmp_path / "fleet").mkdir()
    (tmp_path / "fleet" / "spec.yaml").write_text("", encoding="utf-8")
    with pytest.raises(UserError, match="holds a run, not a fleet"):
        submit(tmp_path, matrix={"checkpoints": ["a"]})
    for damage in ("", "[]", "{}", json.dumps({"format": 2}), json.dumps({"format": 1, "id": "x", "created": 0})):
        (tmp_path / "fleet" / "fleet.json").write_text(damage, encoding="utf-8")
        with pytest.raises(UserError, match=r"fleet\.json"):
            FleetDir.existing(tmp_path / "fleet").fleet()


def test_a_fleet_that_watches_may_begin_without_a_cell_and_keeps_what_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    matrix = {"checkpoints": {"watch": "models"}}
    assert submit(tmp_path, matrix=matrix).units == []
    write_checkpoint(tmp_path / "models" / "a")
    fleet = load_fleet(tmp_path / "fleet.yaml")
    found = find(fleet, find(fleet).looks)
    assert enter(FleetDir(fleet.fleet_dir), fleet, found.checkpoints).added == ["a"]
    assert [unit.name for unit in submit(tmp_path, matrix=matrix).units] == ["a"]  # one look: none counts yet


def test_a_fleet_in_object_storage_finds_its_checkpoints_there(tmp_path: Path) -> None:
    with served(tmp_path / "server") as bucket:
        for step in (1, 20):
            write_checkpoint(bucket.root / "models" / f"step-{step}", shards=2)
        write_checkpoint(bucket.root / "models" / "step-3", shards=2, without=0)
        run = {**RUN, "storage": {"endpoint": bucket.endpoint, "anonymous": True}}
        matrix = {"checkpoints": {"glob": bucket.url("models/step-*")}}
        fleet = load_fleet(write_fleet(tmp_path, run=run, fleet_dir=bucket.url("fleets/one"), matrix=matrix))
        found = find(fleet)
        assert [one.path for one in found.checkpoints] == [bucket.url("models/step-1"), bucket.url("models/step-20")]
        assert list(found.waiting) == [bucket.url("models/step-3")]
        place = FleetDir(fleet.fleet_dir, bucket.options)
        entered = enter(place, fleet, found.checkpoints)
        assert entered.units[0].spec.run_dir == bucket.url("fleets/one/cells/step-1")
        assert place.fleet() == entered.fleet
        assert not enter(place, fleet, found.checkpoints).changed


def test_wildcards_in_the_place_of_the_fleet_stand_for_themselves(tmp_path: Path) -> None:
    here = tmp_path / "run[1]*"
    write_checkpoint(here / "models" / "step-1")
    write_checkpoint(tmp_path / "run1" / "models" / "step-2")
    fleet = load_fleet(write_fleet(here, matrix={"checkpoints": {"glob": "models/step-*"}}))
    assert [(one.name, one.path) for one in find(fleet).checkpoints] == [("step-1", f"{here}/models/step-1")]
    assert find(fleet, known={f"{here}/models/step-1"}).checkpoints == ()
    watching = load_fleet(write_fleet(here, matrix={"checkpoints": {"watch": "models"}}))
    assert list(find(watching).looks) == [f"{here}/models/step-1"]
