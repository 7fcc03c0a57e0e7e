"""Runs that are kept open, and the addresses that are said."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from proctor.results import RunDir
from proctor.rows import UserError
from proctor.view.app import serve
from proctor.view.app import shelf as shelves
from proctor.view.app.guard import Door
from proctor.view.app.shelf import MOST_OPEN, Shelf
from proctor.view.browse.rows import Query, RowTable, count, open_rows


def _put(root: Path, name: str, rows: int) -> RunDir:
    (root / "results").mkdir(parents=True, exist_ok=True)
    table = pa.table({"row_id": range(rows), "checkpoint": ["c"] * rows})
    pq.write_table(table, root / "results" / name)
    return RunDir(root)


def test_a_run_stays_open_until_its_parts_change_or_others_take_its_place(tmp_path: Path) -> None:
    shelf, run = Shelf(), _put(tmp_path / "a", "part-1.parquet", 2)
    with shelf.table(run) as first, shelf.table(run) as second:
        assert first is second
    _put(tmp_path / "a", "part-2.parquet", 3)
    with shelf.table(run) as old:
        _put(tmp_path / "a", "part-2.parquet", 7)  # written anew
        with shelf.table(run) as grown:
            assert count(grown, Query()) == 9
        assert old.scratch.exists()  # still in use: it is closed when it is free
    assert not old.scratch.exists()
    assert not first.scratch.exists()
    others = [_put(tmp_path / f"other-{number}", "part-1.parquet", 1) for number in range(MOST_OPEN)]
    with shelf.table(run) as used:
        for other in others:
            with shelf.table(other) as latest:
                assert count(latest, Query()) == 1
        assert count(used, Query()) == 9
    assert not used.scratch.exists()
    assert latest.scratch.exists()
    shelf.close()
    assert not latest.scratch.exists()


def test_a_run_that_cannot_be_opened_leaves_nothing_behind(tmp_path: Path) -> None:
    shelf, run = Shelf(), _put(tmp_path, "part-1.parquet", 2)
    pq.write_table(pa.table({"other": [1]}), tmp_path / "results" / "part-1.parquet")
    for _ in range(2):
        with pytest.raises(UserError, match="no records"), shelf.table(run):
            pass
    _put(tmp_path, "part-1.parquet", 2)
    with shelf.table(run) as table:
        assert count(table, Query()) == 2
    shutil.rmtree(tmp_path / "results")
    with shelf.table(run) as table:
        assert count(table, Query()) == 0
    shelf.close()


def test_a_run_that_takes_long_to_open_keeps_only_its_own_readers_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = Shelf()
    large, small = _put(tmp_path / "large", "part-1.parquet", 2), _put(tmp_path / "small", "part-1.parquet", 3)
    begun, go_on, openings = threading.Event(), threading.Event(), list[str]()

    @contextmanager
    def slow(run: RunDir) -> Iterator[RowTable]:
        openings.append(run.location)
        if run is large:
            begun.set()
            assert go_on.wait(60)
        with open_rows(run) as table:
            yield table

    def total(run: RunDir) -> int:
        with shelf.table(run) as table:
            return table.total

    monkeypatch.setattr(shelves, "open_rows", slow)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(total, large)
        assert begun.wait(60)
        second = pool.submit(total, large)
        assert total(small) == 3  # while the large one is not open yet
        go_on.set()
        assert (first.result(60), second.result(60)) == (2, 2)
    assert openings == [large.location, small.location]
    shelf.close()


def test_the_address_that_is_said_leads_in() -> None:
    assert serve.address("127.0.0.1", Door(80)) == "http://127.0.0.1:80/"
    assert serve.address("::1", Door(8470)) == "http://[::1]:8470/"
    said = serve.address("0.0.0.0", Door(8470, "secret"))
    assert said.endswith(":8470/?token=secret")
    assert Door(8470, "secret").knows(said.removeprefix("http://").partition("/")[0])


def test_what_cannot_be_served_is_said_before_anything_starts(tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(UserError, match="no such directory"):
        serve.serve([tmp_path / "nothing"], said.append)
    with pytest.raises(UserError, match="no address to listen on"):
        serve.serve([tmp_path], said.append, host="not a host", port=0)
    assert said == []
