"""The census against the plainest SQL over the raw tables of real captures, and on exports made for one question."""

from __future__ import annotations

import sqlite3
import statistics
from math import ceil
from pathlib import Path

import pytest

from proctor.rows import UserError
from proctor.trace import open_trace
from proctor.trace.work.census import Census, Line, census, kept_census
from proctor.trace.work.census_rows import totals
from proctor.trace.work.intervals import union_length
from proctor.trace.work.scope import By, Scope
from tests.trace.exports import Export

CAPTURES = ("mfu_2gpu_before", "mfu_2gpu_after", "h100_2gpu_1s", "mock")
FIGURES = {
    "mfu_2gpu_before": (4010, 535_200_650, 27, 11),
    "mfu_2gpu_after": (3587, 488_835_406, 27, 11),
    "h100_2gpu_1s": (3442, 44_829_522, 41, 15),
    "mock": (2, 4_129, 2, 2),
}
KERNELS = "SELECT k.*, s.value FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName"


def raw(path: Path, sql: str) -> list[sqlite3.Row]:
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    connection.row_factory = sqlite3.Row
    with connection:
        return connection.execute(sql).fetchall()


def line_of(found: Census, key: str) -> Line:
    return next(line for line in found.lines if line.key == key)


@pytest.mark.parametrize("name", CAPTURES)
def test_every_figure_of_a_real_capture(samples: Path, name: str) -> None:
    path = samples / "nsys" / "nsys-ai" / f"{name}.sqlite"
    rows = raw(path, KERNELS)
    with open_trace(path) as trace:
        found = census(trace)
        cheap = totals(trace)
    by_name: dict[str, list[sqlite3.Row]] = {}
    for row in rows:
        by_name.setdefault(row["value"], []).append(row)
    assert (found.calls, found.total, len(found.lines)) == FIGURES[name][:3]
    assert {line.key for line in found.lines} == set(by_name)
    for line in found.lines:
        own = by_name[line.key]
        durations = sorted(row["end"] - row["start"] for row in own)
        assert (line.calls, line.total) == (len(own), sum(durations))
        assert (line.least, line.most) == (durations[0], durations[-1])
        assert line.median == statistics.median(durations)
        assert line.p95 == durations[ceil(0.95 * len(durations)) - 1]
        assert line.error == 0
        assert line.mean == pytest.approx(statistics.mean(durations))
        assert line.share == pytest.approx(sum(durations) / found.total)
        assert (line.first, line.last) == (min(row["start"] for row in own), max(row["end"] for row in own))
        assert line.devices == tuple(sorted({row["deviceId"] for row in own}))
        assert {stream.process for stream in line.streams} == {row["globalPid"] for row in own}
        total = cheap[own[0]["demangledName"]]
        assert (total.calls, total.total, total.least, total.most) == (
            len(own), sum(durations), durations[0], durations[-1],
        )  # fmt: skip
        assert total.mean == line.mean
    assert [line.total for line in found.lines] == sorted((line.total for line in found.lines), reverse=True)


@pytest.mark.parametrize("name", CAPTURES)
def test_busy_time_of_a_real_capture_is_a_union(samples: Path, name: str) -> None:
    path = samples / "nsys" / "nsys-ai" / f"{name}.sqlite"
    with open_trace(path) as trace:
        found = census(trace)
    streams: dict[tuple[int, int, int, int], list[tuple[int, int]]] = {}
    for row in raw(path, KERNELS):
        place = (row["globalPid"], row["deviceId"], row["contextId"], row["streamId"])
        streams.setdefault(place, []).append((row["start"], row["end"]))
    assert len(found.streams) == len(streams)
    for busy in found.streams:
        assert busy.stream is not None
        where = busy.stream
        own = streams[where.process, where.device, where.context, where.stream]
        assert busy.busy == union_length(own)
        assert busy.sum == sum(end - start for start, end in own)
    assert sum(busy.sum for busy in found.devices) == found.total
    assert all(busy.busy <= busy.sum and busy.share <= 1 for busy in found.devices)


def test_an_overlap_on_one_stream_counts_once(samples: Path) -> None:
    with open_trace(samples / "nsys" / "nsys-ai" / "mfu_2gpu_before.sqlite") as trace:
        found = census(trace)
    seven = next(busy for busy in found.streams if busy.stream is not None and busy.stream.stream == 7)
    assert (seven.sum, seven.sum - seven.busy) == (270_875_926, 12_442)


@pytest.mark.parametrize("name", CAPTURES[:3])
def test_groupings_add_up_to_the_same(samples: Path, name: str) -> None:
    path = samples / "nsys" / "nsys-ai" / f"{name}.sqlite"
    calls, total, _, shorts = FIGURES[name]
    with open_trace(path) as trace:
        for by in By:
            found = census(trace, by)
            assert (sum(line.calls for line in found.lines), sum(line.total for line in found.lines)) == (calls, total)
            assert sum(line.share for line in found.lines) == pytest.approx(1)
        assert len(census(trace, "short").lines) >= shorts
        copies = census(trace).copies
    numbers = {"device to device": 8, "host to device": 1, "device to host": 2}
    memories = {"pageable": 0, "pinned": 1, "device": 2}
    counted = {
        (numbers[copy.kind], memories[copy.source], memories[copy.target]): (copy.calls, copy.bytes, copy.total)
        for copy in copies
    }
    expected: dict[tuple[int, int, int], tuple[int, int, int]] = {}
    for row in raw(path, "SELECT * FROM CUPTI_ACTIVITY_KIND_MEMCPY"):
        key = (row["copyKind"], row["srcKind"], row["dstKind"])
        before = expected.get(key, (0, 0, 0))
        expected[key] = (before[0] + 1, before[1] + row["bytes"], before[2] + row["end"] - row["start"])
    assert counted == expected


def test_a_kineto_trace(samples: Path) -> None:
    with open_trace(samples / "kineto" / "h100_bert_small.json.gz") as trace:
        found = census(trace)
        by_category = census(trace, By.CATEGORY)
    assert (found.calls, len(found.lines)) == (60, 11)
    assert found.total == pytest.approx(307_200, rel=0.001)
    assert by_category.lines[0].key == "gemm"


def test_wrappers_are_never_one_group(tmp_path: Path) -> None:
    attention = "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<int>>>(T1::Params)"
    gemm = "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<int>>(T1::Params)"
    export = Export(tmp_path / "t.sqlite")
    export.kernel(attention, 0, 70, short="device_kernel").kernel(gemm, 100, 130, short="device_kernel")
    export.kernel("add<int>", 200, 210, short="add").kernel("add<float>", 220, 225, short="add")
    with open_trace(export.close()) as trace:
        found = census(trace, By.SHORT)
    assert [(line.key, line.total, line.names) for line in found.lines] == [
        (attention, 70, 1),
        (gemm, 30, 1),
        ("add", 15, 2),
    ]


def test_two_devices_with_the_same_stream_are_two_streams(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite")
    for device in (0, 1):
        for start in range(0, 1000, 100):
            export.kernel("k", start, start + 90, device=device, stream=7)
    with open_trace(export.close()) as trace:
        found = census(trace)
    assert [(busy.device, busy.busy, busy.span) for busy in found.streams] == [(0, 900, 990), (1, 900, 990)]
    assert [round(busy.share, 3) for busy in found.devices] == [0.909, 0.909]


def test_kernels_side_by_side_are_busy_once(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite")
    export.kernel("a", 0, 100, stream=1).kernel("a", 50, 150, stream=2).kernel("a", 60, 90, stream=2)
    with open_trace(export.close()) as trace:
        found = census(trace)
    assert [(busy.busy, busy.sum, busy.span) for busy in found.devices] == [(150, 230, 150)]
    assert [(busy.busy, busy.sum) for busy in found.streams] == [(100, 100), (100, 130)]


def test_syncs_and_calls_are_no_kernels(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite").kernel("ncclDevKernel_AllReduce", 0, 100)
    export.sync(0, 500).call("cudaDeviceSynchronize_v3020", 0, 600)
    with open_trace(export.close()) as trace:
        found = census(trace)
    assert (found.calls, found.total, found.devices[0].busy) == (1, 100, 100)


def test_a_window_counts_what_starts_in_it(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite")
    export.kernel("a", 0, 10).kernel("a", 10, 40).kernel("b", 20, 25, device=1).kernel("a", 30, 31)
    export.copy(10, 12, bytes=5).copy(90, 95)
    with open_trace(export.close()) as trace:
        found = census(trace, scope=Scope(10, 30))
        one = census(trace, scope=Scope(device=1))
    assert [(line.key, line.calls, line.total) for line in found.lines] == [("a", 1, 30), ("b", 1, 5)]
    assert [(copy.calls, copy.bytes) for copy in found.copies] == [(1, 5)]
    assert [(line.key, line.devices) for line in one.lines] == [("b", (1,))]


def test_by_range_takes_the_innermost_around_the_launch(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite")
    export.annotation("step", 0, 1000).annotation("layer", 100, 200)
    export.launch("k", 110, 5000, 5010).launch("k", 300, 6000, 6003).launch("k", 2000, 7000, 7001)
    export.kernel("k", 8000, 8002)
    with open_trace(export.close()) as trace:
        found = census(trace, By.NVTX)
    assert [(line.key, line.total) for line in found.lines] == [
        ("layer", 10),
        ("step", 3),
        ("(the trace has no call that launched it)", 2),
        ("(outside of every range)", 1),
    ]


def test_a_trace_without_kernels_says_so(samples: Path) -> None:
    with open_trace(samples / "nsys" / "lighttransport-gemm" / "profile.sqlite") as trace:
        with pytest.raises(UserError, match="a census needs kernels") as caught:
            census(trace)
        assert "driver" in str(caught.value)


def test_a_kept_census_is_the_same(samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path))
    with open_trace(samples / "nsys" / "nsys-ai" / "mfu_2gpu_after.sqlite") as trace:
        first = kept_census(trace, "category")
        monkeypatch.setattr("proctor.trace.work.census.census", None)  # what is kept is not worked out again
        assert kept_census(trace, "category") == first
    assert sum(line.calls for line in first.lines) == FIGURES["mfu_2gpu_after"][0]
