"""Watching one kernel: against SQL of its own on real captures, and on exports with what captures at hand lack."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from proctor.cli.trace import app
from proctor.rows import UserError
from proctor.trace import open_trace
from proctor.trace.launches.kernel_occupancy import occupancy_of_trace
from proctor.trace.launches.occupancy import REGISTERS, SHARED
from proctor.trace.launches.stakeout import stake_out, watch
from tests.trace.exports import Export, process_id

MFU = "nsys/nsys-ai/mfu_2gpu_before.sqlite"
VIT = "kineto/h100_vit_falconsai_nsfw.json.gz"
BERT = "kineto/h100_bert_small.json.gz"


def test_every_launch_has_its_own_ranks_call_or_none(samples: Path) -> None:
    """3,986 of 4,010 launches have their call in the window; on the correlation id alone 4,280 pairs would come out."""
    path = samples / MFU
    with open_trace(path) as trace:
        found = list(watch(trace, ".*", all_=True, nvtx=False).launches())
    assert len(found) == 4010
    assert sum(launch.call is not None for launch in found) == 3986
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as own:
        expected = dict(
            own.execute(
                "SELECT k.rowid, r.start FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON "
                "r.correlationId = k.correlationId AND (r.globalTid & ~0xFFFFFF) = k.globalPid"
            )
        )
        rows = own.execute('SELECT start, "end", globalPid, streamId, rowid FROM CUPTI_ACTIVITY_KIND_KERNEL').fetchall()
    assert len(expected) == 3986
    wanted = sorted((s, e - s, process, stream, expected.get(row)) for s, e, process, stream, row in rows)
    told = [(each.start, each.duration, each.process, each.stream, each.called) for each in found]
    assert sorted(told, key=str) == sorted(wanted, key=str)
    assert [each.start for each in found] == sorted(each.start for each in found)
    for each in found:
        assert each.latency == (None if each.called is None else each.start - each.called)


def test_flash_attention_on_two_ranks(samples: Path) -> None:
    with open_trace(samples / MFU) as trace:
        found = stake_out(trace, "flash_fwd", gpu="H100")
    assert [(each.grid, each.launches) for each in found.configurations] == [((244, 1, 6), 34), ((122, 1, 12), 34)]
    first = found.configurations[0]
    assert first.occupancy is not None
    assert (first.occupancy.blocks, first.occupancy.share, first.occupancy.limiters) == (2, 0.125, (REGISTERS,))
    assert first.waves is not None
    assert (first.waves.at_once, first.waves.full, first.waves.tail) == (264, 5, 144)
    assert first.reported_occupancy is None
    assert (first.without_call, sum(call.launches for call in first.calls)) == (2, 32)
    assert [(place.device, place.stream, place.launches) for place in first.places] in (
        [(0, 7, 17), (1, 15, 17)],
        [(1, 15, 17), (0, 7, 17)],
    )
    assert first.ranges is not None
    assert first.ranges[0].name.endswith("flash_attn::_flash_attn_forward")
    assert first.ranges[0].launches == 32
    assert found.share == pytest.approx(272_317_378 / 535_200_650, abs=1e-6)
    assert found.gpus[0].sm_count == 132
    assert "H100" in found.gpus[0].sm_origin


def test_without_a_gpu_there_is_no_occupancy_and_it_says_so(samples: Path) -> None:
    with open_trace(samples / MFU) as trace:
        found = stake_out(trace, "flash_fwd", nvtx=False)
    assert all(each.occupancy is None and each.waves is None for each in found.configurations)
    assert all(each.ranges is None for each in found.configurations)
    assert any("does not say which GPU" in remark for remark in found.remarks)


def test_clusters_as_the_driver_counted_them(samples: Path) -> None:
    """nvjet runs in clusters of 2, of which 66 fit; NCCL's in clusters of 4, of which 30 fit: 120 blocks, not 132."""
    with open_trace(samples / MFU) as trace:
        nvjet = stake_out(trace, "nvjet_tst_192x192", gpu="H100", nvtx=False).configurations[0]
        nccl = stake_out(trace, "SendRecv", gpu="H100", nvtx=False).configurations[0]
    assert (nvjet.cluster, nvjet.max_active_clusters) == ((2, 1, 1), 66)
    assert nvjet.waves is not None
    assert (nvjet.waves.at_once, nvjet.waves.limited_by_clusters, nvjet.waves.efficiency) == (132, False, 1.0)
    assert nccl.waves is not None
    assert (nccl.waves.at_once, nccl.waves.limited_by_clusters) == (120, True)


@pytest.mark.parametrize(("capture", "large", "others"), [(VIT, 74, 80), (BERT, 9, 51)])
def test_kineto_says_0_where_shared_memory_is_large(samples: Path, capture: str, large: int, others: int) -> None:
    """Everywhere else its estimate is what the grid can reach, to a percent."""
    with open_trace(samples / capture) as trace:
        found = stake_out(trace, ".*", all_=True, nvtx=False)
    zero = agreed = 0
    for each in found.configurations:
        assert each.occupancy is not None
        assert each.waves is not None
        if (each.static_shared or 0) + (each.dynamic_shared or 0) >= 65_536:
            assert (each.reported_occupancy, each.occupancy.blocks > 0) == (0, True)
            zero += each.launches
        else:
            assert each.reported_occupancy == pytest.approx(100 * each.waves.filled, abs=1)
            agreed += each.launches
    assert (zero, agreed) == (large, others)
    assert any(f"0 % for {large} launches" in remark for remark in found.remarks)
    assert "TARGET_INFO_GPU" not in found.gpus[0].origin


def test_occupancy_of_a_trace_is_weighted_by_time(samples: Path) -> None:
    with open_trace(samples / VIT) as trace:
        found = occupancy_of_trace(trace)
        watched = stake_out(trace, ".*", all_=True, nvtx=False)
    assert found.total == found.known == watched.total
    expected = sum(c.occupancy.share * c.times.total for c in watched.configurations if c.occupancy) / watched.total
    assert found.occupancy == pytest.approx(expected)
    limited = sum(c.times.total for c in watched.configurations if c.occupancy and SHARED in c.occupancy.limiters)
    assert found.limiters[SHARED] == limited
    assert sum(each.reported_zero for each in found.kernels) == 74
    assert [each.total for each in found.kernels] == sorted((each.total for each in found.kernels), reverse=True)


def test_the_small_capture_says_its_own_limits(samples: Path) -> None:
    with open_trace(samples / "nsys/nsys-ai/mock.sqlite") as trace:
        found = occupancy_of_trace(trace)
    assert found.gpus[0].origin.startswith("TARGET_INFO_GPU")
    assert (found.gpus[0].sm_count, found.gpus[0].compute) == (68, (8, 6))
    assert [each.occupancy for each in found.kernels] == [pytest.approx(16 / 48), 1.0]


def test_a_capture_without_kernels_says_why(samples: Path) -> None:
    with open_trace(samples / "nsys/lighttransport-gemm/profile.sqlite") as trace:
        with pytest.raises(UserError, match="needs kernels"):
            stake_out(trace, "gemm")
        with pytest.raises(UserError, match="needs kernels"):
            occupancy_of_trace(trace)


def test_launches_are_grouped_by_what_they_ask_for(tmp_path: Path) -> None:
    """Registers and local memory are a launch's own; stream, rank and what the driver set aside do not count."""
    export = Export(tmp_path / "a.sqlite").gpu(0).gpu(1)
    for at in range(30):
        export.kernel(
            "k", 1000 * at, 1000 * at + 100, grid=(100 + at % 3, 1, 1), stream=7 + at % 2, device=at % 2,
            pid=100 + at % 2, sharedMemoryExecuted=32768 if at % 2 else 65536,
        )  # fmt: skip
    export.kernel("k", 40_000, 40_100, grid=(100, 1, 1), registers=40)
    export.kernel("k", 41_000, 41_100, grid=(100, 1, 1), localMemoryPerThread=16)
    with open_trace(export.close()) as trace:
        found = stake_out(trace, "k")
    assert [each.launches for each in found.configurations] == [10, 10, 10, 1, 1]
    assert sorted(each.grid[0] or 0 for each in found.configurations) == [100, 100, 100, 101, 102]
    first = found.configurations[0]
    assert first.shared_executed == (32768, 65536)
    assert [(place.process, place.device, place.launches) for place in first.places] == [
        (process_id(100), 0, 5),
        (process_id(101), 1, 5),
    ]
    assert {(each.registers, each.local_per_thread) for each in found.configurations} == {(32, 0), (40, 0), (32, 16)}


def test_equal_launches_on_different_gpus_are_apart(tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite").gpu(0)
    export.gpu(1, "NVIDIA A40", 84, maxWarpsPerSm=48, maxBlocksPerSm=16, computeMajor=8, computeMinor=6,
               maxShmemPerSm=102_400, maxShmemPerBlockOptin=101_376)  # fmt: skip
    export.kernel("k", 0, 100, device=0).kernel("k", 200, 400, device=1)
    with open_trace(export.close()) as trace:
        found = stake_out(trace, "k")
    assert len(found.gpus) == 2
    blocks = {found.gpus[c.gpu or 0].compute: c.occupancy.blocks for c in found.configurations if c.occupancy}
    assert blocks == {(8, 6): 12, (9, 0): 16}


def test_a_launch_takes_the_call_of_its_own_process(tmp_path: Path) -> None:
    """Both ranks count from 1. The third launch has no call at all; other processes have calls with its number."""
    export = Export(tmp_path / "a.sqlite").gpu()
    export.kernel("k", 1000, 1100, pid=100, correlation=1).call("a", 900, 950, pid=100, correlation=1)
    export.kernel("k", 2000, 2100, pid=200, correlation=1).call("b", 1500, 1900, pid=200, correlation=1)
    export.kernel("k", 3000, 3100, pid=300, correlation=1)
    export.kernel("k", 4000, 4100, pid=100, correlation=2).call("a", 3990, 4020, pid=100, correlation=2)
    with open_trace(export.close()) as trace:
        watched = watch(trace, "k")
        told = [(each.pid, each.call, each.latency, each.queued) for each in watched.launches()]
    assert told == [(100, "a", 100, 50), (200, "b", 500, 100), (300, None, None, None), (100, "a", 10, None)]
    only = watched.found.configurations[0]
    assert (only.without_call, watched.found.without_call) == (1, 1)
    assert only.latency is not None
    assert only.queued is not None
    assert (only.latency.count, only.queued.count) == (3, 2)
    assert any("1 launches have no API call" in remark or "no API call" in remark for remark in watched.found.remarks)


def test_kernels_of_a_graph_share_its_call_and_the_outer_of_two_calls_counts(tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite", mode="Node").gpu()
    for at in range(3):
        export.kernel("k", 1000 + 100 * at, 1050 + 100 * at, correlation=9, graphNodeId=at + 1)
    export.call("cuGraphLaunch", 510, 590, correlation=9).call("cudaGraphLaunch", 500, 600, correlation=9)
    with open_trace(export.close()) as trace:
        watched = watch(trace, "k")
    assert [(each.call, each.latency) for each in watched.launches()] == [
        ("cudaGraphLaunch", 500 + 100 * at) for at in range(3)
    ]
    assert watched.found.configurations[0].in_graph


def test_rows_out_of_order_and_rows_that_end_before_they_start(tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite").gpu()
    for at in (3, 1, 2):
        export.launch("k", 1000 * at - 50, 1000 * at, 1000 * at + 10 * at)
    export.kernel("k", 9000, 8000)  # such rows are left out by the views, and the trace has a note
    with open_trace(export.close()) as trace:
        watched = watch(trace, "k")
    assert [(each.start, each.duration, each.latency) for each in watched.launches()] == [
        (1000, 10, 50),
        (2000, 20, 50),
        (3000, 30, 50),
    ]


def test_zero_grids_and_old_schemas(tmp_path: Path) -> None:
    """Schema 2.9.1 has neither clusters nor green contexts; NULL and 0 are not the same."""
    path = tmp_path / "old.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE EXPORT_META_DATA (name TEXT, value TEXT)")
        connection.execute("INSERT INTO EXPORT_META_DATA VALUES ('EXPORT_SCHEMA_VERSION', '2.9.1')")
        connection.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        connection.execute("INSERT INTO StringIds VALUES (1, 'k')")
        connection.execute(
            'CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, "end" INTEGER, deviceId INTEGER,'
            " contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,"
            " demangledName INTEGER, shortName INTEGER,"
            " registersPerThread INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER,"
            " blockZ INTEGER, staticSharedMemory INTEGER, dynamicSharedMemory INTEGER)"
        )
        insert = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 1, 7, ?, 1, 1, 1, ?, ?, 1, 1, ?, 1, 1, ?, ?)"
        connection.execute(insert, (0, 1000, 1, 32, 0, 128, 0, 0))
        connection.execute(insert, (2000, 2500, 2, None, 10, 128, None, None))
        connection.execute(insert, (3000, 3100, None, 32, 10, None, 0, 0))
    with open_trace(path) as trace:
        found = stake_out(trace, "k", gpu="A100")
        everything = occupancy_of_trace(trace, gpu="A100")
    empty, unknown, nothing = found.configurations
    assert empty.occupancy is not None
    assert (empty.occupancy.blocks, empty.waves, empty.cluster) == (16, None, (None, None, None))
    assert unknown.occupancy is not None
    assert (unknown.occupancy.unknown, unknown.waves) == ((REGISTERS, SHARED), None)
    assert (nothing.block, nothing.occupancy) == ((None, 1, 1), None)
    assert (everything.total, everything.known) == (1600, 1500)
    for words in (["stakeout", str(path), "k", "--launches"], ["occupancy", str(path)]):
        shown = CliRunner().invoke(app, [*words, "--gpu", "A100"], catch_exceptions=False).stdout
        assert "108 SMs" in shown


def test_nonsense_in_a_column_is_as_good_as_nothing(tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite").gpu()
    export.kernel("k", 0, 100, registers=-7, dynamicSharedMemory="much", correlation=1 << 62)
    export.kernel("k", 200, 300, block=(-4, 1, 1)).call("call", 0, 1, correlation=1 << 62)
    with open_trace(export.close()) as trace:
        watched = watch(trace, "k")
        assert occupancy_of_trace(trace).known == 100
    assert [each.call for each in watched.launches()] == [None, None]
    assert [each.occupancy and each.occupancy.unknown for each in watched.found.configurations] in (
        [(REGISTERS, SHARED), None],
        [None, (REGISTERS, SHARED)],
    )


def test_what_the_driver_set_aside_can_hold_fewer_blocks(tmp_path: Path) -> None:
    """32 blocks of 1,152 bytes need 36,864 bytes of shared memory; the driver set 16,384 aside."""
    export = Export(tmp_path / "a.sqlite").gpu()
    export.kernel("k", 0, 100, block=(32, 1, 1), staticSharedMemory=16, sharedMemoryExecuted=16_384)
    with open_trace(export.close()) as trace:
        only = stake_out(trace, "k").configurations[0]
    assert only.occupancy is not None
    assert only.occupancy_executed is not None
    assert (only.occupancy.blocks, only.occupancy_executed.blocks) == (32, 14)


def test_green_contexts_have_unknown_sms(tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite").gpu().kernel("k", 0, 100, greenContextId=3)
    with open_trace(export.close()) as trace:
        found = stake_out(trace, "k")
    assert found.configurations[0].waves is None
    assert any("green context" in remark for remark in found.remarks)


def test_the_slowest_launches_are_named(tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite").gpu()
    chance = random.Random(3)
    for at in range(100):
        export.launch("k", 10_000 * at, 10_000 * at + 500, 10_000 * at + 5500 + chance.randint(0, 50))
    export.launch("k", 2_000_000, 2_000_500, 2_090_500)
    with open_trace(export.close()) as trace:
        found = stake_out(trace, "k")
    assert [(each.start, each.duration) for each in found.slowest] == [(2_000_500, 90_000)]
    assert found.slowest[0].of_median == pytest.approx(90_000 / found.configurations[0].times.median)
