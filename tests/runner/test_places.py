"""How a run opens and closes where its directory is a bucket, and where it has lost it to another driver."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from proctor.api import with_report
from proctor.results import write_records
from proctor.results.settle import done_ids
from proctor.rows import UserError
from proctor.runner.begin import begin
from proctor.runner.course import Sweep
from proctor.runner.exam import Exam
from proctor.runner.outcome import ExitCode, conclude
from proctor.runner.progress import Tracker
from proctor.runner.snapshot import quiet
from proctor.runner.status import read_status
from proctor.runner.stoppable import Stopped
from proctor.runner.watch import WatchedSweep
from proctor.storage.base import StorageError
from tests.runner.helpers import MakeSpec
from tests.storage.bucket import Bucket, served

ROWS = 40


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    with served(tmp_path / "server") as bucket:
        yield bucket


@pytest.fixture
def exam(make_spec: MakeSpec, bucket: Bucket) -> Exam:
    """A run in a bucket that has begun and has records of its first eight rows."""
    exam = Exam.of(make_spec(ROWS).model_copy(update=of_spec(make_spec, bucket)))
    begin(exam, fresh=False)
    write_eight(exam)
    return exam


def of_spec(make_spec: MakeSpec, bucket: Bucket, **storage: object) -> dict[str, object]:
    spec = make_spec(ROWS, storage={**bucket.block, "attempts": 1, **storage})
    return {"run_dir": bucket.url("run"), "storage": spec.storage}


def write_eight(exam: Exam) -> None:
    rows = [
        {"row_id": n, "checkpoint": "ck", "answer": "a", "sweep": 1, "finished_at": datetime.now(UTC)} for n in range(8)
    ]
    write_records(exam.run.results, pa.Table.from_pylist(rows, schema=exam.record_schema))


def lose_at_work(tracker: Tracker) -> None:
    tracker.lose("another driver has taken it")
    for _ in range(100_000_000):  # the sweep's thread, which is to be stopped
        pass


def test_a_run_opens_again_in_a_bucket_and_starts_anew_beside_what_it_left(exam: Exam, bucket: Bucket) -> None:
    (exam.run.folder.workspace("faults") / "counts").write_text("1")
    begin(exam, fresh=False)
    assert exam.run.spec() == exam.spec
    assert done_ids(exam.run.results, "ck") == BitMap64(range(8))
    begin(exam, fresh=True)
    assert done_ids(exam.run.results, "ck") == BitMap64()
    assert list(exam.run.folder.workspace("faults").iterdir()) == []
    (earlier,) = exam.run.folder.names("earlier")
    assert done_ids(exam.run.folder.below(f"earlier/{earlier}results"), "ck") == BitMap64(range(8))


def test_another_spec_is_refused_in_a_bucket_and_another_way_there_is_not(exam: Exam) -> None:
    way = exam.spec.storage.model_copy(update={"attempts": 3})
    begin(Exam.of(exam.spec.model_copy(update={"storage": way})), fresh=False)
    greedy = exam.spec.sampling.model_copy(update={"max_tokens": 3})
    with pytest.raises(UserError, match=r"^s3://bucket/run: the run here has another spec: sampling.max_tokens"):
        begin(Exam.of(exam.spec.model_copy(update={"sampling": greedy})), fresh=False)


def test_what_is_not_of_a_run_is_left_alone_in_a_bucket(make_spec: MakeSpec, bucket: Bucket) -> None:
    exam = Exam.of(make_spec(ROWS).model_copy(update=of_spec(make_spec, bucket)))
    exam.run.folder.write("results/mine.parquet", b"mine")
    with pytest.raises(UserError, match=r"^s3://bucket/run: results there, but not of a run"):
        begin(exam, fresh=True)
    assert bucket.keys() == ["run/results/mine.parquet"]


def test_status_is_read_from_a_bucket(exam: Exam) -> None:
    assert (read_status(exam.run).state, read_status(exam.run).done) == ("crashed", {"ck": 8})
    with exam.run.locked(print):
        assert read_status(exam.run).state == "running"


def test_rows_that_are_left_get_tombstones_in_a_bucket(exam: Exam) -> None:
    outcome = conclude(exam, Tracker(exam, quiet), interrupted=False)
    (ledger,) = outcome.reconciliation.ledgers
    assert (outcome.exit_code, outcome.held) == (ExitCode.INCOMPLETE, True)
    assert (ledger.answered, ledger.unanswered, ledger.missing) == (8, {"lost": ROWS - 8}, 0)
    assert exam.run.read("reconciliation")["exit_code"] == 3


def test_a_driver_that_has_lost_its_directory_leaves_everything_as_it_is(exam: Exam, bucket: Bucket) -> None:
    before = bucket.contents()
    tracker = Tracker(exam, quiet)
    tracker.lose("another driver has taken it")
    with pytest.raises(StorageError, match="another driver has taken it"):
        tracker.check_held()
    outcome = conclude(exam, tracker, interrupted=False)
    assert (outcome.exit_code, outcome.held) == (ExitCode.INCOMPLETE, False)
    assert outcome.reconciliation.ledgers[0].missing == ROWS - 8
    assert bucket.contents() == before


def test_losing_the_directory_ends_the_sweep_that_is_under_way(exam: Exam) -> None:
    tracker, watched = Tracker(exam, quiet), WatchedSweep(1)
    with pytest.raises(Stopped), tracker.sweeping(Sweep("ck", 1, 8), watched):
        lose_at_work(tracker)
    assert watched.verdict is not None
    assert watched.verdict.reason == "another driver has taken it"
    assert watched.verdict.swept.halted
    with pytest.raises(StorageError), tracker.sweeping(Sweep("ck", 2, 8), WatchedSweep(1)):
        pass


def test_a_close_that_cannot_be_written_says_so(exam: Exam, bucket: Bucket) -> None:
    bucket.refuse["PUT"] = 1.0
    tracker = Tracker(exam, quiet)
    outcome = conclude(exam, tracker, interrupted=False)
    assert outcome.exit_code is ExitCode.INCOMPLETE
    assert outcome.reasons["run"].startswith("tombstones of ck not written: cannot write s3://bucket/run/results/part-")
    assert "503 Service Unavailable" in outcome.reasons["run"]
    assert outcome.reconciliation.ledgers[0].missing == ROWS - 8


def test_a_report_that_cannot_be_written_says_why_and_costs_nothing_else(exam: Exam, bucket: Bucket) -> None:
    outcome = conclude(exam, Tracker(exam, quiet), interrupted=False)
    bucket.refuse_keys, bucket.refuse["PUT"] = "report.html", 1.0
    told = with_report(outcome)
    assert (told.report, told.exit_code) == (None, outcome.exit_code)
    said = told.reasons["report"]
    assert said.startswith(
        "not written: StorageError: cannot write s3://bucket/run/report.html: 503 Service Unavailable"
    )
    assert [event.message for event in exam.run.events() if event.kind == "report.failed"] == [said]
    bucket.refuse.clear()
    assert with_report(outcome).report == "s3://bucket/run/report.html"


@pytest.mark.parametrize("path", ["", "/results"])
def test_a_run_does_not_write_among_its_data_in_a_bucket(path: str, exam: Exam) -> None:
    source = exam.spec.source.model_copy(update={"path": f"{exam.run.location}{path}"})
    inside = Exam(exam.spec.model_copy(update={"source": source}), exam.run, exam.source, exam.task, exam.expected)
    with pytest.raises(UserError, match=r"the run directory and source\.path are one"):
        begin(inside, fresh=False)
