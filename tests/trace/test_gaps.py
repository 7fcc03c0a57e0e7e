"""Idle gaps: their length against unions of the raw rows, and their causes on exports made for each rule."""

from __future__ import annotations

import sqlite3
from itertools import pairwise
from pathlib import Path

import pytest

from proctor.rows import UserError
from proctor.trace import open_trace
from proctor.trace.work.api_names import Api, kind_of_call
from proctor.trace.work.gap_causes import Cause
from proctor.trace.work.gaps import Gap, Gaps, gaps
from proctor.trace.work.intervals import merged, union_length
from proctor.trace.work.scope import Scope
from tests.trace.exports import Export

US = 1000


def only(export: Export) -> Gap:
    with open_trace(export.close()) as trace:
        found = gaps(trace)
    assert len(found.gaps) == 1
    return found.gaps[0]


@pytest.mark.parametrize("name", ["mfu_2gpu_before", "mfu_2gpu_after", "h100_2gpu_1s", "mock"])
def test_idle_time_of_a_real_capture(samples: Path, name: str) -> None:
    path = samples / "nsys" / "nsys-ai" / f"{name}.sqlite"
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    work: dict[int, list[tuple[int, int]]] = {}
    for table in ("KERNEL", "MEMCPY", "MEMSET"):
        if f"CUPTI_ACTIVITY_KIND_{table}" in tables:
            for device, start, end in connection.execute(
                f'SELECT deviceId, start, "end" FROM CUPTI_ACTIVITY_KIND_{table}'
            ):
                work.setdefault(device, []).append((start, end))
    connection.close()
    with open_trace(path) as trace:
        found = gaps(trace, top=10_000)
    assert {each.device for each in found.devices} == set(work)
    for each in found.devices:
        own = work[each.device]
        islands = list(merged(sorted(own)))
        assert each.span == islands[-1][1] - islands[0][0]
        assert (each.busy, each.gaps) == (union_length(own), len(islands) - 1)
        assert each.idle == each.span - each.busy
        lengths = [after[0] - before[1] for before, after in pairwise(islands)]
        assert sorted(gap.length for gap in found.gaps if gap.device == each.device) == sorted(lengths)
    assert found.ranked == sum(each.idle for each in found.devices)
    assert [gap.length for gap in found.gaps] == sorted((gap.length for gap in found.gaps), reverse=True)


def test_the_longest_are_ranked_and_the_rest_is_still_counted(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite")
    for start in (0, 20, 50, 61, 200):
        export.kernel(f"k{start}", start, start + 10)
    with open_trace(export.close()) as trace:
        found = gaps(trace, top=2)
    assert [(gap.start, gap.length, gap.before.name, gap.after.name) for gap in found.gaps] == [
        (71, 129, "k61", "k200"),
        (30, 20, "k20", "k50"),
    ]
    (idle,) = found.devices
    assert (idle.idle, idle.gaps, idle.span, found.ranked) == (10 + 20 + 1 + 129, 4, 210, 149)


def test_a_copy_on_another_stream_fills_the_gap(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite").kernel("a", 0, 10).kernel("b", 100, 110)
    export.copy(10, 60, stream=9).memset(60, 95, stream=9)
    gap = only(export)
    assert (gap.start, gap.end, gap.before.name, gap.before.stream) == (95, 100, "memset", 9)


def test_work_before_the_clocks_zero_counts_like_any_other(tmp_path: Path) -> None:
    gap = only(Export(tmp_path / "t.sqlite").kernel("a", -100, -60).kernel("b", -20, 0))
    assert (gap.start, gap.end) == (-60, -20)


def test_each_device_has_its_own_idle_time(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite")
    for device in (0, 1):
        for start in range(0, 1000, 100):
            export.kernel("k", start, start + 90, device=device, stream=7)
    with open_trace(export.close()) as trace:
        found = gaps(trace)
    assert [(each.device, each.busy, each.idle, each.gaps) for each in found.devices] == [
        (0, 900, 90, 9),
        (1, 900, 90, 9),
    ]


def test_what_lies_before_and_after_is_not_idle(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite").call("cudaMalloc_v3020", 0, 400)
    export.kernel("a", 500, 600).kernel("b", 600, 700).call("cudaFree_v3020", 900, 1000)
    with open_trace(export.close()) as trace:
        (idle,) = gaps(trace).devices
    assert (idle.before_first, idle.after_last, idle.idle) == (500, 300, 0)


def test_rows_out_of_order_give_the_same_gaps(tmp_path: Path) -> None:
    rows = [(0, 10), (20, 90), (30, 40), (100, 110), (110, 111), (150, 160)]
    found: list[Gaps] = []
    for number, order in enumerate((rows, rows[::-1])):
        export = Export(tmp_path / f"{number}.sqlite")
        for start, end in order:
            export.kernel(f"k{start}", start, end, correlation=start + 1)
        with open_trace(export.close()) as trace:
            found.append(gaps(trace))
    assert found[0] == found[1]
    assert [gap.length for gap in found[0].gaps] == [39, 10, 10]


def test_a_sync_that_the_host_sat_in_is_the_cause(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite").launch("a", 0, 10 * US, 100 * US)
    export.call("cudaDeviceSynchronize_v3020", 20 * US, 104 * US).annotation("evaluate", 15 * US, 400 * US)
    export.launch("b", 290 * US, 300 * US, 310 * US)
    gap = only(export)
    assert gap.cause is Cause.SYNC
    assert gap.why == "cudaDeviceSynchronize_v3020 returned 4.0 us into the gap; launched 186.0 us later"
    assert gap.meanwhile.launched_at == 290 * US
    assert [(part.name, part.count, part.length) for part in gap.meanwhile.ranges] == [("evaluate", 1, 200 * US)]
    assert [(part.name, part.length) for part in gap.meanwhile.calls] == [
        ("cudaDeviceSynchronize_v3020", 4 * US),
        ("cudaLaunchKernel_v7000", 5),
    ]


def test_a_sync_on_another_thread_is_not(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite").launch("a", 0, 10 * US, 100 * US)
    export.call("cudaDeviceSynchronize_v3020", 20 * US, 104 * US, tid=7)
    export.launch("b", 290 * US, 300 * US, 310 * US)
    assert only(export).cause is Cause.HOST


def test_a_host_that_does_something_else(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite").launch("a", 0, 10 * US, 100 * US)
    export.call("cudaMalloc_v3020", 110 * US, 250 * US).annotation("load batch", 90 * US, 270 * US)
    export.annotation("next(loader)", 95 * US, 260 * US)
    export.row(
        "OSRT_API", start=111 * US, end=112 * US, globalTid=(1 << 48) | (100 << 24) | 100, nameId=export.string("read")
    )
    export.launch("b", 290 * US, 300 * US, 310 * US)
    gap = only(export)
    assert gap.cause is Cause.HOST
    assert gap.why == ("launched 190.0 us into the gap; in cudaMalloc_v3020 for 140.0 us")
    assert gap.meanwhile.range == "next(loader)"  # not the one around it, though that covers more
    assert [(part.name, part.length) for part in gap.meanwhile.os_calls] == [("read", US)]


def test_a_launch_that_takes_its_time(tmp_path: Path) -> None:
    slow_call = (
        Export(tmp_path / "a.sqlite").launch("a", 0, 10 * US, 100 * US).launch("b", 105 * US, 140 * US, 150 * US)
    )
    assert only(slow_call).cause is Cause.LATENCY
    early = Export(tmp_path / "b.sqlite").launch("a", 0, 10 * US, 100 * US).launch("b", 90 * US, 103 * US, 150 * US)
    gap = only(early)
    assert (gap.cause, gap.why) == (Cause.LATENCY, "launched 10.0 us before the gap")


def test_work_that_was_launched_long_ago_waits_for_something(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite").launch("a", 0, 10 * US, 100 * US).launch("b", 90 * US, 300 * US, 350 * US)
    assert only(export).cause is Cause.WAITING


def test_without_the_launching_call_the_cause_is_unknown(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite").kernel("a", 0, 10).kernel("b", 50, 60)
    export.call("cudaLaunchKernel_v7000", 20, 30, pid=200, correlation=2)  # the same id in another process
    gap = only(export)
    assert (gap.cause, gap.meanwhile.calls) == (Cause.UNKNOWN, ())


def test_causes_are_summed(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite").launch("a", 0, 10 * US, 100 * US)
    export.launch("b", 290 * US, 300 * US, 310 * US).launch("c", 305 * US, 315 * US, 320 * US)
    export.kernel("d", 400 * US, 401 * US)
    with open_trace(export.close()) as trace:
        causes = gaps(trace).causes
    assert [(each.cause, each.gaps, each.length) for each in causes] == [
        (Cause.HOST, 1, 200 * US),
        (Cause.UNKNOWN, 1, 80 * US),
        (Cause.LATENCY, 1, 5 * US),
    ]


def test_graph_launches_without_a_trace_of_their_work_are_refused(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite", mode="Graph").kernel("a", 0, 10).kernel("b", 1000, 1010)
    export.call("cudaGraphLaunch_v10000", 100, 110).call("cudaGraphLaunch_v10000", 200, 210)
    with open_trace(export.close()) as trace, pytest.raises(UserError, match="idle time cannot be told: 2 launches"):
        gaps(trace)


def test_graphs_as_a_whole_are_busy(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite", mode="Graph").kernel("a", 0, 10).kernel("b", 1000, 1010)
    export.call("cudaGraphLaunch_v10000", 1, 5, correlation=77)
    export.row("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", **export.place(10, 990, 0, 7, 100, 77), graphId=3)
    gap = only(export)
    assert (gap.length, gap.before.name) == (10, "CUDA graph 3")


def test_graphs_without_times_are_refused(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite", mode="Graph").kernel("a", 0, 10).kernel("b", 1000, 1010)
    export.row("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", **export.place(0, 0, 0, 7, 100, 77), graphId=3)
    with open_trace(export.close()) as trace, pytest.raises(UserError, match="1 launches of CUDA graphs have no times"):
        gaps(trace)


def test_node_mode_needs_no_graph_rows(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite", mode="Node").kernel("a", 0, 10, graphNodeId=5).kernel("b", 20, 30)
    export.call("cudaGraphLaunch_v10000", 1, 5)
    assert only(export).length == 10


def test_a_window_has_its_own_gaps(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite")
    for start in (0, 100, 150, 400):
        export.kernel("k", start, start + 10)
    with open_trace(export.close()) as trace:
        found = gaps(trace, Scope(50, 300))
    assert [(gap.start, gap.end) for gap in found.gaps] == [(110, 150)]


def test_nothing_on_a_gpu_is_an_error(samples: Path) -> None:
    path = samples / "nsys" / "lighttransport-gemm" / "profile.sqlite"
    with open_trace(path) as trace, pytest.raises(UserError, match="idle time needs kernels"):
        gaps(trace)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cudaDeviceSynchronize_v3020", Api.DEVICE_SYNC),
        ("cuCtxSynchronize", Api.DEVICE_SYNC),
        ("hipDeviceSynchronize", Api.DEVICE_SYNC),
        ("cudaStreamSynchronize_ptsz_v7000", Api.STREAM_SYNC),
        ("cudaEventSynchronize_v3020", Api.EVENT_SYNC),
        ("cudaEventQuery_v3020", Api.OTHER),
        ("cudaStreamWaitEvent_v3020", Api.OTHER),
        ("cudaMemcpy_v3020", Api.BLOCKING_COPY),
        ("cuMemcpyDtoH_v2", Api.BLOCKING_COPY),
        ("cudaMemcpy2D_v3020", Api.BLOCKING_COPY),
        ("cudaMemcpyAsync_v3020", Api.COPY),
        ("cuMemcpyHtoDAsync_v2", Api.COPY),
        ("cuMemcpyDtoD_v2", Api.COPY),
        ("cudaMemcpyPeerAsync_v4000", Api.COPY),
        ("cudaLaunchKernel_v7000", Api.LAUNCH),
        ("cudaLaunchKernelExC_v11060", Api.LAUNCH),
        ("cuLaunchKernelEx", Api.LAUNCH),
        ("hipExtModuleLaunchKernel", Api.LAUNCH),
        ("cudaLaunchHostFunc_v10000", Api.OTHER),
        ("cudaGraphLaunch_v10000", Api.GRAPH_LAUNCH),
        ("cudaMalloc_v3020", Api.MEMORY),
        ("cudaHostAlloc_v3020", Api.MEMORY),
        ("cuMemFree_v2", Api.MEMORY),
    ],
)
def test_kinds_of_calls(name: str, kind: Api) -> None:
    assert kind_of_call(name) is kind


def test_a_call_that_hangs_is_not_the_way_to_the_gpu(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite").launch("a", 0, 10 * US, 100 * US)
    export.call("cudaMemsetAsync_v3020", 110 * US, 290 * US, correlation=50)
    export.memset(295 * US, 300 * US, correlation=50)
    gap = only(export)
    assert gap.cause is Cause.IN_CALL
    assert gap.why == "cudaMemsetAsync_v3020 began 10.0 us into the gap and itself lasted 180.0 us"


def test_a_call_that_hung_before_the_gap_as_well(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite").launch("a", 0, 10 * US, 100 * US)
    export.call("cudaLaunchKernel_v7000", 60 * US, 180 * US, correlation=50)
    export.kernel("b", 200 * US, 210 * US, correlation=50)
    gap = only(export)
    assert gap.cause is Cause.IN_CALL
    assert (
        gap.why
        == "cudaLaunchKernel_v7000 began 40.0 us before the gap and itself lasted 120.0 us, 80.0 us of it in the gap"
    )


def test_a_call_of_the_usual_length_is_latency(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite").launch("a", 0, 10 * US, 100 * US)
    export.call("cudaLaunchKernel_v7000", 101 * US, 119 * US, correlation=50)
    export.kernel("b", 122 * US, 130 * US, correlation=50)
    assert only(export).cause is Cause.LATENCY


def test_what_pytorch_appends_to_a_range_is_left_out(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite").launch("a", 0, 10 * US, 100 * US)
    export.annotation("aten::add, seq = 12, op_id = 99", 90 * US, 300 * US)
    gap = only(export.launch("b", 290 * US, 300 * US, 310 * US))
    assert gap.meanwhile.range == "aten::add"
    assert [(part.name, part.count) for part in gap.meanwhile.ranges] == [("aten::add", 1)]
