"""The loop over real files: whatever was written, replayed, cut off or left behind, each key ends with one record."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from proctor.results import lift_tombstones, reconcile, settle, write_records, write_tombstones
from proctor.results.parts import parts_of, read_ids
from proctor.rows.records import record_schema
from proctor.storage.folder import LocalFolder

ROWS = 24
EXPECTED = BitMap64(range(ROWS))
SCHEMA = record_schema({})

some_rows = st.sets(st.integers(0, ROWS - 1), min_size=1)
accidents = st.lists(
    st.one_of(
        st.tuples(st.just("write"), some_rows),
        st.tuples(st.just("fail"), some_rows),
        st.tuples(st.just("cut"), st.integers(0, 50)),
        st.tuples(st.just("draft"), st.integers(0, 50)),
        st.tuples(st.just("conclude"), st.just(0)),
        st.tuples(st.just("resume"), st.just(0)),
    ),
    max_size=10,
)


def write(results: LocalFolder, rows: set[int] | list[int], kind: str | None = None) -> None:
    records = [{"row_id": row, "checkpoint": "ck", "answer": None if kind else "a", "error_kind": kind} for row in rows]
    write_records(results, pa.Table.from_pylist(records, schema=SCHEMA))


def befall(run: LocalFolder, accident: str, detail: Any) -> None:
    results = run.below("results")
    parts = parts_of(results)
    if accident in ("write", "fail"):
        write(results, detail, "infer.crashed" if accident == "fail" else None)
    elif accident == "cut" and parts:
        path = results.root / parts[detail % len(parts)]
        path.write_bytes(path.read_bytes()[: detail * 40])
    elif accident == "draft":
        results.root.mkdir(exist_ok=True)
        (results.root / f".part-ck-{detail}.draft").write_bytes(b"PAR1")
    elif accident == "conclude":
        write_tombstones(run, "ck", EXPECTED - settle(results, "ck").done, SCHEMA, 1)
    elif accident == "resume":
        settle(results, "ck")
        lift_tombstones(results, "ck")


@settings(max_examples=80, deadline=None)
@given(accidents, st.integers(3, ROWS))
def test_every_key_ends_with_one_record(history: list[tuple[str, Any]], block_rows: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        run = LocalFolder(Path(directory))
        for accident, detail in history:
            befall(run, accident, detail)
        results = run.below("results")
        done = settle(results, "ck").done
        lift_tombstones(results, "ck")
        todo = list(EXPECTED - done)
        for start in range(0, len(todo), block_rows):
            write(results, todo[start : start + block_rows])
        settle(results, "ck")
        ids = sorted(row for part in parts_of(results) for row in read_ids(results.open(part)).tolist())
        assert ids == list(range(ROWS))
        assert reconcile(results, "ck", EXPECTED).complete
