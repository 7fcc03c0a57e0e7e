"""Two audits beside each other: what changed, what the same questions got, and what cannot be told."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from proctor.audit import diff_audits, read_audit, write_audit
from proctor.audit.diff import flat_fingerprint
from proctor.audit.store import ANSWERS, AUDIT, TOKENS
from proctor.rows import UserError
from tests.audit.planted import audited

FROM_3 = {"batch": 3, "nats": 0.5}
ARMS = {"arms": ["repeat", "batch"]}


def stored(folder: Path, name: str, *effects: dict[str, Any], audit: dict[str, Any] | None = None, **more: Any) -> Path:
    """An audit of an engine with these effects, at `folder`/`name`."""
    (folder / f"{name}-data").mkdir()
    settings = {"rows": 8, "batch_size": 4, **more}
    write_audit(folder / name, *audited(folder / f"{name}-data", *effects, audit={**ARMS, **(audit or {})}, **settings))
    return folder / name


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stored(tmp_path_factory.mktemp("old"), "old", FROM_3)


def test_the_same_engine_again_is_no_difference(old: Path, tmp_path: Path) -> None:
    found = diff_audits(old, stored(tmp_path, "new", FROM_3))
    assert found.exit_code == 0
    assert found.sentence == "No difference: 8 answers are the same, bit for bit, and so are the effects found."
    assert (found.changes, found.effects, found.thresholds, found.unsteady) == ((), (), (), ())
    assert found.questions == "the same 8 questions"
    assert found.arm.layer == "version"
    assert not any(arm.moved for arm in found.arms)


def test_another_engine_is_told_by_its_answers(old: Path, tmp_path: Path) -> None:
    found = diff_audits(old, stored(tmp_path, "new", FROM_3, {"nats": 2.0, "every": 2}))
    assert found.exit_code == 4
    assert "the answers differ (" in found.sentence
    equal = found.answers.text_equal
    assert equal is not None
    assert (equal.of, found.answers.rows) == (8, 8), "one round says it all where both agree with themselves"
    flips = found.answers.flips
    assert len(flips) == equal.of - equal.hits > 0
    assert {flip.row_id % 2 for flip in flips} == {0}
    margins = [flip.margin for flip in flips]
    assert all(margin is not None for margin in margins), "the old audit's tokens say how near a tie was"
    assert margins == sorted(margins, reverse=True)  # type: ignore[type-var]
    assert {change.what for change in found.changes} == {"knob numerics.effects"}
    assert found.effects == ()


def test_effects_that_come_and_go(old: Path, tmp_path: Path) -> None:
    clean = stored(tmp_path, "clean")
    gone, new = diff_audits(old, clean), diff_audits(clean, old)
    assert gone.effects == (("batch", "gone"),)
    assert new.effects == (("batch", "new"),)
    assert (gone.exit_code, new.exit_code) == (4, 4)
    assert "the effect of batch is gone" in gone.sentence
    assert not gone.answers.differs, "alone, both give the same"
    assert {arm.arm for arm in gone.arms if arm.moved} >= {"batch=4"}


def test_what_was_not_tried_is_neither_new_nor_gone(old: Path, tmp_path: Path) -> None:
    blind = stored(tmp_path, "blind", audit={"arms": ["repeat"]})
    found = diff_audits(old, blind)
    assert found.effects == (("batch", "not tried in the new audit"),)
    assert found.exit_code == 0


def test_a_threshold_that_moved(old: Path, tmp_path: Path) -> None:
    found = diff_audits(old, stored(tmp_path, "new", {"batch": 2, "nats": 0.5}))
    (moved,) = found.thresholds
    assert (moved.what, moved.old, moved.new) == ("batch", "from 3 on, not up to 2", "from 2 on, not up to 1")
    assert found.exit_code == 4


def test_noise_is_said_before_anything_is_read_from_it(old: Path, tmp_path: Path) -> None:
    noise = {"noise": True, "nats": 1.0}
    noisy, other = stored(tmp_path, "noisy", noise), stored(tmp_path, "other", noise, audit={"seed": 4})
    one, both = diff_audits(old, noisy), diff_audits(noisy, other)
    assert (one.unsteady, one.exit_code) == (("new",), 4)
    assert "the new engine does not agree with itself" in one.sentence
    assert one.effects == (("batch", "not tried in the new audit"),), "noise hides what a knob does"
    assert (both.unsteady, both.exit_code) == (("old", "new"), 3)
    assert both.sentence.startswith("Could not tell")


def test_only_what_both_asked_is_compared(old: Path, tmp_path: Path) -> None:
    more = stored(tmp_path, "more", FROM_3, rows=12)
    found = diff_audits(old, more)
    assert found.questions == "8 questions in common, of 8 in the old audit and 12 in the new one"
    assert found.answers.rows == 8
    assert found.exit_code == 0


def test_other_questions_are_not_compared(old: Path, tmp_path: Path) -> None:
    audit, lab = audited(tmp_path, rows=8, batch_size=4, audit=ARMS)
    others = dict.fromkeys(audit.fingerprint.questions, "0")
    asked = replace(audit, fingerprint=replace(audit.fingerprint, questions=others))
    write_audit(tmp_path / "asked", asked, lab)
    with pytest.raises(UserError, match="rows of the same ids, asked otherwise"):
        diff_audits(old, tmp_path / "asked")
    write_audit(tmp_path / "none", replace(asked, fingerprint=replace(asked.fingerprint, questions={})), lab)
    with pytest.raises(UserError, match="no row in common"):
        diff_audits(old, tmp_path / "none")


def test_a_fingerprint_is_flat_and_names_what_differs(old: Path, tmp_path: Path) -> None:
    audit, lab = audited(tmp_path, FROM_3, rows=8, batch_size=4, audit=ARMS)
    other = replace(
        audit.fingerprint, versions={**audit.fingerprint.versions, "vllm": "0.32.0"}, hardware={"gpus": "H200"}
    )
    write_audit(tmp_path / "other", replace(audit, fingerprint=other), lab)
    found = {change.what: (change.old, change.new) for change in diff_audits(old, tmp_path / "other").changes}
    assert found["vllm"] == ("", "0.32.0")
    assert found["hardware gpus"] == (audit.fingerprint.hardware["gpus"], "H200")
    assert all(isinstance(value, str) for value in flat_fingerprint(audit).values())


@pytest.mark.parametrize("content", [b"PAR1 and no more", None])
@pytest.mark.parametrize("name", [ANSWERS, TOKENS])
def test_a_damaged_or_foreign_file_is_one_clear_line(
    old: Path, tmp_path: Path, name: str, content: bytes | None
) -> None:
    new = stored(tmp_path, "new", FROM_3, {"nats": 2.0, "every": 2})
    broken = tmp_path / "broken"
    shutil.copytree(old, broken)
    if content is None:
        pq.write_table(pa.table({"row_id": [1]}), broken / name)
    else:
        (broken / name).write_bytes(content)
    with pytest.raises(UserError, match="cannot be read") as told:
        diff_audits(broken, new)
    assert told.value.where == str(broken / name)


def test_an_audit_without_a_baseline_is_not_comparable(old: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    shutil.copytree(old, empty)
    (empty / AUDIT).write_bytes(msgspec.json.encode(replace(read_audit(old), arms=())))
    for pair in ((old, empty), (empty, old)):
        with pytest.raises(UserError, match="not comparable: no baseline"):
            diff_audits(*pair)
