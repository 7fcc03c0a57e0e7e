"""Rows of events, windows, and the picture of a window."""

from __future__ import annotations

import resource
import sqlite3
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.rows import UserError
from proctor.trace import open_trace
from proctor.trace.timeline.events import Kind
from proctor.trace.timeline.lanes import KINDS, Group, depths_of, read_events
from proctor.view.charts.trace_lanes import MOST_ELEMENTS, MOST_ROWS, trace_lanes
from proctor.view.formats import NOTHING
from proctor.view.traces.units import change, instant, size, span, typed
from proctor.view.traces.window import SHORTEST, Window
from tests.trace.exports import Export, process_id
from tests.view.traces.conftest import make_trace

MILLION = 1_000_000
PAIRS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=30)


@given(PAIRS, st.integers(1, 6))
def test_no_event_hides_another_while_there_are_rows(pairs: list[tuple[int, int]], most: int) -> None:
    events = sorted(((start, start + length) for start, length in pairs), key=lambda one: (one[0], -one[1]))
    starts, ends = (np.array([one[side] for one in events], np.int64) for side in (0, 1))
    depths = depths_of(starts, ends, most).tolist()
    assert all(0 <= depth < most for depth in depths)
    for depth in range(most - 1):
        row = [event for event, at in zip(events, depths, strict=True) if at == depth]
        assert all(before[1] <= after[0] for before, after in pairwise(row))


def test_what_nests_lies_below() -> None:
    starts, ends = np.array([0, 1, 2, 5, 12], np.int64), np.array([10, 4, 3, 9, 13], np.int64)
    assert depths_of(starts, ends).tolist() == [0, 1, 2, 1, 0]


@given(st.integers(0, 10**12), st.integers(-(10**12), 2 * 10**12), st.integers(-10, 2 * 10**12), st.integers(-9, 9))
def test_windows_stay_in_the_trace(length: int, begin: int, end: int, quarters: int) -> None:
    window = Window.around(begin, end, length)
    for one in (window, window.zoomed(1, 2), window.zoomed(2, 1), window.moved(quarters)):
        assert one.begin >= 0
        assert one.end <= max(length, SHORTEST)
        assert one.length >= SHORTEST
    assert window.moved(quarters).length == window.length
    assert window.zoomed(length or 1, 1).whole


def test_windows_are_typed() -> None:
    assert Window.of("1.5ms", "2ms", 10**7)[:2] == (1_500_000, 2_000_000)
    assert Window.of("", "", 10**7).whole
    assert Window.of("", typed(290_277_120), 10**9).end == 290_277_120
    with pytest.raises(UserError, match="from: 'x' is no time"):
        Window.of("x", "", 10**7)


def test_figures_are_told_with_their_units() -> None:
    assert [span(ns) for ns in (0, 512, 12_340, 4_492_800, 2.5e9)] == [
        "0 ns", "512 ns", "12.34 µs", "4.493 ms", "2.500 s",
    ]  # fmt: skip
    assert (span(-1_500, "+"), instant(290_277_120), typed(5_000_000)) == ("-1.500 µs", "290.277120 ms", "5ms")
    assert (size(272), size(8_046_134_272), size(None)) == ("272 B", "8.05 GB", NOTHING)
    assert (change(2, 3), change(0, 1), change(1, 12), change(0, 0)) == ("+50.0 %", "new", "x 12", NOTHING)


def test_events_are_read_by_lane(tmp_path: Path) -> None:
    with open_trace(make_trace(tmp_path / "a.sqlite")) as trace:
        events = read_events(trace)
    lanes = events.lanes
    assert [lane.group for lane in lanes] == [
        Group.KERNELS, Group.MEMORY, Group.SYNCS, Group.KERNELS, Group.RANGES, Group.CALLS,
    ]  # fmt: skip
    assert (lanes[0].stream, lanes[3].stream, lanes[4].device) == (7, 8, None)
    assert len(events.starts) == 30 * 4 + 5
    assert events.zero == 5_000_000
    assert events.span == 400_000
    ranges = [row for row in events.rows if row.lane.group is Group.RANGES]
    assert [row.depth for row in ranges] == [0, 1, 2]
    mark = ranges[2].first
    assert (events.starts[mark], events.ends[mark], KINDS[events.kinds[mark]]) == (2_000, 2_000, Kind.MARK)
    assert all(bool((np.diff(events.starts[row.first : row.last]) >= 0).all()) for row in events.rows)


def test_too_many_events_are_told_not_held(tmp_path: Path) -> None:
    with open_trace(make_trace(tmp_path / "a.sqlite")) as trace:
        events = read_events(trace, most=70)
        assert events.left_out == {Kind.CALL: 60}
        assert {KINDS[kind] for kind in events.kinds} == {*KINDS} - {Kind.CALL, Kind.MEMSET, Kind.GRAPH, Kind.OS_CALL}
        with pytest.raises(UserError, match="60 kernels are too many"):
            read_events(trace, most=50)


def test_a_picture_says_what_it_merges(tmp_path: Path) -> None:
    with open_trace(make_trace(tmp_path / "a.sqlite")) as trace:
        events = read_events(trace)
    whole = trace_lanes(events, Window.of("", "", events.span), events.rows)
    assert whole.boxed + whole.merged == len(events.starts)
    assert whole.narrowest == 1
    assert whole.merged == 61  # calls of 5 ns, and the mark
    assert sum(bool(strip.dense) for strip in whole.strips) == 2
    near = trace_lanes(events, Window.of("2us", "8us", events.span), events.rows)
    widths = {round(box.width, 1) for strip in near.strips[:1] for box in strip.boxes}
    assert widths == {666.2}  # 4 of 6 microseconds, less what lies between two boxes
    place = next(row.first for row in events.rows if row.lane.group is Group.CALLS)
    marked = trace_lanes(events, Window.of("", "", events.span), events.rows, mark=place)
    assert marked.boxed == whole.boxed + 1
    assert [tick.text for tick in whole.ticks][:2] == ["0 µs", "50 µs"]


def test_rows_are_shown_some_at_a_time(tmp_path: Path) -> None:
    with Export(tmp_path / "many.sqlite") as export:
        for stream in range(2 * MOST_ROWS + 3):
            export.kernel("k", 10 * stream, 10 * stream + 5, stream=stream)
    with open_trace(tmp_path / "many.sqlite") as trace:
        events = read_events(trace)
    window = Window.of("", "", events.span)
    pictures = [trace_lanes(events, window, events.rows, first) for first in (0, MOST_ROWS, 10**9)]
    assert [picture.first for picture in pictures] == [0, MOST_ROWS, 2 * MOST_ROWS]
    assert [picture.shown for picture in pictures] == [MOST_ROWS, MOST_ROWS, 3]


def test_a_million_events_are_few_elements_and_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "million.sqlite"
    with Export(path) as export:
        export.kernel("k", 0, 50)
        columns = export.connection.execute("SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
        marks = ", ".join("?" * (len(columns) - 4))
        sql = (
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) INSERT INTO "
            f"CUPTI_ACTIVITY_KIND_KERNEL SELECT i * 100, i * 100 + 40 + (i % 7) * 1000 * (i % 501 = 0), "
            f"0, 1, {marks} FROM n"
        )
        export.connection.execute(sql, (MILLION - 1, *columns[4:]))
        export.connection.execute(
            "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET streamId = rowid % 8, globalPid = ?", (process_id(1),)
        )
    with open_trace(path) as trace:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        events = read_events(trace)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KiB; the peak until now
    assert len(events.starts) == MILLION
    held = (events.starts, events.ends, events.ids, events.kinds)
    assert sum(column.nbytes for column in held) == 25 * MILLION
    for begin, end in (("", ""), ("10ms", "20ms"), ("10ms", "10.1ms"), ("10ms", "10.002ms")):
        window = Window.of(begin, end, events.span)
        picture = trace_lanes(events, window, events.rows)
        inside = int(((events.starts < window.end) & (events.ends > window.begin)).sum())
        assert picture.boxed + picture.merged == inside
        assert picture.elements <= MOST_ELEMENTS
        assert sum(len(strip.dense) for strip in picture.strips) < 400_000


def test_a_damaged_export_is_one_line(tmp_path: Path) -> None:
    path = make_trace(tmp_path / "a.sqlite")
    connection = sqlite3.connect(path)
    connection.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET streamId = 'seven' WHERE rowid = 1")
    connection.commit()
    connection.close()
    from proctor.view.traces.files import TraceFile
    from proctor.view.traces.shelf import TraceShelf

    shelf = TraceShelf()
    with (
        pytest.raises(UserError, match="stream has values that are no whole numbers"),
        shelf.traces(TraceFile("runs", "a.sqlite", path, 1, 1)) as (opened,),
    ):
        assert opened.events.span
    shelf.close()
