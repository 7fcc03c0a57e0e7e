"""Rows of several sides: every row once, by what became of it, regressions first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from proctor.paired.comparing import Wish
from proctor.paired.sides import Side
from proctor.results import RunDir
from proctor.rows import UserError
from proctor.view.browse.compare import Beside, Place, Row, Wanted, count, counts, given_side, one, page, put_beside
from proctor.view.browse.filters import FilterError
from tests.paired.made import make_run

BASE = ["yes", "yes", "no", "no", "yes", "no", ("infer.crashed", "died"), None, "yes", "yes"]
OTHER = ["yes", "no", "yes", "nay", ("infer.empty", "?"), "no", ("infer.crashed", "died"), None, None, "yes"]
THIRD = ["no", "yes", "no", "no", "yes", "no", "no", "no", "yes", "yes"]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> list[Side]:
    run = make_run(tmp_path_factory.mktemp("beside") / "run", {"one": BASE, "two": OTHER, "three": THIRD})
    return [given_side(run, name, f"run:{name}")[0] for name in ("one", "two", "three")]


@pytest.fixture(scope="module")
def pair(sides: list[Side]) -> Iterator[Beside]:
    with put_beside(sides[:2], Wish(limit=0)) as beside:
        yield beside


def keys(beside: Beside, wanted: Wanted) -> list[str]:
    return [row.place.key for row in page(beside, wanted, 50).rows]


def test_every_row_stands_once_and_regressions_first(pair: Beside) -> None:
    assert counts(pair) == {
        "regression": 3,
        "improvement": 1,
        "different": 1,
        "missing": 0,
        "same": 4,
        "changed": 5,
        "all": 9,
        "absent": 1,
    }
    assert keys(pair, Wanted()) == ["1", "4", "8", "2", "3"]
    assert keys(pair, Wanted("all")) == ["1", "4", "8", "2", "3", "0", "5", "6", "9"]
    assert keys(pair, Wanted("absent")) == ["8"]  # row 7 has no record anywhere: the account tells of it
    assert pair.found[0].account.nowhere == 1
    row = page(pair, Wanted("regression"), 50).rows[1]
    before, after = row.cells
    assert (row.kind, row.sample_id, row.target) == ("regression", "s4", '"yes"')
    assert (before.text, before.fate, before.kind) == ("yes", "scored", "")
    assert (after.text, after.error, after.kind, after.change) == ("?", "infer.empty", "regression", None)
    assert page(pair, Wanted("absent"), 50).rows[0].cells[1].row_id is None


@pytest.mark.parametrize("size", [1, 2, 4])
def test_pages_follow_each_other_both_ways(pair: Beside, size: int) -> None:
    wanted, forwards, at = Wanted("all"), list[list[str]](), page(pair, Wanted("all"), size)
    places = [at]
    while at.next is not None:
        at = page(pair, wanted, size, after=Place.from_text(at.next.to_text()))
        places.append(at)
    forwards = [[row.place.key for row in each.rows] for each in places]
    assert [key for each in forwards for key in each] == keys(pair, wanted)
    back = at.previous
    assert back is not None
    assert [row.place.key for row in page(pair, wanted, size, before=back).rows] == forwards[-2]


def test_a_row_by_itself_knows_its_scores_and_its_neighbours(pair: Beside) -> None:
    row, previous, following = one(pair, Wanted(), "8")
    assert (previous, following) == ("4", "2")
    assert row is not None
    assert row.cells[0].scores == {"prediction": "yes", "correct": True}
    assert one(pair, Wanted(), "no such row") == (None, None, None)


def test_the_filter_language_asks_each_side(pair: Beside) -> None:
    assert keys(pair, Wanted("all", "a.correct and not b.correct")) == ["1", "4", "8"]
    assert keys(pair, Wanted("all", 'b.error.kind = "infer.empty"')) == ["4"]
    assert keys(pair, Wanted("all", "a.answer = b.answer and a.correct = false")) == ["5"]
    assert keys(pair, Wanted("changed", 'kind = "improvement" or row_id = 3')) == ["2", "3"]
    assert count(pair, Wanted("all", 'sample_id in ("s0", "s5")')) == 2
    with pytest.raises(FilterError, match=r"did you mean b\.answer"):
        count(pair, Wanted("all", "b.anser is null"))
    with pytest.raises(FilterError, match=r"no column 'c\.answer'"):
        count(pair, Wanted("all", "c.answer is null"))


def test_three_sides_are_each_beside_the_first(sides: list[Side]) -> None:
    with put_beside(sides, Wish(limit=0)) as beside:
        assert [(found.a, found.b) for found in beside.found] == [("run:one", "run:two"), ("run:one", "run:three")]
        rows = {row.place.key: row for row in page(beside, Wanted("all"), 50).rows}
        assert {key: [cell.kind for cell in row.cells[1:]] for key, row in rows.items()} == {
            "0": ["same", "regression"],
            "1": ["regression", "same"],
            "2": ["improvement", "same"],
            "3": ["different", "same"],
            "4": ["regression", "same"],
            "5": ["same", "same"],
            "6": ["same", "improvement"],
            "7": ["same", "improvement"],
            "8": ["regression", "same"],
            "9": ["same", "same"],
        }
        assert keys(beside, Wanted("all", "c.correct and not b.correct")) == ["1", "4", "8"]


def test_by_sample_id_rows_of_one_side_alone_are_missing_and_not_worse(tmp_path: Path) -> None:
    made = [
        make_run(tmp_path / name, {"c": said}, samples=samples, fingerprint=name)
        for name, said, samples in (
            ("one", ["yes", "yes", "no"], ["x", "y", None]),
            ("two", ["no", "yes", "no"], ["y", "z", None]),
        )
    ]
    both = [given_side(run, "", name)[0] for run, name in zip(made, ("one", "two"), strict=True)]
    with pytest.raises(UserError, match="not the same source"), put_beside(both, Wish()):
        pass
    with put_beside(both, Wish(by="sample-id", limit=0)) as beside:
        found = {row.place.key: (row.kind, [cell.row_id for cell in row.cells]) for row in _all(beside)}
    assert found == {
        "1": ("regression", [1, 0]),
        "0": ("missing", [0, None]),
        "2": ("missing", [2, None]),
        "sample z": ("missing", [None, 1]),
        "side 1: 2": ("missing", [None, 2]),
    }


def _all(beside: Beside) -> Sequence[Row]:
    return page(beside, Wanted("all"), 50).rows


def test_a_link_among_the_parts_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"c": ["yes"]})
    (part,) = (tmp_path / "run" / "results").glob("part-*.parquet")
    part.rename(tmp_path / "elsewhere.parquet")
    part.symlink_to(tmp_path / "elsewhere.parquet")
    with pytest.raises(UserError, match="symbolic link"):
        given_side(RunDir(run.location), "", "run")


@pytest.mark.parametrize("column", ["answer", "sample_id", "error_kind", "target", "correct", "parse_error"])
def test_columns_of_another_type_are_told_or_shown_and_never_break_it(tmp_path: Path, column: str) -> None:
    run = make_run(tmp_path / "run", {"one": ["yes", "no"], "two": ["yes", "yes"]})
    part = next(part for part in (tmp_path / "run" / "results").glob("*.parquet") if "-one-" in part.name)
    table = pq.read_table(part)
    odd = pa.array([[{"a": 1}], None])
    pq.write_table(table.set_column(table.column_names.index(column), column, odd), part)
    sides = [given_side(run, name, name)[0] for name in ("one", "two")]
    with suppress(UserError), put_beside(sides, Wish(limit=0)) as beside:
        assert len(page(beside, Wanted("all"), 50).rows) == 2
        assert one(beside, Wanted("all"), "1")[0] is not None


@pytest.mark.parametrize("text", ["", "AAAA", "W10", "é", "x" * 5000])
def test_what_is_no_place_is_told(text: str) -> None:
    with pytest.raises(UserError, match="no place in these rows"):
        Place.from_text(text)
