"""The soak: its schedule and its verdict as pure logic, and a short one in whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.faults.systems import ROOT
from benchmarks.soak.account import account
from benchmarks.soak.data import ENDS, Truth, question_of, write_data
from benchmarks.soak.flat import growths
from benchmarks.soak.roles import role_of
from benchmarks.soak.samples import RowCount, Sample
from benchmarks.soak.schedule import LARGE, SMALL, schedule

TRUTH = {0: Truth("a", None), 1: Truth("b", None), 2: Truth(None, "infer.crashed")}


def test_the_schedule_follows_from_its_seed() -> None:
    first = schedule(7, 600.0, 5.0, 100.0)
    assert first == schedule(7, 600.0, 5.0, 100.0)
    assert first != schedule(8, 600.0, 5.0, 100.0)
    assert [strike.at for strike in first] == sorted(strike.at for strike in first)
    assert all(0 <= strike.at < 600 and 0 <= strike.draw < 1 for strike in first)


def test_a_longer_soak_begins_as_a_shorter_one() -> None:
    assert schedule(7, 1200.0, 5.0, 100.0)[:50] == schedule(7, 600.0, 5.0, 100.0)[:50]


def test_every_kind_has_its_turn_as_often_as_its_deck_says() -> None:
    kinds = Counter(strike.kind for strike in schedule(3, 100_000.0, 5.0, 100.0))
    decks = len(schedule(3, 100_000.0, 5.0, 1e9)) // sum(SMALL.values())
    assert kinds.keys() == SMALL.keys() | LARGE.keys()
    assert all(abs(kinds[kind] - decks * times) <= times for kind, times in SMALL.items())


def part(path: Path, *rows: tuple[int, str | None, str | None]) -> Path:
    records = [
        {"row_id": row, "answer": answer, "error_kind": error, "error_message": None, "sweep": 1, "attempts": 1}
        for row, answer, error in rows
    ]
    types = [("row_id", pa.int64()), ("answer", pa.string()), ("error_kind", pa.string())]
    more = [("error_message", pa.string()), ("sweep", pa.int32()), ("attempts", pa.int32())]
    pq.write_table(pa.Table.from_pylist(records, schema=pa.schema(types + more)), path)
    return path


def test_a_whole_run_is_sound(tmp_path: Path) -> None:
    found = account(
        [part(tmp_path / "part-1.parquet", (0, "a", None), (1, "b", None), (2, None, "infer.crashed"))], TRUTH
    )
    assert found.sound
    assert found.ledger() == {
        "expected": 3,
        "answered": 2,
        "errors": {"infer.crashed": 1},
        "unanswered": {},
        "missing": 0,
        "duplicate": 0,
        "unexpected": 0,
    }


@pytest.mark.parametrize(
    ("records", "ledger", "finding"),
    [
        ([(0, "a", None), (1, "b", None)], {"missing": 1}, None),
        ([(0, "a", None), (0, "a", None), (1, "b", None), (2, None, "infer.crashed")], {"duplicate": 1}, None),
        ([(0, "a", None), (1, "b", None), (2, None, "infer.crashed"), (9, "x", None)], {"unexpected": 1}, None),
        ([(0, "x", None), (1, "b", None), (2, None, "infer.crashed")], {}, (0, "answer 'a'", "answer 'x'")),
        (
            [(0, None, "infer.stalled"), (1, "b", None), (2, None, "infer.crashed")],
            {"answered": 1},
            (0, "answer 'a'", "infer.stalled"),
        ),
        (
            [(0, "a", None), (1, "b", None), (2, None, "infer.stalled")],
            {"answered": 2},
            (2, "infer.crashed", "infer.stalled"),
        ),
        ([(0, "a", None), (1, "b", None), (2, "c", None)], {"answered": 3}, (2, "infer.crashed", "answer 'c'")),
    ],
)
def test_each_defect_is_found(
    tmp_path: Path, records: Any, ledger: dict[str, int], finding: tuple[int, str, str] | None
) -> None:
    found = account([part(tmp_path / "part-1.parquet", *records)], TRUTH)
    assert not found.sound
    assert found.ledger() == {**found.ledger(), **ledger}
    assert [one[:3] for one in found.findings] == ([] if finding is None else [finding])


def test_a_row_that_breaks_its_engine_may_be_convicted_for_a_death_of_the_chaos(tmp_path: Path) -> None:
    truth = {0: Truth(None, "infer.stalled", breaks=True), 1: Truth(None, "infer.failed", breaks=True)}
    found = account([part(tmp_path / "part-1.parquet", (0, None, "infer.crashed"), (1, None, "infer.empty"))], truth)
    assert [one[:3] for one in found.other_kind] == [(0, "infer.stalled", "infer.crashed")]
    assert [one[:3] for one in found.findings] == [(1, "infer.failed", "infer.empty")]


def test_a_tombstone_and_a_broken_part_are_findings(tmp_path: Path) -> None:
    whole = part(tmp_path / "part-1.parquet", (0, "a", None), (1, "b", None))
    left = part(tmp_path / "part-2.tombstone.parquet", (2, None, "lost"))
    broken = tmp_path / "part-3.parquet"
    broken.write_bytes(whole.read_bytes()[:100])
    found = account([whole, left, broken], TRUTH)
    assert (dict(found.unanswered), found.unreadable, found.missing) == ({"lost": 1}, ["part-3.parquet"], 0)
    assert [one[:3] for one in found.findings] == [(2, "infer.crashed", "tombstone: lost")]
    assert RowCount(tmp_path)() == 2


def life(role: str, memory: float, more: float, files: int = 40) -> list[Sample]:
    """A process looked at for 300 s, in which the run does 30,000 rows; `more` MB for each 10,000."""
    return [Sample(float(s), 100 * s, role, (1, 0.0), memory, memory + more * s / 100, files) for s in range(0, 300, 3)]


@pytest.mark.parametrize(("more", "flat"), [(0.0, True), (-1.0, True), (1.0, True), (4.0, False)])
def test_memory_that_grows_with_the_rows_is_not_flat(more: float, flat: bool) -> None:
    (driver,) = [one for one in growths(life("driver", 100.0, more)) if one.role == "driver"]
    assert driver.own_growth == pytest.approx(more)
    assert (driver.flat, driver.processes) == (flat, 1)


def test_open_files_that_grow_are_not_flat() -> None:
    leaky = [sample._replace(files=40 + sample.rows // 5000) for sample in life("actor", 100.0, 0.0)]
    flat = {one.role: one.flat for one in growths([*leaky, *life("worker.idle", 100.0, 0.0)])}
    assert flat == {"driver": None, "actor": False, "hub": None, "engine": None, "warden": None, "worker": True}


def test_a_short_life_says_nothing() -> None:
    short = life("driver", 100.0, 50.0)[:20]
    assert {one.flat for one in growths(short)} == {None}


def test_damage_never_hides_a_planted_row(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data", 5000, seed=4)
    assert len(data.truth) == 5000
    assert all(data.planted[what] for what in ENDS)
    for what in ENDS.keys() - {"truncate"}:
        assert {data.truth[row][:2] for row in data.planted[what]} == {(None, ENDS[what])}
    (cut,) = data.planted["truncate"]
    assert data.truth[cut] == Truth(question_of(cut)[:7], None)
    errors = Counter(end.error for end in data.truth.values() if end.error)
    assert errors["read.missing"] == len(data.planted["read.missing"]) > 20
    assert errors["read.corrupt"] == len(data.planted["read.corrupt"]) > 10


@pytest.mark.parametrize(
    ("command", "role"),
    [
        ("/venv/bin/python -m proctor run /tmp/x/spec.yaml --json", "driver"),
        ("/venv/bin/python -P /x/supervise/entry.py 45 42 31386", "engine"),
        ("/venv/bin/python -I -S /x/supervise/warden.py", "warden"),
        ("ray::MapWorker(MapBatches(Infer)).submit", "actor"),
        ("ray::_Hub.emit", "hub"),
        ("ray::ReadRows->MapBatches(prepare)", "worker.reading"),
        ("ray::MapBatches(finish)", "worker.writing"),
        ("ray::IDLE", "worker.idle"),
        ("ray::_StatsActor", "ray"),
        ("/x/ray/raylet/raylet --raylet_socket_name=x", "ray"),
    ],
)
def test_processes_are_known_by_their_command_lines(command: str, role: str) -> None:
    assert role_of(command) == role


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(800)
def test_a_short_soak_accounts_for_every_row(tmp_path: Path) -> None:
    knobs = {"rows": 1000, "seed": 11, "minutes": 12, "every": 5, "large-every": 1000, "row-ms": 4, "block-rows": 64}
    options = [word for name, value in knobs.items() for word in (f"--{name}", str(value))]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.soak", *options, "--out", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    written = json.loads((tmp_path / "soak.json").read_text())
    ledger = written["ledger"]
    assert ledger["expected"] == 1000 == ledger["answered"] + sum(ledger["errors"].values())
    assert (ledger["unanswered"], ledger["missing"], ledger["duplicate"], ledger["unexpected"]) == ({}, 0, 0, 0)
    assert {"prepare.crashed", "read.corrupt", "read.missing"} <= ledger["errors"].keys()
    # A row that breaks its engine ends with the kind of that death, which may be that of a strike.
    assert {"infer.crashed", "infer.stalled"} & ledger["errors"].keys()
    assert sum(kind["hit"] for kind in written["chaos"]) >= 3
    assert (written["orphans"], written["failures"], written["passed"]) == (0, [], True)
