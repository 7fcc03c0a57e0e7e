"""PyTorch-profiler traces through the same views."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from decimal import Decimal
from pathlib import Path

import pytest

from proctor.trace import open_trace
from proctor.trace.model import GraphMode, Note, Origin
from proctor.trace.reading.kineto_events import copy_kinds, nanoseconds, sync_kind
from tests.trace.exports import process_id, thread_id
from tests.trace.kineto_files import call, kernel, written


def codes(notes: tuple[Note, ...]) -> list[str]:
    return [note.code for note in notes]


@pytest.mark.parametrize(
    ("name", "kernels", "names", "nanos", "pid", "operators"),
    [
        ("h100_vit_falconsai_nsfw", 154, 14, 1_220_926, 5617, 1258),
        ("h100_bert_small", 60, 11, 307_197, 19392, 479),
    ],
)
def test_real_traces(samples: Path, name: str, kernels: int, names: int, nanos: int, pid: int, operators: int) -> None:
    file = samples / f"kineto/{name}.json.gz"
    events = json.loads(gzip.decompress(file.read_bytes()), parse_float=Decimal)["traceEvents"]
    real = [event for event in events if event.get("cat") == "kernel"]
    assert sum(int(event["dur"] * 1000) for event in real) == nanos
    with open_trace(file) as trace:
        assert trace.origin is Origin.KINETO
        assert trace.schema is None
        assert trace.tool == "PyTorch profiler (Kineto), CUPTI 22"
        assert trace.one("SELECT count(*) FROM kernels") == kernels == len(real)
        assert trace.one("SELECT count(DISTINCT name) FROM kernels") == names
        assert trace.one('SELECT sum("end" - start) FROM kernels') == nanos
        starts = sorted(int(event["ts"] * 1000) for event in real)
        assert [start for (start,) in trace.rows("SELECT start FROM kernels ORDER BY 1")] == starts
        joined = (
            "SELECT count(*) FROM kernels k JOIN calls c ON c.correlation = k.correlation AND c.process = k.process"
        )
        assert trace.one(joined) == kernels
        assert [(p.process, p.pid, p.name) for p in trace.processes] == [(process_id(pid), pid, "python3")]
        gpu = trace.gpu(0, process_id(pid))
        assert (gpu.name, gpu.sm_count, gpu.compute) == ("NVIDIA H100 80GB HBM3", 132, (9, 0))
        assert gpu.limits["maxWarpsPerSm"] == 64
        assert gpu.origin == "deviceProperties"
        assert list(trace.rows("SELECT domain, count(*) FROM annotations WHERE kind = 59 GROUP BY 1")) == [
            (0, 1),
            (1, operators),
        ]
        assert codes(trace.notes) == ["left_out"]


def test_what_the_profiler_says_of_occupancy_is_kept(samples: Path) -> None:
    with open_trace(samples / "kineto/h100_vit_falconsai_nsfw.json.gz") as trace:
        sql = "SELECT count(*), max(reported_occupancy) FROM kernels WHERE dynamic_shared >= 65536"
        assert list(trace.rows(sql)) == [(74, 0)]


def test_a_kernel_has_all_its_figures(tmp_path: Path) -> None:
    with open_trace(written(tmp_path / "t.json", [call(), kernel()])) as trace:
        columns = (
            'start, "end", device, context, stream, process, correlation, grid_x, grid_y, grid_z, block_x, block_y, '
            "block_z, registers, static_shared, dynamic_shared, reported_occupancy"
        )
        assert list(trace.rows(f"SELECT {columns} FROM kernels")) == [
            (10_000, 12_000, 0, 1, 7, process_id(100), 1, 4, 5, 6, 128, 2, 1, 40, 0, 1024, 27)
        ]
        assert list(trace.rows("SELECT start, thread, process, correlation FROM calls")) == [
            (5_000, thread_id(100), process_id(100), 1)
        ]
        assert set(trace.text([1, 2]).values()) == {"cudaLaunchKernel", "k"}
        assert trace.window == (5_000, 12_000)
        assert not trace.notes


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("1623143089861113.123", 1_623_143_089_861_113_123),  # a double has 15.95 digits; these are 19
        ("1623143089861113.999", 1_623_143_089_861_113_999),
        ("1419247333471.713", 1_419_247_333_471_713),
        ("0.0005", 0),
        ("0.0015", 2),
        ("3", 3_000),
        ("1.5e3", 1_500_000),
        ("-0.25", -250),
    ],
)
def test_times_are_exact_to_the_nanosecond(tmp_path: Path, text: str, nanos: int) -> None:
    assert nanoseconds(Decimal(text)) == nanos
    file = written(tmp_path / "t.json", [call(), kernel(ts=-7777.5)])
    file.write_text(file.read_text().replace("-7777.5", text))
    with open_trace(file) as trace:
        assert trace.one("SELECT start FROM kernels") == nanos


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("Memcpy DtoH (Device -> Pinned)", (2, 2, 1)),
        ("Memcpy HtoD (Pageable -> Device)", (1, 0, 2)),
        ("Memcpy DtoD (Device -> Device)", (8, 2, 2)),
        ("Memcpy PtoP (Device -> Device)", (10, 2, 2)),
        ("Memcpy HtoD (Host -> Device)", (1, 7, 2)),
        ("CopyDeviceToHost", (0, 7, 7)),
    ],
)
def test_copies(name: str, kinds: tuple[int, int, int]) -> None:
    assert copy_kinds(name) == kinds


def test_copies_memsets_and_waits(tmp_path: Path) -> None:
    where = {"device": 0, "context": 1, "stream": 7}
    between = {
        "fromDevice": 1,
        "inDevice": 0,
        "toDevice": 0,
        "inContext": 3,
        "stream": 9,
        "correlation": 4,
        "bytes": 64,
    }
    base = {"ph": "X", "pid": 0, "tid": 7, "ts": 1, "dur": 1}
    events = [
        {**base, "cat": "gpu_memcpy", "name": "Memcpy PtoP (Device -> Device)", "args": between},
        {**base, "cat": "gpu_memset", "name": "Memset (Device)", "args": {**where, "correlation": 2, "bytes": 512}},
        {**base, "cat": "cuda_sync", "name": "Context Sync", "args": {
            **where, "stream": 4294967295, "cuda_sync_kind": "Context Sync", "correlation": 3}},
        {**base, "cat": "cuda_sync", "name": "Stream Wait Event", "args": {
            **where, "cuda_sync_kind": "Stream Wait Event", "wait_on_cuda_event_id": 12, "correlation": 5}},
    ]  # fmt: skip
    with open_trace(written(tmp_path / "t.json", [call(), *events])) as trace:
        sql = "SELECT device, context, stream, kind, bytes, source_device, target_device FROM copies"
        assert list(trace.rows(sql)) == [(0, 3, 9, 10, 64, 1, 0)]
        assert list(trace.rows("SELECT bytes, memory_kind FROM memsets")) == [(512, 2)]
        assert list(trace.rows("SELECT kind, event FROM syncs ORDER BY id")) == [(4, None), (2, 12)]


@pytest.mark.parametrize(
    ("text", "kind"),
    [("Event Sync", 1), ("Stream Wait Event", 2), ("Stream Synchronize", 3), ("Device Synchronize", 4), ("?", 0)],
)
def test_waits(text: str, kind: int) -> None:
    assert sync_kind(text) == kind


def test_old_categories_and_roc_names(tmp_path: Path) -> None:
    old = [
        {**kernel(), "cat": "Kernel"},
        {**call(), "cat": "Runtime"},
        {"ph": "X", "cat": "Operator", "name": "aten::add", "pid": 100, "tid": 100, "ts": 4, "dur": 9},
        {
            "ph": "X",
            "cat": "Memset",
            "name": "Memset (Device)",
            "pid": 0,
            "tid": 7,
            "ts": 1,
            "dur": 1,
            "args": {"bytes": "8"},
        },
    ]
    with open_trace(written(tmp_path / "t.json", old)) as trace:
        assert [trace.has(view) for view in ("kernels", "calls", "annotations", "memsets")] == [True] * 4
        assert trace.one("SELECT bytes FROM memsets") == 8


def test_an_amd_gpu_has_no_compute_capability_of_nvidia(tmp_path: Path) -> None:
    amd = {
        "id": 0, "name": "AMD Instinct MI300X", "computeMajor": 9, "computeMinor": 4, "warpSize": 64, "numSms": 304,
        "maxThreadsPerMultiprocessor": 2048, "maxSharedMemoryPerMultiProcessor": 65536,
    }  # fmt: skip
    events = [call("hipLaunchKernel"), kernel("Cijk_Ailk", args={"context": None})]
    with open_trace(written(tmp_path / "t.json", events, deviceProperties=[amd])) as trace:
        gpu = trace.gpu(0, process_id(100))
        assert (gpu.name, gpu.sm_count, gpu.compute) == ("AMD Instinct MI300X", 304, None)
        assert gpu.limits["maxWarpsPerSm"] == 32
        assert trace.one("SELECT context FROM kernels") == 0


def test_ranks_in_one_file_are_kept_apart(tmp_path: Path) -> None:
    """Both ranks use correlation 1; each GPU's track tells which rank it belongs to."""
    events = [
        *(call(correlation=1, pid=100, ts=5), call(correlation=2, pid=100, ts=6)),
        *(call(correlation=1, pid=200, ts=5.5), call(correlation=3, pid=200, ts=7)),
        *(kernel("a", correlation=1, pid=0), kernel("b", correlation=2, pid=0, ts=13)),
        *(kernel("c", correlation=1, pid=1), kernel("d", correlation=3, pid=1, ts=13)),
        *(kernel("e", correlation=99, pid=1, ts=20),),
    ]
    with open_trace(written(tmp_path / "t.json", events)) as trace:
        sql = "SELECT text, (process >> 24) & 0xffffff FROM kernels JOIN strings ON strings.id = name ORDER BY 1"
        assert list(trace.rows(sql)) == [("a", 100), ("b", 100), ("c", 200), ("d", 200), ("e", 200)]


def test_ranks_on_one_track_take_the_latest_call(tmp_path: Path) -> None:
    events = [
        *(call(correlation=1, pid=100, ts=5), call(correlation=1, pid=200, ts=50)),
        *(call(correlation=2, pid=100, ts=6), call(correlation=3, pid=200, ts=51)),
        *(kernel("a", correlation=1, ts=10), kernel("b", correlation=1, ts=60)),
        *(kernel("c", correlation=2, ts=15), kernel("d", correlation=3, ts=65)),
    ]
    with open_trace(written(tmp_path / "t.json", events)) as trace:
        sql = "SELECT text, (process >> 24) & 0xffffff FROM kernels JOIN strings ON strings.id = name ORDER BY 1"
        assert list(trace.rows(sql)) == [("a", 100), ("b", 200), ("c", 100), ("d", 200)]


def test_a_rank_is_named(tmp_path: Path) -> None:
    events = [call(), kernel()]
    file = written(tmp_path / "t.json", events, distributedInfo={"rank": 3, "world_size": 8, "backend": "nccl"})
    with open_trace(file) as trace:
        assert trace.tool == "PyTorch profiler (Kineto), rank 3 of 8"


def test_threads_with_large_or_odd_numbers_stay_apart(tmp_path: Path) -> None:
    tids = [100, 140_737_353_988_928, 140_737_353_988_929, "MainThread", -5]
    events = [kernel(), *(call(correlation=number, tid=tid) for number, tid in enumerate(tids))]
    events += [{"name": "thread_name", "ph": "M", "pid": 100, "tid": tids[1], "args": {"name": "loader"}}]
    with open_trace(written(tmp_path / "t.json", events)) as trace:
        assert trace.one("SELECT count(DISTINCT thread) FROM calls") == len(tids)
        assert trace.one("SELECT count(DISTINCT process) FROM calls") == 1
        sql = "SELECT correlation FROM calls JOIN threads USING (thread)"
        assert list(trace.rows(sql)) == [(1,)]


def test_nodes_of_graphs(tmp_path: Path) -> None:
    events = [call("cudaGraphLaunch"), kernel(args={"graph id": 3, "graph node id": 17})]
    with open_trace(written(tmp_path / "t.json", events)) as trace:
        assert trace.graph_mode is GraphMode.NODE
        assert list(trace.rows("SELECT graph, graph_node FROM kernels")) == [(3, 17)]
        assert not trace.notes


def test_a_trace_of_the_cpu_alone(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 9, "tid": 9, "ts": 1.5, "dur": 2}
    with open_trace(written(tmp_path / "t.json", [event], deviceProperties=[])) as trace:
        assert codes(trace.notes) == ["no_cuda"]
        assert [process.pid for process in trace.processes] == [9]


def test_infinite_bandwidths_and_a_byte_order_mark(tmp_path: Path) -> None:
    file = written(tmp_path / "t.json", [call(), kernel(name="inf, nan", args={"memory bandwidth (GB/s)": "INF"})])
    text = file.read_text().replace('"INF"', "inf")
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    with open_trace(file) as trace:
        assert trace.one("SELECT count(*) FROM kernels") == 1


def test_a_bare_list_of_events(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps([call(), kernel()]))
    with open_trace(tmp_path / "t.json") as trace:
        assert codes(trace.notes) == ["gpu_unknown"]
        assert trace.one("SELECT count(*) FROM kernels") == 1


def test_the_environment_is_never_decoded(tmp_path: Path) -> None:
    secret = "hf_secretsecretsecret"
    file = written(tmp_path / "t.json", [call(), kernel()], metadata={"system": {"env": {"HF_TOKEN": secret}}})
    with open_trace(file) as trace:
        dump = "\n".join(trace.connection.iterdump())
        assert secret not in dump
        assert "cudaLaunchKernel" in dump


def test_nothing_is_written_beside(tmp_path: Path) -> None:
    file = written(tmp_path / "t.json", [call(), kernel()])
    before = file.read_bytes(), file.stat().st_mtime_ns
    with open_trace(file) as trace:
        trace.has("kernels")
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before
    assert [item.name for item in tmp_path.iterdir()] == ["t.json"]


def test_memory_stays_a_small_multiple_of_the_text(tmp_path: Path) -> None:
    frames = [
        {"ph": "X", "cat": "python_function", "name": f"nn.Module: Layer_{n}", "pid": 100, "tid": 100, "ts": n,
         "dur": 1, "args": {"Python id": n, "Python parent id": n - 1, "Ev Idx": n}}
        for n in range(20_000)
    ]  # fmt: skip
    events = [call(), *(kernel(ts=number) for number in range(5_000)), *frames]
    file = written(tmp_path / "t.json", events)
    del events, frames
    tracemalloc.start()
    try:
        with open_trace(file) as trace:
            assert trace.one("SELECT count(*) FROM kernels") == 5_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * file.stat().st_size + 10_000_000
