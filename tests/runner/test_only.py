"""Runs that keep to a list of rows."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path

import duckdb
import pytest
from pyroaring import BitMap64

from proctor.api import run
from proctor.paired.comparing import Wish, compare
from proctor.paired.sides import open_run
from proctor.results import RunDir
from proctor.results.chosen import parse_ids
from proctor.rows import UserError
from proctor.runner.begin import begin, check_directory
from proctor.runner.exam import Exam
from proctor.runner.only import read_list, row_list
from proctor.runner.plan import make_plan
from proctor.runner.status import read_status
from tests.runner.helpers import MakeSpec


class TestTheList:
    def test_ids_stand_one_a_line_in_any_order_and_blank_lines_count_for_nothing(self) -> None:
        found = parse_ids([b"7\n", b"\n", b" 3 \r\n", b"7\n", b"0"], "ids")
        assert (list(found.rows), found.repeated) == ([0, 3, 7], 1)

    @pytest.mark.parametrize("line", [b"k7", b"-1", b"1.5", b"1,2", b"\xff\xfe", b"9" * 19])
    def test_what_is_no_row_id_is_told_with_its_line(self, line: bytes) -> None:
        with pytest.raises(UserError, match=r"line 2 is no row id: .* \[ids\]|ids: line 2 is no row id|line 2"):
            parse_ids([b"1\n", line], "ids")

    def test_an_empty_list_is_none(self) -> None:
        with pytest.raises(UserError, match="names no row"):
            parse_ids([b"\n"], "ids")
        with pytest.raises(UserError, match="names no row"):
            row_list([])
        with pytest.raises(UserError, match="not row ids"):
            row_list([-1])

    def test_it_is_read_from_a_file_or_from_standard_input(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "ids.txt").write_text("4\n2\n")
        assert read_list(str(tmp_path / "ids.txt")).rows == BitMap64([2, 4])
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"5\n")))
        assert read_list("-").rows == BitMap64([5])
        with pytest.raises(UserError, match="cannot be read"):
            read_list(str(tmp_path))
        with pytest.raises(UserError, match="--only: it names no file"):
            read_list("")
        monkeypatch.setattr("sys.stdin", None)
        with pytest.raises(UserError, match=r"standard input: cannot be read: it is closed"):
            read_list("-")

    def test_what_other_programs_write_is_read_and_what_has_no_lines_is_refused_at_once(self, tmp_path: Path) -> None:
        (tmp_path / "ids.txt").write_bytes(b"\xef\xbb\xbf7\r\n3\r\n")
        assert read_list(str(tmp_path / "ids.txt")).rows == BitMap64([3, 7])
        (tmp_path / "ids.txt").write_bytes(b"7\n\xef\xbb\xbf3\n")
        with pytest.raises(UserError, match="line 2 is no row id"):
            read_list(str(tmp_path / "ids.txt"))
        with pytest.raises(UserError, match="line 1 is no row id"):
            read_list("/dev/zero")


class TestTheRows:
    def test_a_source_of_chosen_rows_has_them_alone_and_travels(self, make_spec: MakeSpec) -> None:
        exam = Exam.of(make_spec(20), BitMap64([3, 11]))
        source = pickle.loads(pickle.dumps(exam.source))  # as Ray sends it
        assert (source.expected(), exam.expected, exam.source_rows) == (BitMap64([3, 11]), BitMap64([3, 11]), 20)
        blocks = [block for group in source.groups(source.expected(), 8) for block in source.read(group)]
        assert [row for block in blocks for row in block["row_id"].to_pylist()] == [3, 11]
        assert source.fingerprint() == Exam.of(make_spec(20)).source.fingerprint()

    def test_ids_that_the_source_lacks_are_named_before_anything_starts(self, make_spec: MakeSpec) -> None:
        spec = make_spec(20)
        with pytest.raises(UserError, match=r"does not have rows 20, 21, 22, 23, 24 and 2 more"):
            Exam.of(spec, BitMap64(range(18, 27)))
        assert not Path(spec.run_dir).exists()

    def test_a_plan_counts_them_alone(self, make_spec: MakeSpec) -> None:
        made = make_plan(Exam.of(make_spec(20, stream={"block_rows": 2}), BitMap64([1, 2, 3, 4, 9])))
        assert (made.rows, made.source_rows, made.todo, made.blocks) == (5, 20, {"ck": 5}, 3)


class TestTheDirectory:
    def test_it_keeps_the_list_and_a_resume_goes_on_with_it(self, make_spec: MakeSpec) -> None:
        spec = make_spec(20)
        begin(Exam.of(spec, BitMap64([3, 11])), fresh=False)
        assert (Path(spec.run_dir) / "only.txt").read_text() == "3\n11\n"
        again = Exam.of(spec)
        check_directory(again, fresh=False)
        assert again.only == again.expected == BitMap64([3, 11])
        begin(again, fresh=False)
        facts = again.run.source()
        assert facts is not None
        assert (facts.rows, facts.expected) == (20, 2)
        check_directory(Exam.of(spec, BitMap64([11, 3])), fresh=False)

    def test_another_list_is_refused_in_one_line(self, make_spec: MakeSpec) -> None:
        spec = make_spec(20)
        begin(Exam.of(spec, BitMap64([3, 11])), fresh=False)
        with pytest.raises(UserError, match="another list of rows: 1 of its 2 are not on this one, 2 are new"):
            check_directory(Exam.of(spec, BitMap64([3, 4, 5])), fresh=False)
        fresh = Exam.of(spec, fresh=True)
        begin(fresh, fresh=True)
        assert (fresh.only, len(fresh.expected), fresh.run.chosen()) == (None, 20, None)
        assert not (Path(spec.run_dir) / "only.txt").exists()
        with pytest.raises(UserError, match="the run here is of all rows of the source"):
            check_directory(Exam.of(spec, BitMap64([3])), fresh=False)

    @pytest.mark.parametrize("text", ["3\n11\n12\n", None])
    def test_a_list_that_was_changed_or_lost_is_never_taken_for_another(
        self, make_spec: MakeSpec, text: str | None
    ) -> None:
        spec = make_spec(20)
        begin(Exam.of(spec, BitMap64([3, 11])), fresh=False)
        file = Path(spec.run_dir) / "only.txt"
        file.unlink() if text is None else file.write_text(text)
        with pytest.raises(UserError, match=r"only\.txt"):
            Exam.of(spec)

    def test_facts_that_tell_another_number_of_rows_are_not_believed(self, make_spec: MakeSpec) -> None:
        spec = make_spec(20)
        begin(Exam.of(spec, BitMap64([3, 11])), fresh=False)
        file = Path(spec.run_dir) / "source.json"
        facts = json.loads(file.read_text())
        facts["only"]["rows"] = 3
        file.write_text(json.dumps(facts))
        with pytest.raises(UserError, match="not the list of rows"):
            Exam.of(spec)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("local_ray")
def test_a_run_of_some_rows_is_whole_resumes_and_compares_with_a_run_of_all(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    patient = {"stall_seconds": 120.0, "load_seconds": 240.0}  # nothing stalls here, however busy the machine is
    spec = make_spec(40, engine={"faults": [{"kind": "blank", "rows": [11]}]}, limits=patient)
    outcome = run(spec, only=[5, 11, 39])
    (ledger,) = outcome.reconciliation.ledgers
    assert (outcome.exit_code, ledger.expected, ledger.answered, ledger.errors) == (2, 3, 2, {"infer.empty": 1})
    with duckdb.connect() as connection:
        ids = outcome.run.records(connection).order("row_id").project("row_id").fetchall()
    assert ids == [(5,), (11,), (39,)]
    assert read_status(outcome.run).total == 3
    again = run(spec)  # nothing is left to do, and nothing else is begun
    assert again.reconciliation.ledgers[0].expected == 3
    with pytest.raises(UserError, match="another list of rows"):
        run(spec, only=[5])
    whole = run(make_spec(40, limits=patient).model_copy(update={"run_dir": str(tmp_path / "whole")}))
    assert whole.reconciliation.ledgers[0].expected == 40
    (found,) = compare([open_run(text).sides[0] for text in (str(tmp_path / "whole"), spec.run_dir)], Wish())
    assert found.account.expected == (3, 3)
    assert sum(line.rows for line in found.account.rows) == 3
    assert found.account.nowhere == 0
    assert "the 3 rows that were asked of both are compared" in found.remarks[0]
    assert json.loads((RunDir(spec.run_dir).root / "source.json").read_text())["only"]["rows"] == 3
