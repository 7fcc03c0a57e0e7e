"""What an audit leaves on disk: whole or not there, read back as it was, found in a run directory and in a bucket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import proctor.audit
from proctor.audit import Audit, Lab, read_answers, read_audit, write_audit
from proctor.audit.places import audit_folder, local_audit, place_for
from proctor.audit.store import ANSWERS, AUDIT, TOKENS
from proctor.rows import UserError
from proctor.spec import build_spec
from proctor.storage.folder import open_folder
from tests.audit.planted import audited, spec_of
from tests.storage.bucket import Bucket, served


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Audit, Lab]:
    """An audit with an effect from batches of 3 on."""
    return audited(tmp_path_factory.mktemp("made"), {"batch": 3, "nats": 0.5}, rows=6, batch_size=4)


@pytest.fixture
def stored(made: tuple[Audit, Lab], tmp_path: Path) -> Path:
    write_audit(tmp_path / "audit", *made)
    return tmp_path / "audit"


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    with served(tmp_path / "server") as bucket:
        yield bucket


def test_public_names_are_there() -> None:
    assert sorted(proctor.audit.__all__) == dir(proctor.audit) == sorted(proctor.audit._HOMES)
    for name in proctor.audit.__all__:
        assert getattr(proctor.audit, name) is not None
    with pytest.raises(AttributeError, match="'nothing'"):
        proctor.audit.nothing  # noqa: B018


def test_an_audit_is_read_back_as_it_was(made: tuple[Audit, Lab], stored: Path) -> None:
    audit, _ = made
    assert read_audit(stored) == audit
    assert read_audit(stored.parent) == audit, "a run directory that holds it is as good"
    assert json.loads((stored / AUDIT).read_bytes())["verdict"]["sentence"] == audit.verdict.sentence
    assert set(audit.fingerprint.questions) == {str(row) for row in audit.design.rows}
    assert len(set(audit.fingerprint.questions.values())) == len(audit.design.rows)


def test_every_answer_and_every_compared_token_is_there(made: tuple[Audit, Lab], stored: Path) -> None:
    audit, lab = made
    found = list(read_answers(stored))
    kept = [one for arm in lab.arms for one in lab.observations(arm) if lab.has_sat(arm)]
    assert [(one.arm, one.round, one.row_id, one.text, one.logprobs) for one in found] == [
        (one.arm, one.round, one.row_id, one.text, one.logprobs) for one in kept
    ]
    tokens = pq.read_table(stored / TOKENS).to_pylist()
    compared = {(row["arm"], row["against"]) for row in tokens}
    assert compared == {(s.arm.name, s.arm.against) for s in audit.arms if s.comparison and s.arm.name != "baseline"}
    effect = audit.effects[0]
    mine = [row for row in tokens if row["arm"] == effect.arm]
    share = lab.comparison(effect.arm).logprob_equal
    assert share is not None
    assert sum(row["equal"] is True for row in mine) == share.hits


def test_an_audit_cut_short_is_not_there(
    made: tuple[Audit, Lab], stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("proctor.audit.store.pq.ParquetWriter", full)
    with pytest.raises(UserError, match="No space left on device"):
        write_audit(stored, *made)
    with pytest.raises(UserError, match="no audit here"):
        read_audit(stored)


def test_what_is_no_audit_is_refused(stored: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no audit here \(no audit\.json\)"):
        read_audit(tmp_path / "nothing")
    (stored / AUDIT).write_text('{"checkpoint": 3}')
    with pytest.raises(UserError, match="not an audit that this version reads"):
        read_audit(stored)
    (stored / ANSWERS).write_bytes(b"PAR1")
    with pytest.raises(UserError, match=r"answers\.parquet: cannot be read"):
        list(read_answers(stored))


def test_an_audit_in_a_bucket_is_read_from_there(made: tuple[Audit, Lab], stored: Path, bucket: Bucket) -> None:
    run = open_folder(bucket.url("run"), bucket.options)
    for name in (AUDIT, ANSWERS, TOKENS):
        run.write(f"audit/{name}", (stored / name).read_bytes())
    folder = audit_folder(run)
    assert folder.location == bucket.url("run/audit")
    files = local_audit(folder)
    assert read_audit(files) == made[0]
    assert sum(1 for _ in read_answers(files)) == sum(1 for _ in read_answers(stored))
    with pytest.raises(UserError, match="no audit here"):
        audit_folder(run.below("elsewhere"))


def test_where_an_audit_is_written(tmp_path: Path, stored: Path) -> None:
    plain = spec_of(tmp_path)
    spec = build_spec(plain)
    assert place_for(spec, None) == Path(spec.run_dir) / "audit"
    assert place_for(spec, str(tmp_path / "new")) == tmp_path / "new"
    with pytest.raises(UserError, match="there is an audit here already"):
        place_for(spec, str(stored))
    with pytest.raises(UserError, match="--out"):
        place_for(build_spec({**plain, "run_dir": "s3://bucket/run"}), None)
    with pytest.raises(UserError, match="not a local directory"):
        place_for(spec, "s3://bucket/audit")


def test_tokens_are_there_even_if_none_were_compared(tmp_path: Path) -> None:
    """A file of an earlier audit in the same place would tell of other tokens, and a query needs its columns."""
    write_audit(tmp_path / "out", *audited(tmp_path, rows=4, text_only=True, audit={"arms": ["repeat"]}))
    table = pq.read_table(tmp_path / "out" / TOKENS)
    assert {"arm", "equal", "difference"} <= set(table.column_names)
    assert set(table["token"].to_pylist()) <= {None}
