"""Audits that belong to a run: where they lie, what decides whether one is made again, and mistakes told early."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

import pytest

from proctor.audit import Audit, Lab, read_audit, standing, write_audit
from proctor.audit.bench import EngineOrder
from proctor.audit.places import local_audit
from proctor.audit.standing import (
    Standing,
    audited_checkpoint,
    check_standing,
    conduct_audit,
    conduct_standing,
    key_of,
    read_standing,
    write_standing,
)
from proctor.rows import UserError
from proctor.spec import RunSpec, build_spec
from proctor.storage.folder import LocalFolder, open_folder
from tests.audit.planted import in_process, spec_of
from tests.storage.bucket import Bucket, served

EFFECT = {"batch": 3, "nats": 0.5}


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    with served(tmp_path / "server") as bucket:
        yield bucket


def spec(folder: Path, *effects: dict[str, Any], **parts: Any) -> RunSpec:
    plain = spec_of(folder, *effects, rows=6, batch_size=4, audit={"arms": ["repeat", "batch"]})
    for name, part in parts.items():
        plain[name] = {**plain.get(name, {}), **part}
    return build_spec(plain)


def test_a_standing_audit_lies_whole_in_a_bucket(tmp_path: Path, bucket: Bucket) -> None:
    run = open_folder(bucket.url("run"), bucket.options)
    assert read_standing(run) is None
    told: list[str] = []
    found = conduct_standing(
        spec(tmp_path, EFFECT), "planted", "k", run, lambda sitting, *_: told.append(sitting.arm), start=in_process
    )
    assert found == read_standing(run)
    assert (found.kind, found.exit_code, found.checkpoint, found.key, found.failure) == (
        "isolated",
        4,
        "planted",
        "k",
        "",
    )
    assert {"baseline", "repeat", "batch=4"} <= set(told)
    files = ["answers.parquet", "audit.json", "replayed.parquet", "tokens.parquet", "verdict.json"]
    assert run.names("audit") == files
    assert read_audit(local_audit(run.below("audit"))).verdict.sentence == found.sentence


def test_an_earlier_audit_is_put_aside_and_not_lost(tmp_path: Path) -> None:
    run = LocalFolder(tmp_path / "run")
    first = conduct_standing(spec(tmp_path), "planted", "1", run, start=in_process)
    second = conduct_standing(spec(tmp_path, EFFECT), "planted", "2", run, start=in_process)
    assert (first.exit_code, second.exit_code) == (0, 4)
    assert read_standing(run) == second
    (stamp,) = run.names("earlier")
    assert read_standing(run.below(f"earlier/{stamp.rstrip('/')}")) == first


def test_an_audit_by_hand_counts_for_a_run_of_the_same_spec(tmp_path: Path) -> None:
    asked = spec(tmp_path, EFFECT)
    audit = conduct_audit(asked, None, tmp_path / "run" / "audit", start=in_process)
    kept = read_standing(LocalFolder(tmp_path / "run"))
    assert kept is not None
    assert (kept.sentence, kept.exit_code) == (audit.verdict.sentence, audit.exit_code)
    from proctor.sources.registry import source_of

    assert kept.key == key_of(asked, source_of(asked).fingerprint(), "planted")


@pytest.mark.parametrize(
    ("part", "same"),
    [
        ({"engine": {"replicas": 3}}, True),
        ({"engine": {"faults": [{"kind": "crash", "rows": [1]}]}}, True),
        ({"stream": {"block_rows": 9}}, True),
        ({"limits": {"sweeps": 9}}, True),
        ({"engine": {"batch_size": 8}}, False),
        ({"engine": {"cpus_per_replica": 2}}, False),
        ({"audit": {"sample": 5}}, False),
        ({"sampling": {"max_tokens": 7}}, False),
        ({"images": {"max_pixels": 70_000}}, False),
        ({"task": {"system": "Be brief."}}, False),
    ],
)
def test_what_decides_that_an_audit_is_made_again(part: dict[str, Any], same: bool, tmp_path: Path) -> None:
    before, after = spec(tmp_path), spec(tmp_path, **part)
    assert (key_of(before, "data", "planted") == key_of(after, "data", "planted")) is same


def test_other_data_and_another_checkpoint_are_another_audit(tmp_path: Path) -> None:
    asked = spec(tmp_path, engine={"checkpoints": ["planted", "other"]})
    keys = {key_of(asked, source, name) for source in ("a", "b") for name in ("planted", "other")}
    assert len(keys) == 4


def test_mistakes_are_told_before_anything_runs(tmp_path: Path) -> None:
    check_standing(spec(tmp_path))
    check_standing(build_spec({key: value for key, value in spec_of(tmp_path).items() if key != "audit"}))
    with pytest.raises(
        UserError, match=r"audit\.arms: there is no knob 'bacth' at this engine \(there are: repeat, batch"
    ):
        check_standing(spec(tmp_path, audit={"arms": ["bacth"]}))
    with pytest.raises(UserError, match="no checkpoint 'x' in this spec"):
        audited_checkpoint(spec(tmp_path), "x")
    assert audited_checkpoint(spec(tmp_path)).name == "planted"


def test_a_verdict_that_is_not_understood_is_none(tmp_path: Path) -> None:
    run = LocalFolder(tmp_path)
    write_standing(run, Standing.failed("k", "planted", "no room"))
    kept = read_standing(run)
    assert kept is not None
    assert (kept.failure, kept.exit_code, kept.sentence) == ("no room", 1, "The audit failed: no room")
    (tmp_path / "audit" / "verdict.json").write_text("{")
    assert read_standing(run) is None


def never(order: EngineOrder) -> NoReturn:
    raise AssertionError("an engine was started")


@pytest.mark.parametrize("place", ["file", "file/below", "gone", "gone/below"])
def test_a_place_that_cannot_be_written_is_told_before_any_engine_starts(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("somebody's")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere" / "at all")
    with pytest.raises(UserError, match=r"cannot be written: .*--out") as told:
        conduct_audit(spec(tmp_path), None, tmp_path / place, start=never)
    assert told.value.where == str(tmp_path / place)
    assert (tmp_path / "file").read_text() == "somebody's"


@pytest.mark.parametrize("room", [True, False])
def test_an_audit_that_cannot_be_written_at_the_end_is_kept_elsewhere(tmp_path: Path, room: bool) -> None:
    place, elsewhere = tmp_path / "run" / "audit", tmp_path / "elsewhere"
    elsewhere.mkdir()

    def write(folder: Path, audit: Audit, lab: Lab) -> None:
        if folder == place or not room:
            raise UserError("cannot be written: No space left on device", where=str(folder))
        write_audit(folder, audit, lab)

    with (
        patch.object(standing, "write_audit", write),
        patch.object(tempfile, "tempdir", str(elsewhere)),
        pytest.raises(UserError, match="No space left on device") as told,
    ):
        conduct_audit(spec(tmp_path, EFFECT), None, place, start=in_process)
    kept = [folder for folder in elsewhere.iterdir() if "rescued" in folder.name]
    if room:
        assert read_audit(kept[0]).verdict.causes == (("batch",),)
        assert str(kept[0]) in str(told.value)
    else:
        assert kept == []
        assert "audit again" in str(told.value)
