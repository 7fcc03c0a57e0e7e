"""The timeline written for Perfetto and as tables."""

from __future__ import annotations

import csv
import errno
import gzip
import hashlib
import json
import os
import shutil
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from proctor.cli.trace import app
from proctor.rows import UserError
from proctor.trace import Trace, open_trace
from proctor.trace import export as export_room
from proctor.trace.export import Exported, export
from proctor.trace.export.tables import COLUMNS
from proctor.trace.timeline.timeline import Kind, timeline
from tests.trace.chrome_format import check
from tests.trace.exports import Export, process_id, thread_id

FORMATS = ["json", "json.gz", "parquet", "csv", "jsonl", "html"]
SECRET = "TOKEN=hf_0123456789"


@pytest.fixture
def made(tmp_path: Path) -> Export:
    return Export(tmp_path / "trace.sqlite")


def chrome(trace: Trace, target: Path, **chosen: Any) -> dict[str, list[dict[str, Any]]]:
    done = export(trace, target, **chosen)
    assert done == Exported(target, "chrome", done.events, target.stat().st_size)
    found = check(json.loads(target.read_bytes(), parse_float=Decimal))
    assert len(found["X"]) + len(found["i"]) == done.events
    return found


def test_slices_arrows_and_names(made: Export, tmp_path: Path) -> None:
    made.launch("k", 1_000_110, 1_000_201, 1_000_301, correlation=7).annotation("step", 1_000_100, 1_000_400)
    made.annotation("here", 1_000_120, None, kind=34).annotation("endless", 1_000_130, None)
    made.copy(1_000_500, 1_000_501, bytes=12).row("PROCESSES", globalPid=process_id(100), pid=100, name="python")
    made.gpu().row("ThreadNames", nameId=made.string("main"), priority=0, globalTid=thread_id(100))
    with open_trace(made.close()) as trace:
        found = chrome(trace, tmp_path / "out.json")
    slices = {event["name"]: event for event in found["X"]}
    assert (slices["k"]["ns"], slices["k"]["end"]) == (101, 201)
    assert slices["k"]["args"] == {"detail": "grid 1x1x1, block 128x1x1, 32 registers", "correlation": 7}
    assert slices["endless"]["end"] == 401
    assert slices["endless"]["args"] == {"unended": True}
    assert slices["copy host to device"]["args"] == {"bytes": 12, "correlation": 1}
    assert [event["name"] for event in found["i"]] == ["here"]
    (start,), (end,) = found["s"], found["f"]
    assert (start["ns"], start["tid"]) == (10, slices["cudaLaunchKernel_v7000"]["tid"])
    assert (end["ns"], end["tid"]) == (101, slices["k"]["tid"])
    names = {event["args"].get("name") for event in found["M"]}
    assert names >= {
        "python (pid 100)", "GPU 0 NVIDIA H100 80GB HBM3 of python (pid 100)", "thread 100 main", "context 1, stream 7",
    }  # fmt: skip


def test_a_track_is_a_stream_of_a_context_of_a_device_of_a_process(made: Export, tmp_path: Path) -> None:
    for pid, device, stream in ((1, 0, 7), (1, 1, 7), (2, 0, 7), (1, 0, 8)):
        made.kernel("k", 0 + pid, 100, pid=pid, device=device, stream=stream)
    made.sync(3, 50, pid=1)
    with open_trace(made.close()) as trace:
        found = chrome(trace, tmp_path / "out.json")
    assert len({(event["pid"], event["tid"]) for event in found["X"]}) == 5


def test_what_overlaps_goes_to_further_lanes(made: Export, tmp_path: Path) -> None:
    made.kernel("a", 10, 100).kernel("b", 50, 150).kernel("c", 60, 80).kernel("d", 100, 120)
    made.annotation("x", 10, 100, kind=60).annotation("y", 50, 150, kind=60).annotation("z", 20, 40)
    with open_trace(made.close()) as trace:
        found = chrome(trace, tmp_path / "out.json")
    tracks = {event["name"]: event["tid"] for event in found["X"]}
    assert tracks["a"] == tracks["d"]  # touching is no overlap
    assert len({tracks["a"], tracks["b"], tracks["c"]}) == 3
    assert tracks["x"] == tracks["z"] != tracks["y"]
    lanes = {event["args"]["name"] for event in found["M"] if event["name"] == "thread_name"}
    assert lanes >= {"context 1, stream 7", "context 1, stream 7 (2)", "context 1, stream 7 (3)", "thread 100 (2)"}


def test_an_arrow_needs_both_ends(made: Export, tmp_path: Path) -> None:
    made.kernel("no call", 10, 20, correlation=5).call("cudaEventRecord", 5, 6, correlation=6)
    made.call("cudaGraphLaunch", 30, 35, correlation=8)
    made.kernel("node 1", 40, 50, correlation=8).kernel("node 2", 50, 60, correlation=8)
    made.call("cudaLaunchKernel", 100, 105, correlation=9).kernel("other process", 110, 120, pid=7, correlation=9)
    made.call("late call", 205, 210, correlation=11).kernel("before its call", 200, 220, correlation=11)
    with open_trace(made.close()) as trace:
        found = chrome(trace, tmp_path / "out.json")
    names = {(event["pid"], event["tid"], event["ns"]): event["name"] for event in found["X"]}
    assert [names[event["pid"], event["tid"], event["ns"]] for event in found["f"]] == ["node 1", "node 2"]


@pytest.mark.parametrize("name", ["mfu_2gpu_before", "h100_2gpu_1s", "mock"])
def test_real_captures_follow_the_format(samples: Path, tmp_path: Path, name: str) -> None:
    with open_trace(samples / f"nsys/nsys-ai/{name}.sqlite") as trace:
        found = chrome(trace, tmp_path / "out.json")
        assert len([event for event in found["X"] if event["cat"] == "kernel"]) == trace.one(
            "SELECT count(*) FROM kernels"
        )


@pytest.mark.parametrize("name", ["h100_bert_small", "h100_vit_falconsai_nsfw"])
def test_a_trace_of_the_pytorch_profiler_follows_the_format(samples: Path, tmp_path: Path, name: str) -> None:
    with open_trace(samples / f"kineto/{name}.json.gz") as trace:
        found = chrome(trace, tmp_path / "out.json")
        assert len(found["s"]) >= trace.one("SELECT count(*) FROM kernels")


def test_overlapping_slices_of_the_pytorch_profiler_are_put_apart(tmp_path: Path) -> None:
    """A duration that is longer than the time to the next slice, which viewers would draw as nesting."""
    place = {"device": 0, "context": 1, "stream": 7}
    events = [
        {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": place}
        for name, ts, dur in (("a", 10.0, 5.002), ("b", 15.001, 3.0), ("c", 20.0, 1.0))
    ]
    path = tmp_path / "kineto.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    with open_trace(path) as trace:
        found = chrome(trace, tmp_path / "out.json")
    tracks = {event["name"]: event["tid"] for event in found["X"]}
    assert tracks["a"] == tracks["c"] != tracks["b"]


def test_gzip_holds_the_same(made: Export, tmp_path: Path) -> None:
    made.launch("k", 10, 100, 200)
    with open_trace(made.close()) as trace:
        export(trace, tmp_path / "a.json")
        export(trace, tmp_path / "a.json.gz")
    assert gzip.decompress((tmp_path / "a.json.gz").read_bytes()) == (tmp_path / "a.json").read_bytes()


def test_tables_have_the_same_rows_and_types(made: Export, tmp_path: Path) -> None:
    made.launch("void k<1, 2>()", 110, 1200, 1300, pid=100, tid=103, correlation=4).copy(2000, 2100, bytes=5, srcKind=0)
    made.annotation('quoted "step", of\ntwo lines', 100, None)
    with open_trace(made.close()) as trace:
        for form in ("parquet", "csv", "jsonl"):
            assert export(trace, tmp_path / f"out.{form}").events == 4
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names == list(COLUMNS)
    assert table.schema.field("start_ns").type == pa.int64()
    rows = table.to_pylist()
    assert rows[2] == {
        "at_ns": 1100, "start_ns": 1200, "end_ns": 1300, "duration_ns": 100, "kind": "kernel", "name": "void k<1, 2>()",
        "process": process_id(100), "pid": 100, "tid": None, "device": 0, "context": 1, "stream": 7, "correlation": 4,
        "bytes": None, "detail": "grid 1x1x1, block 128x1x1, 32 registers",
    }  # fmt: skip
    assert (rows[0]["end_ns"], rows[0]["duration_ns"], rows[1]["tid"]) == (None, None, 103)
    assert [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()] == rows
    with (tmp_path / "out.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    assert read == [{key: "" if value is None else str(value) for key, value in row.items()} for row in rows]


def test_an_empty_timeline_can_be_written(made: Export, tmp_path: Path) -> None:
    with open_trace(made.close()) as trace:
        for form in FORMATS:
            assert export(trace, tmp_path / f"out.{form}").events == 0
    assert json.loads((tmp_path / "out.json").read_text())["traceEvents"] == []
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 0


@pytest.mark.parametrize("form", FORMATS)
def test_the_environment_of_a_capture_is_never_written(made: Export, tmp_path: Path, form: str) -> None:
    made.launch("k", 10, 100, 200)
    made.row("META_DATA_CAPTURE", name="PROCESS_0:ENVIRONMENT_VARIABLE", value=SECRET)
    made.connection.execute("CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, nameEnum INTEGER, value TEXT)")
    made.connection.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('DeviceEnvironment', 1, ?)", (SECRET,))
    with open_trace(made.close()) as trace:
        export(trace, tmp_path / f"out.{form}")
    raw = (tmp_path / f"out.{form}").read_bytes()
    plain = gzip.decompress(raw) if form.endswith("gz") else raw
    assert SECRET.encode() not in plain
    assert b"hf_0123" not in plain


def test_a_file_appears_whole_or_not_at_all(made: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object, **__: object) -> Any:
        yield from timeline(trace, kinds=[Kind.KERNEL])
        raise RuntimeError("in the middle")

    made.launch("k", 10, 100, 200)
    target = tmp_path / "out.json"
    target.write_text("what was there")
    with open_trace(made.close()) as trace:
        monkeypatch.setattr(export_room, "timeline", breaks)
        with pytest.raises(RuntimeError):
            export(trace, target, force=True)
    assert target.read_text() == "what was there"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.json", "trace.sqlite"]


@pytest.mark.parametrize("name", ["out.json", "out.json.gz", "out.csv", "out.jsonl", "out.parquet", "out.html"])
def test_a_full_disk_is_told_with_the_name_and_leaves_nothing(
    made: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def full(*_: object, **__: object) -> Any:
        yield from timeline(trace, kinds=[Kind.KERNEL])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    made.launch("k", 10, 100, 200)
    with open_trace(made.close()) as trace:
        monkeypatch.setattr(export_room, "timeline", full)
        with pytest.raises(UserError, match=rf"{name}: cannot be written: No space left on device"):
            export(trace, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["trace.sqlite"]


def test_nothing_is_overwritten_unasked_and_the_trace_never(made: Export, tmp_path: Path) -> None:
    made.launch("k", 10, 100, 200)
    path = made.close()
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    target = tmp_path / "out.csv"
    target.write_text("mine")
    alias = tmp_path / "alias.json"
    alias.symlink_to(path)
    with open_trace(path) as trace:
        with pytest.raises(UserError, match="already"):
            export(trace, target)
        assert target.read_text() == "mine"
        assert export(trace, target, force=True).events == 2
        with pytest.raises(UserError, match="the trace itself"):
            export(trace, alias, force=True)
        with pytest.raises(UserError, match="no format"):
            export(trace, tmp_path / "out.sqlite")
        with pytest.raises(UserError, match="no such directory"):
            export(trace, tmp_path / "nowhere" / "out.csv")
        (tmp_path / "folder.csv").mkdir()
        with pytest.raises(UserError, match="directory"):
            export(trace, tmp_path / "folder.csv", force=True)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before


def test_the_command(made: Export, tmp_path: Path) -> None:
    made.launch("k", 100, 1100, 1200).launch("j", 5000, 6000, 7000)
    path, out = made.close(), tmp_path / "out.jsonl"
    words = ["export", str(path), str(out), "--since", "900ns", "--until", "2us", "--kind", "kernel", "--json"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    told = json.loads(done.stdout)
    assert told == {"event": "export", "path": str(out), "events": 1, "bytes": out.stat().st_size, "format": "jsonl"}
    assert json.loads(out.read_text())["at_ns"] == 1000
    plain = tmp_path / "plain"
    plain.touch()
    assert out.stat().st_mode == plain.stat().st_mode  # not that of a temporary file


def trace_processor() -> str:
    """Perfetto's program; see docs/contributing.md. It comes as a binary that its PyPI package downloads when run."""
    named = os.environ.get("PROCTOR_TRACE_PROCESSOR")
    found = named or shutil.which("trace_processor_shell") or shutil.which("trace_processor")
    if not found:
        pytest.skip("Perfetto's trace_processor is not here: put it on PATH or name it in PROCTOR_TRACE_PROCESSOR")
    return found


QUESTION = """
SELECT (SELECT count(*) FROM slice) AS slices,
  (SELECT count(*) FROM slice WHERE category = 'kernel') AS kernels,
  (SELECT sum(dur) FROM slice WHERE category = 'kernel') AS total,
  (SELECT coalesce(sum(value), 0) FROM stats WHERE severity = 'error') AS errors;
"""


def test_perfetto_loads_it_and_sees_every_slice(samples: Path, tmp_path: Path) -> None:
    program = trace_processor()
    target, query = tmp_path / "out.json", tmp_path / "query.sql"
    with open_trace(samples / "nsys/nsys-ai/mfu_2gpu_before.sqlite") as trace:
        done = export(trace, target)
        kernels, total = next(trace.rows('SELECT count(*), sum("end" - start) FROM kernels'))
    query.write_text(QUESTION)
    words = [program, "-q", str(query), str(target)]
    shown = subprocess.run(words, capture_output=True, text=True, check=True, timeout=100)
    assert shown.stdout.split()[-1] == f"{done.events},{kernels},{total},0"
