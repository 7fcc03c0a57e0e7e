"""Everything a trace holds in one stream ordered by time."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from proctor.cli.trace import app
from proctor.rows import UserError
from proctor.trace import open_trace
from proctor.trace.model import COPY_KINDS
from proctor.trace.timeline import order as timeline_order
from proctor.trace.timeline.order import Query, in_order
from proctor.trace.timeline.timeline import Event, Kind, origin, parse_kinds, parse_time, timeline
from tests.trace.exports import Export, process_id, thread_id


@pytest.fixture
def export(tmp_path: Path) -> Export:
    return Export(tmp_path / "trace.sqlite")


def small(export: Export) -> Path:
    """One event of each kind that the writer knows, out of order."""
    export.copy(400, 450, kind=1, bytes=64, srcKind=1, dstKind=2, correlation=3)
    export.launch("flash_fwd", 110, 200, 300, correlation=7)
    export.sync(500, 600, kind=4).memset(460, 470, bytes=8, device=1).annotation("step", 100, 650)
    export.annotation("here", 120, None, kind=34).annotation("endless", 130, None)
    export.row(
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        start=610, end=640, deviceId=0, contextId=1, streamId=7, globalPid=process_id(100), graphId=4,
    )  # fmt: skip
    export.row("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=0, end=0, deviceId=2147483647, globalPid=process_id(100))
    export.row("OSRT_API", start=105, end=106, globalTid=thread_id(100), nameId=export.string("poll"))
    return export.close()


def test_kinds_come_in_one_order(export: Export) -> None:
    with open_trace(small(export)) as trace:
        events = list(timeline(trace))
        assert [(event.start, event.kind, event.name) for event in events] == [
            (100, "range", "step"),
            (105, "os_call", "poll"),
            (110, "call", "cudaLaunchKernel_v7000"),
            (120, "mark", "here"),
            (130, "range", "endless"),
            (200, "kernel", "flash_fwd"),
            (400, "copy", "copy host to device"),
            (460, "memset", "memset"),
            (500, "sync", "sync context"),
            (610, "graph", "graph 4"),
        ]
        kernel, copy = events[5], events[6]
        assert kernel == Event(
            200, 300, Kind.KERNEL, "flash_fwd", process_id(100), None, 0, 1, 7, 7, None,
            "grid 1x1x1, block 128x1x1, 32 registers",
        )  # fmt: skip
        assert (copy.bytes, copy.detail) == (64, "pinned to device memory")
        assert (events[3].end, events[4].end) == (120, None)
        assert origin(trace) == 100


def test_every_copy_kind_has_its_name(export: Export) -> None:
    for kind in (*COPY_KINDS, 99):
        export.copy(100 + kind, 200, kind=kind)
    with open_trace(export.close()) as trace:
        names = [event.name for event in timeline(trace, kinds=[Kind.COPY])]
    assert len(set(names)) == 15
    assert names[10] == "copy peer to peer"
    assert names[-1] == "copy of kind 99"


@pytest.mark.parametrize(
    ("chosen", "starts"),
    [
        ({"kinds": [Kind.KERNEL, Kind.COPY]}, [200, 400]),
        ({"since": 451}, [100, 130, 460, 500, 610]),  # "step" and "endless" are still open
        ({"until": 111}, [100, 105, 110]),
        ({"since": 300, "until": 400}, [100, 130]),  # the kernel ends at 300: no part of it lies there
        ({"name": "FLASH"}, [200]),
        ({"device": 1}, [460]),
        ({"device": 0, "kinds": [Kind.KERNEL, Kind.CALL]}, [200]),
        ({"process": 100, "kinds": [Kind.KERNEL]}, [200]),
        ({"process": 7}, []),
    ],
)
def test_events_can_be_chosen(export: Export, chosen: dict[str, object], starts: list[int]) -> None:
    with open_trace(small(export)) as trace:
        assert [event.start for event in timeline(trace, **chosen)] == starts  # type: ignore[arg-type]


def test_rows_in_any_order_come_in_order_of_time(export: Export) -> None:
    starts = list(range(0, 20_000, 10))
    random.Random(5).shuffle(starts)
    for start in starts:
        export.kernel(f"k{start % 7}", start, start + 5)
    with open_trace(export.close()) as trace:
        assert [event.start for event in timeline(trace)] == sorted(starts)


@pytest.mark.parametrize("shuffled", [False, True])
def test_slices_hold_every_row_once(export: Export, monkeypatch: pytest.MonkeyPatch, shuffled: bool) -> None:
    monkeypatch.setattr(timeline_order, "_BLOCK", 50)
    monkeypatch.setattr(timeline_order, "_SAMPLE", 100)
    rows = [(start, start + random.Random(start).randrange(50)) for start in [*range(0, 3000, 3), *[999] * 200, 10**9]]
    if shuffled:
        random.Random(1).shuffle(rows)
    for start, end in rows:
        export.kernel("k", start, end)
    query = Query("kernels", ("v.start", 'v."end"', "v.id"))
    with open_trace(export.close()) as trace:
        whole = list(in_order(trace, query))
        asked: list[str] = []
        trace.connection.set_trace_callback(asked.append)
        sliced = list(in_order(trace, query, slice_rows=100))
    assert sliced == whole
    assert [(start, -end) for start, end, _ in whole] == sorted((start, -end) for start, end in rows)
    assert sum("ORDER BY" in sql for sql in asked) >= 5


def test_rows_without_a_start_are_left_out(export: Export) -> None:
    export.row("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=None, end=None, deviceId=0, graphId=1)
    with open_trace(export.close()) as trace:
        assert list(timeline(trace)) == []
        assert origin(trace) == 0


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [("12345", 12345), ("800us", 800_000), ("1.5ms", 1_500_000), ("2s", 2 * 10**9), (" .25 s ", 250_000_000),
     ("1.000000001s", 1_000_000_001), ("3µs", 3000), ("7ns", 7)],
)  # fmt: skip
def test_times_are_read_exactly(text: str, nanoseconds: int) -> None:
    assert parse_time(text) == nanoseconds


@pytest.mark.parametrize("text", ["", "soon", "1.5", "1h", "-3ms", "1e3", "ms"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="is no time"):
        parse_time(text)


def test_kinds_are_read_from_a_list() -> None:
    assert parse_kinds(None) is None
    assert parse_kinds("kernel, copy") == [Kind.KERNEL, Kind.COPY]
    with pytest.raises(UserError, match="kernels: no such kind"):
        parse_kinds("kernels")
    with pytest.raises(UserError, match="no such kind"):
        parse_kinds(",")


def test_a_real_capture_has_every_row(samples: Path) -> None:
    with open_trace(samples / "nsys/nsys-ai/mfu_2gpu_before.sqlite") as trace:
        counts = dict.fromkeys(Kind, 0)
        last = 0
        for event in timeline(trace):
            counts[event.kind] += 1
            assert event.start >= last
            last = event.start
        assert origin(trace) == trace.one("SELECT min(start) FROM annotations")
    assert counts == {
        "kernel": 4010, "copy": 1020, "memset": 269, "sync": 366, "graph": 0, "range": 19118, "mark": 0, "call": 7466,
        "os_call": 0,
    }  # fmt: skip


def run(*words: str | Path) -> list[dict[str, object]]:
    done = CliRunner().invoke(app, [*map(str, words), "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_command_counts_times_from_the_first_event(export: Export) -> None:
    path = small(export)
    *events, last = run(
        "timeline", path, "--since", "90", "--until", "0.301us", "--kind", "kernel,copy", "--limit", "1"
    )
    assert [(event["at_ns"], event["duration_ns"], event["start"]) for event in events] == [(100, 100, 200)]
    assert last == {"event": "timeline", "events": 1, "more": True, "origin_ns": 100}
    shown = CliRunner().invoke(app, ["timeline", str(path), "--name", "flash"], catch_exceptions=False).output
    assert "0.000100" in shown
    assert "stream 7" in shown


def test_the_command_spells_out_what_commands_a_terminal(export: Export) -> None:
    export.kernel("\x1b[31mred", 0, 100)
    shown = CliRunner().invoke(app, ["timeline", str(export.close())], catch_exceptions=False).output
    assert "\x1b" not in shown
    assert "\\x1b" in shown


def test_the_nvtx_command(export: Export) -> None:
    export.annotation("step", 0, 100).launch("k", 10, 1000, 1100).launch("k", 20, 1000, 1200, pid=200, device=1)
    export.annotation("step", 0, 100, pid=200)
    path = export.close()
    *ranges, total = run("nvtx", path, "--name", "STEP")
    assert [(each["pid"], each["gpu_busy_ns"]) for each in ranges] == [(200, 200), (100, 100)]
    assert total["outside"] == {"operations": 0, "busy_ns": 0, "sum_ns": 0}
    ranks = run("nvtx", path, "--by", "rank")
    assert [each["event"] for each in ranks] == ["rank", "rank", "range"]
    assert (ranks[-1]["slowest"], ranks[-1]["skew_ns"]) == (200, 100)
    shown = CliRunner().invoke(app, ["nvtx", str(path), "--by", "rank"], catch_exceptions=False).output
    assert "50.0%" in shown
