"""Overlap against a grid on which every nanosecond is looked at, waits against plain SQL, antipatterns one by one."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from proctor.rows import UserError
from proctor.trace import open_trace
from proctor.trace.overlap.antipatterns import Finding, Verdict
from proctor.trace.overlap.overlap import Overlap, overlap
from proctor.trace.work.intervals import union_length
from proctor.trace.work.scope import Scope
from tests.trace.exports import Export

GEMM = "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
PACK = "void at::native::<unnamed>::CatArrayBatchedCopy_vectorized<int>(int)"


def measured(export: Export) -> Overlap:
    with open_trace(export.close()) as trace:
        return overlap(trace)


def finding(found: Overlap, name: str) -> Finding:
    return next(each for each in found.findings if each.name == name)


def test_times_against_a_grid(tmp_path: Path) -> None:
    chance = random.Random(3)
    export = Export(tmp_path / "t.sqlite")
    ran: dict[tuple[int, str], set[int]] = {}
    for _ in range(300):
        start, device, stream = chance.randrange(3000), chance.randrange(2), chance.randrange(7, 10)
        end = start + chance.randrange(1, 40)
        kind = chance.choice(["compute", "communication", "copies", "local_copies", "memsets"])
        if kind in ("compute", "communication"):
            name = GEMM if kind == "compute" else NCCL
            export.kernel(name, start, end, device=device, stream=stream)
        elif kind == "memsets":
            export.memset(start, end, device=device, stream=stream)
        else:
            number = 8 if kind == "local_copies" else chance.choice([1, 2, 10])
            export.copy(start, end, kind=number, device=device, stream=stream)
        ran.setdefault((device, kind), set()).update(range(start, end))
    found = measured(export)
    assert len(found.devices) == 2
    for each in found.devices:
        compute, communication, copies, local, memsets = (
            ran[each.device, kind] for kind in ("compute", "communication", "copies", "local_copies", "memsets")
        )
        assert each.compute == len(compute)
        assert each.communication == len(communication)
        assert (each.copies, each.local_copies, each.memsets) == (len(copies), len(local), len(memsets))
        assert each.busy == len(compute | communication | copies | local | memsets)
        assert each.compute_and_communication == len(compute & communication)
        assert each.compute_and_copies == len(compute & copies)
        assert each.communication_and_copies == len(communication & copies)
        assert each.exposed_communication == len(communication - compute)
        assert each.exposed_copies == len(copies - compute)


@pytest.mark.parametrize("name", ["mfu_2gpu_before", "mfu_2gpu_after"])
def test_communication_of_a_real_capture(samples: Path, name: str) -> None:
    path = samples / "nsys" / "nsys-ai" / f"{name}.sqlite"
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    sql = """SELECT k.deviceId, k.start, k."end", s.value LIKE 'nccl%' FROM CUPTI_ACTIVITY_KIND_KERNEL k
        JOIN StringIds s ON s.id = k.demangledName"""
    rows = connection.execute(sql).fetchall()
    sql = """SELECT count(*), sum(r."end" - r.start) FROM CUPTI_ACTIVITY_KIND_RUNTIME r
        JOIN StringIds s ON s.id = r.nameId WHERE s.value LIKE 'cudaStreamSynchronize%'"""
    waited = connection.execute(sql).fetchone()
    sql = "SELECT count(*), sum(bytes) FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE srcKind = 0 OR dstKind = 0"
    pageable = connection.execute(sql).fetchone()
    connection.close()
    with open_trace(path) as trace:
        found = overlap(trace)
    for each in found.devices:
        nccl = [(start, end) for device, start, end, is_nccl in rows if device == each.device and is_nccl]
        rest = [(start, end) for device, start, end, is_nccl in rows if device == each.device and not is_nccl]
        assert each.communication == union_length(nccl)
        assert each.compute == union_length(rest)
        both = union_length(nccl) + union_length(rest) - union_length([*nccl, *rest])
        assert each.compute_and_communication == both
        assert each.exposed_communication == each.communication - both
    assert [(wait.calls, wait.total) for wait in found.waits] == [waited]
    assert (found.pageable.calls, found.pageable.bytes) == pageable
    assert found.pageable.known


def test_streams_are_told_apart_by_device(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite")
    for device in (0, 1):
        for start in range(0, 1000, 100):
            export.kernel(GEMM, start, start + 90, device=device, stream=7)
    found = measured(export)
    times = [(stream.stream.device, stream.time) for each in found.devices for stream in each.streams]
    assert sorted(times, key=lambda item: item[0]) == [(0, {"compute": 900}), (1, {"compute": 900})]
    assert [each.busy for each in found.devices] == [900, 900]


def test_syncs_are_no_work(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite").kernel(NCCL, 100, 200)
    export.sync(0, 1000, kind=4).sync(0, 900, kind=3).call("cudaDeviceSynchronize_v3020", 0, 950)
    found = measured(export)
    (device,) = found.devices
    assert (device.busy, device.communication, device.compute) == (100, 100, 0)
    assert [(each.kind, each.rows, each.total) for each in found.syncs] == [("context", 1, 1000), ("stream", 1, 900)]


def test_a_whole_graph_may_compute(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite").kernel(NCCL, 0, 100)
    export.row("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", **export.place(40, 70, 0, 9, 100, None), graphId=1)
    (device,) = measured(export).devices
    assert (device.graphs, device.exposed_communication, device.busy) == (30, 70, 100)


def test_waits_by_name(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite").kernel(GEMM, 0, 10)
    export.call("cudaDeviceSynchronize_v3020", 0, 100).call("cudaDeviceSynchronize_v3020", 200, 350)
    export.call("cudaMemcpy_v3020", 400, 440).call("cudaMemcpyAsync_v3020", 500, 900)
    export.call("cudaEventSynchronize_v3020", 900, 901)
    found = measured(export)
    assert [(wait.name, wait.kind, wait.calls, wait.total, wait.longest) for wait in found.waits] == [
        ("cudaDeviceSynchronize_v3020", "device-wide synchronisation", 2, 250, 150),
        ("cudaMemcpy_v3020", "blocking copy", 1, 40, 40),
        ("cudaEventSynchronize_v3020", "event synchronisation", 1, 1, 1),
    ]
    wide = finding(found, "device-wide synchronisation")
    assert wide.verdict is Verdict.FOUND
    assert wide.figures == {"calls": 2, "total": 250, "context_syncs": 0}


def test_waits_of_one_device_are_those_of_its_processes(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite").kernel(GEMM, 0, 10, pid=100).kernel(GEMM, 0, 10, device=1, pid=200)
    export.call("cudaDeviceSynchronize_v3020", 0, 100, pid=100).call("cudaDeviceSynchronize_v3020", 0, 7, pid=200)
    with open_trace(export.close()) as trace:
        found = overlap(trace, Scope(device=1))
    assert [wait.total for wait in found.waits] == [7]


def test_no_device_sync_is_said_only_where_calls_were_recorded(tmp_path: Path) -> None:
    without = measured(Export(tmp_path / "a.sqlite").kernel(GEMM, 0, 10))
    assert finding(without, "device-wide synchronisation").verdict is Verdict.UNSEEN
    with_calls = measured(Export(tmp_path / "b.sqlite").launch(GEMM, 0, 10, 20))
    assert finding(with_calls, "device-wide synchronisation").verdict is Verdict.NOT_FOUND


def turns(path: Path, *, pack_stream: int, overlapping: bool = False) -> Finding:
    export = Export(path)
    for start in range(0, 1000, 100):
        export.kernel(PACK, start, start + 40, stream=pack_stream)
        export.kernel(NCCL, start + (30 if overlapping else 45), start + 95, stream=20)
    return finding(measured(export), "single buffer")


def test_packing_and_sending_in_turns_is_a_single_buffer(tmp_path: Path) -> None:
    found = turns(tmp_path / "t.sqlite", pack_stream=7)
    assert found.verdict is Verdict.FOUND
    assert "CatArrayBatchedCopy" in found.evidence
    assert "(stream 7)" in found.evidence
    assert found.figures == {"transfers": 10, "at_once": 0, "without_packing": 0}


def test_packing_while_sending_is_not(tmp_path: Path) -> None:
    found = turns(tmp_path / "t.sqlite", pack_stream=7, overlapping=True)
    assert (found.verdict, found.figures["at_once"]) == (Verdict.NOT_FOUND, 10)


def test_turns_on_one_stream_say_nothing(tmp_path: Path) -> None:
    assert turns(tmp_path / "t.sqlite", pack_stream=20).verdict is Verdict.UNSEEN


def test_few_transfers_say_nothing(tmp_path: Path) -> None:
    found = measured(Export(tmp_path / "t.sqlite").kernel(NCCL, 0, 10).kernel(PACK, 20, 30).kernel(NCCL, 40, 50))
    assert finding(found, "single buffer").verdict is Verdict.UNSEEN
    assert finding(found, "no overlap").verdict is Verdict.UNSEEN


def test_transfers_without_packing_between_are_no_single_buffer(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite")
    for start in range(0, 1000, 100):
        export.kernel(GEMM, start, start + 40).kernel(NCCL, start + 45, start + 95, stream=20)
    assert finding(measured(export), "single buffer").verdict is Verdict.NOT_FOUND


def with_streams(path: Path, flags: dict[int, int]) -> Finding:
    export = Export(path)
    for stream in flags or (7, 20):
        export.kernel(NCCL, 0, 10, stream=stream).kernel(GEMM, 0, 10, stream=stream)
    export.connection.execute("CREATE TABLE TARGET_INFO_CUDA_STREAM (streamId, processId, contextId, priority, flag)")
    for stream, flag in flags.items():
        export.connection.execute("INSERT INTO TARGET_INFO_CUDA_STREAM VALUES (?, 100, 1, 0, ?)", (stream, flag))
    return finding(measured(export), "default stream")


def test_transfers_on_the_null_stream(tmp_path: Path) -> None:
    found = with_streams(tmp_path / "t.sqlite", {7: 3, 20: 2})
    assert found.verdict is Verdict.FOUND
    assert found.figures == {"on_null_stream": 1, "elsewhere": 1, "unknown": 0}
    assert "(7)" in found.evidence


def test_transfers_on_other_streams(tmp_path: Path) -> None:
    assert with_streams(tmp_path / "t.sqlite", {8: 1, 20: 2}).verdict is Verdict.NOT_FOUND


def test_without_a_list_of_streams_it_cannot_be_seen(tmp_path: Path) -> None:
    found = with_streams(tmp_path / "t.sqlite", {})
    assert (found.verdict, found.figures["unknown"]) == (Verdict.UNSEEN, 2)


@pytest.mark.parametrize(
    ("table", "column"),
    [("TARGET_INFO_CUDA_CONTEXT_INFO", "nullStreamId"), ("TARGET_INFO_CUDA_NULL_STREAM", "streamId")],
)
def test_contexts_name_their_null_stream(tmp_path: Path, table: str, column: str) -> None:
    export = Export(tmp_path / "t.sqlite").kernel(NCCL, 0, 10, stream=7).copy(0, 10, stream=8).kernel(NCCL, 0, 5, pid=9)
    export.connection.execute(f"CREATE TABLE {table} ({column}, processId, deviceId, contextId)")
    export.connection.execute(f"INSERT INTO {table} VALUES (7, 100, 0, 1)")
    found = finding(measured(export), "default stream")
    assert found.figures == {"on_null_stream": 1, "elsewhere": 1, "unknown": 1}


def test_the_null_stream_of_a_real_capture(samples: Path) -> None:
    with open_trace(samples / "nsys" / "nsys-ai" / "mock.sqlite") as trace:
        found = finding(overlap(trace), "default stream")
    assert (found.verdict, found.figures["on_null_stream"]) == (Verdict.FOUND, 1)


def test_no_overlap(tmp_path: Path) -> None:
    apart, together = Export(tmp_path / "a.sqlite"), Export(tmp_path / "b.sqlite")
    for start in range(0, 1000, 100):
        apart.kernel(GEMM, start, start + 50).copy(start + 50, start + 90, stream=9)
        together.kernel(GEMM, start, start + 50).copy(start + 20, start + 60, stream=9)
    found = finding(measured(apart), "no overlap")
    assert (found.verdict, found.figures) == (Verdict.FOUND, {"transfers": 10, "time": 400, "exposed": 400})
    found = finding(measured(together), "no overlap")
    assert (found.verdict, found.figures) == (Verdict.NOT_FOUND, {"transfers": 10, "time": 400, "exposed": 100})


def test_all_eight_antipatterns_are_answered(tmp_path: Path) -> None:
    found = measured(Export(tmp_path / "t.sqlite").launch(GEMM, 0, 10, 20))
    assert [each.name for each in found.findings] == [
        "wrong stream synchronised", "missing synchronisation", "device-wide synchronisation", "single buffer",
        "too many buffers", "order mismatch", "skipped collective", "default stream", "no overlap",
    ]  # fmt: skip
    assert all(each.evidence for each in found.findings)


def test_pageable_copies(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite").kernel(GEMM, 0, 1)
    export.copy(0, 10, bytes=5, srcKind=0, dstKind=2).copy(10, 30, bytes=7, srcKind=1, dstKind=2)
    found = measured(export).pageable
    assert (found.calls, found.bytes, found.total, found.known) == (1, 5, 10, True)
    silent = measured(Export(tmp_path / "s.sqlite").kernel(GEMM, 0, 1).copy(0, 10)).pageable
    assert (silent.calls, silent.known) == (0, False)


def test_nothing_on_a_gpu_is_an_error(samples: Path) -> None:
    path = samples / "nsys" / "lighttransport-gemm" / "profile.sqlite"
    with open_trace(path) as trace, pytest.raises(UserError, match="overlap needs kernels"):
        overlap(trace)


def test_a_device_is_one_however_processes_number_it(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite")
    export.kernel(GEMM, 0, 100, device=0, pid=100).kernel(GEMM, 50, 150, device=1, pid=200)
    for pid, number in ((100, 0), (200, 1)):
        export.row("TARGET_INFO_CUDA_DEVICE", gpuId=0, cudaId=number, pid=pid, uuid="GPU-1")
    found = measured(export)
    assert [(each.busy, each.pids) for each in found.devices] == [(150, (100, 200))]
