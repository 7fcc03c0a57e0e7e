"""PyTorch-profiler traces that are damaged, and JSON that is none."""

from __future__ import annotations

import gzip
from decimal import Decimal
from pathlib import Path

import pytest

from proctor.rows import UserError
from proctor.trace import open_trace
from proctor.trace.reading.kineto_events import nanoseconds
from tests.trace.kineto_files import call, kernel, written


def test_events_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    bad = [
        {**kernel(), "ts": "soon"}, {**kernel(), "name": 5}, {**call(), "pid": "Spans"}, {**kernel(), "args": [1]},
        {key: value for key, value in kernel().items() if key != "ts"}, 17, {**kernel(), "ts": 1e300},
    ]  # fmt: skip
    with open_trace(written(tmp_path / "t.json", [call(), kernel(), *bad])) as trace:  # type: ignore[list-item]
        assert trace.one("SELECT count(*) FROM kernels") == 1
        (note,) = [note for note in trace.notes if note.code == "unreadable_events"]
        assert note.what.startswith("7 events")


def test_odd_numbers_do_no_harm(tmp_path: Path) -> None:
    args = {"stream": 2**70, "registers per thread": "N/A", "grid": [1, 2], "est. achieved occupancy %": -99}
    with open_trace(written(tmp_path / "t.json", [call(), kernel(args=args), kernel(dur=-5)])) as trace:
        sql = "SELECT stream, registers, grid_x, reported_occupancy FROM kernels"
        assert list(trace.rows(sql)) == [(None, None, None, None)]
        assert [note.code for note in trace.notes] == ["bad_times"]


@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_that_is_cut_off(tmp_path: Path, zipped: bool) -> None:
    file = written(tmp_path / "t.json", [call(), *(kernel(ts=number) for number in range(500))])
    data = file.read_bytes()
    file.write_bytes(gzip.compress(data)[:-200] if zipped else data[:-200])
    with pytest.raises(UserError, match=r"the \.gz file is cut off" if zipped else "the JSON is cut off"):
        open_trace(file)
    file.write_bytes(gzip.compress(data[:-200]))
    with pytest.raises(UserError, match="the JSON is cut off"):
        open_trace(file)


def test_a_damaged_gz(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(written(tmp_path / "t.json", [kernel()]).read_bytes()))
    data[40] ^= 0xFF
    (tmp_path / "t.json.gz").write_bytes(data)
    with pytest.raises(UserError, match=r"the \.gz file is damaged|cut off"):
        open_trace(tmp_path / "t.json.gz")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1}', "no trace of the PyTorch profiler"),
        ("[]", "no trace of the PyTorch profiler"),
        ("[1, 2]", "no trace of the PyTorch profiler"),
        ('{"traceEvents": 5}', "no trace of the PyTorch profiler"),
        ('{"traceEvents": []}', "no trace of the PyTorch profiler"),
        ('{"traceEvents": [{"ph": "X", "cat": "v8", "name": "GC", "ts": 1, "pid": 1}]}', "no trace of the PyTorch"),
        ('{"traceEvents": [}', "not JSON"),
        ("{", "cut off"),
        ("{nonsense", "not JSON"),
        ('{"traceEvents": [' + "[" * 100_000 + "]" * 100_000 + "]}", "nested too deep"),
    ],
)
def test_other_json(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(UserError, match=said) as raised:
        open_trace(tmp_path / "t.json")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("text", ["1e400", "NaN", "Infinity", "-1e30", "99999999999999999"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a time"):
        nanoseconds(Decimal(text))


def test_a_small_file_that_unpacks_to_a_huge_one(tmp_path: Path) -> None:
    file = tmp_path / "bomb.json.gz"
    file.write_bytes(gzip.compress(b'{"traceEvents":[0' + b",0" * (24 << 20) + b"]}", 9))
    assert file.stat().st_size < 100_000
    with pytest.raises(UserError, match=r"unpacked it has more than 16 MiB, which is more than 200 times its size"):
        open_trace(file)


def test_what_unpacks_to_much_less_than_that_is_read(tmp_path: Path) -> None:
    data = written(tmp_path / "t.json", [call(), *(kernel(ts=number) for number in range(2000))]).read_bytes()
    (tmp_path / "t.json.gz").write_bytes(gzip.compress(data, 9))
    with open_trace(tmp_path / "t.json.gz") as trace:
        assert trace.one("SELECT count(*) FROM kernels") == 2000
