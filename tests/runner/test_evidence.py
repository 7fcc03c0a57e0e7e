"""Engine logs and stack dumps end up in the run directory, wherever it lies."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from proctor.rows import Event
from proctor.runner.blocks import PREPARED
from proctor.runner.evidence import Evidence
from proctor.runner.exam import Exam
from proctor.runner.infer import Infer
from proctor.runner.prepare import PrepareSetup, prepare
from proctor.storage.folder import open_folder
from tests.runner.helpers import MakeSpec
from tests.storage.bucket import Bucket, served


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    with served(tmp_path / "server") as bucket:
        yield bucket


class Ear:
    """Hears what an actor tells its hub."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def emit(self, event: Event) -> None:
        self.kinds.append(event.kind)

    def pulse(self, engine: str, rows: int) -> None:
        pass


def prepared(exam: Exam) -> pa.Table:
    (group,) = exam.source.groups(exam.expected, 1000)
    (block,) = exam.source.read(group)
    setup = PrepareSetup(exam.task, exam.spec.source.columns, exam.spec.limits.row_seconds)
    return prepare(block, setup=setup).cast(PREPARED)


@pytest.mark.slow
def test_the_dump_of_a_stall_and_the_engines_log_are_taken_into_the_bucket(make_spec: MakeSpec, bucket: Bucket) -> None:
    faults = [{"kind": "stall", "rows": [1], "times": 1}]
    spec = make_spec(4, engine={"faults": faults}, limits={"stall_seconds": 1.0}, storage=bucket.block)
    exam = Exam.of(spec.model_copy(update={"run_dir": bucket.url("run")}))
    exam.run.create(exam.spec)
    ear = Ear()
    actor = Infer(exam.engine_setup("ck"), ear)  # type: ignore[arg-type]
    answers = actor(prepared(exam))
    assert answers["answer"].to_pylist() == [f"answer {n}" for n in range(4)]
    assert "engine.stalled" in ear.kinds
    deadline = time.monotonic() + 60
    while len(exam.run.folder.names("stalls")) < 2:
        assert time.monotonic() < deadline, exam.run.folder.names()
        time.sleep(0.1)
    actor.__del__()
    assert ear.kinds[-1] == "engine.closed"
    space = exam.run.folder.workspace("stalls")
    assert sorted(path.name for path in space.iterdir()) == exam.run.folder.names("stalls")
    for path in space.iterdir():
        assert exam.run.folder.read(f"stalls/{path.name}") == path.read_bytes()
    exam.run.folder.clear_workspaces()


def test_an_engine_does_not_wait_for_storage_that_is_down(bucket: Bucket) -> None:
    bucket.refuse = {"PUT": 1.0, "GET": 1.0}
    evidence = Evidence(open_folder(bucket.url("run"), bucket.options))
    (evidence.directory / "a.log").write_text("x")
    began = time.monotonic()
    evidence.heed(Event("engine.closed"))
    assert time.monotonic() - began < 30
    assert bucket.keys() == []
