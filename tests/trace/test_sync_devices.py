"""A synchronisation is on the GPU of its context, whatever its own row says."""

from __future__ import annotations

from pathlib import Path

from proctor.trace import open_trace
from proctor.trace.timeline.events import Kind
from proctor.trace.timeline.timeline import timeline
from tests.trace.exports import Export, process_id


def test_the_context_says_where_a_sync_was(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite")
    export.kernel("a", 0, 10, pid=100, device=0).kernel("b", 0, 10, pid=101, device=1)
    export.connection.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET contextId = 2 WHERE deviceId = 1")
    for pid, context, device in ((100, 1, 0), (101, 2, 0), (101, 9, 0)):
        export.row(
            "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", start=20, end=30, deviceId=device, contextId=context, streamId=7,
            correlationId=0, globalPid=process_id(pid), syncType=3, eventId=0,
        )  # fmt: skip
    with open_trace(export.close()) as trace:
        found = list(trace.rows("SELECT process >> 24 & 16777215, context, device FROM syncs ORDER BY id"))
        on_one = [event.context for event in timeline(trace, kinds=[Kind.SYNC], device=1)]
        gpus = [(gpu.device, gpu.process) for gpu in trace.gpus]
    assert found == [(100, 1, 0), (101, 2, 1), (101, 9, 0)]  # of context 9 nothing else is known
    assert on_one == [2]
    assert (0, process_id(101)) not in gpus


def test_the_table_of_contexts_says_it_where_nothing_ran(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite").kernel("a", 0, 10, pid=100)
    export.row(
        "TARGET_INFO_CUDA_CONTEXT_INFO", nullStreamId=7, hwId=1, vmId=0, processId=101, deviceId=3, contextId=2,
        isGreenContext=0,
    )  # fmt: skip
    export.row(
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", start=20, end=30, deviceId=0, contextId=2, streamId=7, correlationId=0,
        globalPid=process_id(101), syncType=3, eventId=0,
    )  # fmt: skip
    with open_trace(export.close()) as trace:
        assert trace.one("SELECT device FROM syncs") == 3


def test_a_real_capture_that_puts_every_sync_on_device_0(samples: Path) -> None:
    with open_trace(samples / "nsys" / "nsys-ai" / "mfu_2gpu_before.sqlite") as trace:
        counts = "SELECT process >> 24 & 16777215, device, count(*) FROM {} GROUP BY 1, 2"
        assert list(trace.rows(counts.format("kernels"))) == [(144, 0, 1993), (145, 1, 2017)]
        assert list(trace.rows(counts.format("syncs"))) == [(144, 0, 178), (145, 1, 188)]
        raw = "SELECT DISTINCT deviceId FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
        assert list(trace.rows(raw)) == [(0,)]


def test_rows_that_name_no_context_stay(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite").kernel("a", 0, 10, device=1)
    export.row(
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", start=20, end=30, deviceId=0, contextId=0, streamId=7, correlationId=0,
        globalPid=None, syncType=3, eventId=0,
    )  # fmt: skip
    with open_trace(export.close()) as trace:
        assert trace.one("SELECT count(*) FROM syncs") == 1
