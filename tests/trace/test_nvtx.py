"""Which range encloses each launch, and what ranges made the GPU do."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.rows import UserError
from proctor.trace import Trace, open_trace
from proctor.trace.nvtx.innermost import RANGE_OF_LAUNCH, innermost, range_paths
from proctor.trace.nvtx.paths import OUTSIDE, Paths, plain
from proctor.trace.nvtx.projection import Projection, RangeFigures, project
from proctor.trace.nvtx.ranks import by_rank
from proctor.trace.views import MARK, PUSH_POP, START_END
from tests.trace.exports import Export, process_id, thread_id


@pytest.fixture
def export(tmp_path: Path) -> Export:
    return Export(tmp_path / "trace.sqlite")


def paths_of(trace: Trace) -> dict[int, str]:
    """Path in words by the start of each kernel."""
    starts = dict(trace.rows("SELECT id, start FROM kernels"))
    return {starts[kernel]: path for kernel, path in range_paths(trace)}


def by_name(found: Projection) -> dict[str, RangeFigures]:
    return {each.name: each for each in found.ranges}


def test_a_launch_lies_in_the_ranges_open_on_its_thread(export: Export) -> None:
    export.annotation("step", 0, 100).annotation("forward", 10, 50).annotation("other thread", 0, 100, tid=7)
    export.launch("k", 20, 1000, 1100).launch("k", 60, 1100, 1150).launch("k", 200, 1200, 1300)
    export.launch("k", 30, 1400, 1500, tid=7)
    with open_trace(export.close()) as trace:
        assert paths_of(trace) == {1000: "step > forward", 1100: "step", 1400: "other thread"}
        rows = dict(trace.rows(f"SELECT correlation, path FROM {RANGE_OF_LAUNCH}"))
        assert rows[3] == OUTSIDE
        assert innermost(trace) is innermost(trace)


def test_a_correlation_id_is_of_its_process(export: Export) -> None:
    export.annotation("one", 0, 100, pid=1).annotation("two", 0, 100, pid=2)
    export.launch("k", 10, 1000, 1100, pid=1, correlation=5).launch("k", 20, 2000, 2100, pid=2, correlation=5)
    with open_trace(export.close()) as trace:
        assert paths_of(trace) == {1000: "one", 2000: "two"}


def test_a_range_holds_its_first_moment_and_not_its_last(export: Export) -> None:
    export.annotation("first", 0, 50).annotation("second", 50, 100).annotation("point", 60, 60)
    export.launch("k", 0, 1000, 1001).launch("k", 50, 1100, 1101).launch("k", 60, 1200, 1201).launch(
        "k", 100, 1300, 1301
    )
    with open_trace(export.close()) as trace:
        assert paths_of(trace) == {1000: "first", 1100: "second", 1200: "second"}
        assert by_name(project(trace))["point"].count == 1


def test_ranges_that_start_together_nest_by_length(export: Export) -> None:
    export.annotation("inner", 0, 50).annotation("outer", 0, 100).launch("k", 10, 1000, 1100)
    with open_trace(export.close()) as trace:
        assert paths_of(trace) == {1000: "outer > inner"}


def test_ranges_that_overlap_without_nesting(export: Export) -> None:
    export.annotation("a", 0, 50, kind=START_END).annotation("b", 20, 100, kind=START_END)
    for called, start in ((10, 1000), (30, 1100), (60, 1200), (110, 1300)):
        export.launch("k", called, start, start + 10)
    with open_trace(export.close()) as trace:
        assert paths_of(trace) == {1000: "a", 1100: "a > b", 1200: "b"}
        figures = by_name(project(trace))
        assert (figures["a"].operations, figures["b"].operations) == (2, 2)


def test_a_range_without_an_end_is_open_to_the_end_of_the_trace(export: Export) -> None:
    export.annotation("endless", 10, None).annotation("inside", 20, 30)
    export.launch("k", 25, 1000, 1100).launch("k", 900, 2000, 3000)
    with open_trace(export.close()) as trace:
        assert paths_of(trace) == {1000: "endless > inside", 2000: "endless"}
        endless = by_name(project(trace))["endless"]
        assert (endless.count, endless.unended, endless.operations) == (1, 1, 2)
        assert endless.cpu_ns == 3000 - 10


def test_a_range_that_ends_on_another_thread_is_of_the_whole_process(export: Export) -> None:
    export.annotation("request", 0, 100, kind=START_END, tid=1, endGlobalTid=thread_id(100, 2))
    export.annotation("here", 10, 90, tid=2).annotation("same thread", 200, 300, kind=START_END, tid=1)
    export.launch("k", 20, 1000, 1100, tid=2).launch("k", 30, 1200, 1300, tid=3).launch("k", 40, 1400, 1500, pid=9)
    export.launch("k", 250, 1600, 1700, tid=1).launch("k", 250, 1800, 1900, tid=2)
    with open_trace(export.close()) as trace:
        assert paths_of(trace) == {1000: "request > here", 1200: "request", 1600: "same thread"}


def test_thread_names_domains_and_marks_are_no_ranges(export: Export) -> None:
    export.annotation("NCCL", 0, None, kind=75, domainId=3).annotation("worker", 0, None, kind=39)
    export.annotation("here", 15, 15, kind=MARK).annotation(None, 0, 100, textId=export.string("from strings"))
    export.annotation("ncclSend", 10, 90, domainId=3).annotation(None, 20, 80, domainId=4)
    export.launch("k", 30, 1000, 1100)
    with open_trace(export.close()) as trace:
        assert paths_of(trace) == {1000: "from strings > ncclSend > (unnamed)"}
        figures = by_name(project(trace))
        assert (figures["ncclSend"].domain, figures["(unnamed)"].domain) == ("NCCL", "domain 4")
        assert set(figures) == {"from strings", "ncclSend", "(unnamed)"}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("aten::add, op_id = 7", "aten::add"),
        ("aten::mm, seq = 1, op_id = 2, sizes = [[2, 3], [3]]", "aten::mm"),
        ("step, batch = 3", "step, batch = 3"),
        ("a = b", "a = b"),
    ],
)
def test_names_lose_only_what_pytorch_appends(text: str, name: str) -> None:
    assert plain(text) == name


def test_gpu_time_is_a_union_and_a_sum_and_counts_once_in_ranges_of_one_name(export: Export) -> None:
    export.annotation("layer", 0, 100).annotation("layer", 10, 50).annotation("layer", 200, 240)
    export.launch("k", 20, 1000, 1100, stream=7).launch("k", 60, 1050, 1200, stream=8)
    export.launch("k", 210, 1150, 1250, stream=7, device=1)
    export.copy(1210, 1260, correlation=99).call("cudaMemcpyAsync_v3020", 230, 235, correlation=99)
    with open_trace(export.close()) as trace:
        layer = by_name(project(trace))["layer"]
        assert (layer.count, layer.cpu_ns) == (3, 100 + 40)
        assert (layer.launches, layer.operations, layer.kernels) == (3, 4, 3)
        assert layer.gpu_sum_ns == 100 + 150 + 100 + 50
        assert layer.gpu_busy_ns == 200 + 50 + 100  # device 0: 1000-1200, 1210-1260; device 1: 1150-1250
        assert (layer.gpu_first, layer.gpu_last) == (1000, 1260)
        nested = {each.names: each for each in project(trace, by="path").ranges}
        assert nested["layer",].operations == 4
        assert nested["layer", "layer"].operations == 1
        assert (nested["layer",].count, nested["layer", "layer"].count) == (2, 1)
        assert nested["layer", "layer"].cpu_ns == 40


def test_what_no_range_covers_is_told(export: Export) -> None:
    export.annotation("step", 0, 100).launch("k", 10, 1000, 1100).launch("k", 150, 1100, 1130)
    export.kernel("launched before the capture", 500, 900, correlation=77)
    with open_trace(export.close()) as trace:
        found = project(trace)
        assert (found.total.operations, found.total.busy_ns, found.total.sum_ns) == (3, 530, 530)
        assert (found.outside.operations, found.outside.sum_ns) == (1, 30)
        assert (found.unlaunched.operations, found.unlaunched.sum_ns) == (1, 400)


def test_a_range_around_the_recording_of_a_graph_says_so(export: Export) -> None:
    export.annotation("attention", 10, 50).annotation("replay", 100, 200)
    export.call("cudaStreamBeginCapture_v10000", 5, 8)
    for called in (20, 30):
        export.call("cudaLaunchKernel_v7000", called, called + 5, correlation=called)
    export.call("cudaStreamEndCapture_v10000", 60, 65).call("cudaGraphLaunch_v10000", 120, 130, correlation=500)
    for start in (1000, 1100):
        export.kernel("k", start, start + 50, correlation=500, graphNodeId=start)
    with open_trace(export.close()) as trace:
        figures = by_name(project(trace))
        attention, replay = figures["attention"], figures["replay"]
        assert (attention.launches, attention.captured, attention.operations) == (2, 2, 0)
        assert "graph was recorded" in attention.remark
        assert (replay.launches, replay.captured, replay.operations, replay.gpu_sum_ns) == (1, 0, 2, 100)
        assert replay.remark == ""


def test_a_range_whose_launches_left_nothing_on_the_gpu_says_so(export: Export) -> None:
    export.annotation("lost", 0, 50).call("cudaLaunchKernel_v7000", 10, 15, correlation=1).kernel("k", 500, 600, pid=2)
    with open_trace(export.close()) as trace:
        assert by_name(project(trace))["lost"].remark == "none of its 1 launches has GPU work in this trace"


def test_the_same_range_on_eight_ranks_is_kept_apart(export: Export) -> None:
    for rank in range(8):
        pid = 100 + rank
        export.annotation("step", 0, 100, pid=pid).annotation(
            "only on rank 0" if rank == 0 else "load", 200, 250, pid=pid
        )
        export.launch("k", 10, 1000, 1100 + 10 * rank, pid=pid, device=rank, correlation=1)
    with open_trace(export.close()) as trace:
        steps = [each for each in project(trace).ranges if each.name == "step"]
        assert sorted((each.pid, each.gpu_busy_ns) for each in steps) == [(100 + r, 100 + 10 * r) for r in range(8)]
        ranks = by_rank(trace)
        assert [(rank.pid, rank.devices) for rank in ranks.ranks] == [(100 + r, (r,)) for r in range(8)]
        step = next(each for each in ranks.ranges if each.name == "step")
        assert (step.slowest, step.fastest, step.skew_ns) == (107, 100, 70)
        assert step.skew == pytest.approx(70 / 170)
        assert step.even_counts
        alone = next(each for each in ranks.ranges if each.name == "only on rank 0")
        assert alone.slowest is None
        assert [each is None for each in alone.ranks] == [False] + [True] * 7
        load = next(each for each in ranks.ranges if each.name == "load")
        assert (load.measure, load.skew_ns) == ("cpu_ns", 0)


def test_a_trace_without_ranges_is_refused_by_name(export: Export) -> None:
    export.launch("k", 0, 100, 200)
    with open_trace(export.close()) as trace:
        assert len(innermost(trace).paths) == 1
        assert list(trace.rows(f"SELECT correlation, path FROM {RANGE_OF_LAUNCH}")) == [(1, OUTSIDE)]
        with pytest.raises(UserError, match="annotations"):
            project(trace)


def test_pushes_without_pops_and_names_without_end_stay_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = Paths()
    path = OUTSIDE
    for number in range(10_000):
        path = paths.child(path, f"push {number % 3}")
    assert len(paths.names(path)) == Paths.DEEPEST + 1
    assert paths.names(path)[-1] == "(deeper ranges)"
    monkeypatch.setattr(Paths, "MOST", 300)
    further = {paths.child(OUTSIDE, f"request {number}") for number in range(1000)}
    assert len(paths) <= 302
    assert "(further ranges)" in {paths[path].name for path in further}


_MEASURE = r"""
import re, sys
from pathlib import Path
from proctor.trace import open_trace
from proctor.trace.nvtx.innermost import innermost
from proctor.trace.nvtx.projection import project
def peak():  # not `ru_maxrss`: a child starts with that of the process it was forked from
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])
with open_trace(sys.argv[1]) as trace:
    trace.one("SELECT count(*) FROM kernels")
    before = peak()
    found = project(trace)
    grown = peak() - before
    print(grown, found.total.operations, len(innermost(trace).paths))
"""


@pytest.mark.slow
def test_many_ranges_take_little_memory(export: Export) -> None:
    """100,000 ranges, ten deep, around 10,000 kernels: less than 64 MB, in a process of its own."""
    for outer in range(10_000):
        begin = outer * 1000
        for depth in range(10):
            export.annotation(f"level {depth}, op_id = {outer}", begin + depth, begin + 500 - depth)
        export.launch("k", begin + 100, begin + 200, begin + 300)
    path = export.close()
    done = subprocess.run([sys.executable, "-c", _MEASURE, str(path)], capture_output=True, text=True, check=True)
    grown_kb, operations, paths = map(int, done.stdout.split())
    assert (operations, paths) == (10_000, 11)
    assert grown_kb < 64 * 1024


LAUNCHED = """
SELECT r.globalTid, r.start, k.end - k.start FROM CUPTI_ACTIVITY_KIND_KERNEL k
JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId AND (r.globalTid & ~0xFFFFFF) = k.globalPid
"""
RANGES = (
    "SELECT globalTid, start, end FROM NVTX_EVENTS WHERE eventType = 59 AND (text = :name OR text LIKE :name || ', %')"
)


@pytest.fixture(scope="module")
def real(samples: Path) -> tuple[sqlite3.Connection, Projection, dict[int, int]]:
    """A real capture of two ranks: plain SQL on it, its projection, and how many kernels have no launch in it."""
    path = samples / "nsys/nsys-ai/mfu_2gpu_before.sqlite"
    with open_trace(path) as trace:
        found = project(trace)
        launched = dict(
            trace.rows(
                f"SELECT r.path IS NULL, count(*) FROM kernels k LEFT JOIN {RANGE_OF_LAUNCH} r "
                "ON r.process = k.process AND r.correlation = k.correlation GROUP BY 1"
            )
        )
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True), found, launched


Real = tuple[sqlite3.Connection, Projection, dict[int, int]]


@pytest.mark.parametrize("name", ["FlashAttnFunc", "aten::linear", "aten::gelu", "AllToAll4D"])
def test_a_real_capture_of_two_ranks_against_plain_arithmetic(real: Real, name: str) -> None:
    connection, found, launched = real
    assert launched == {0: 3986, 1: 24}
    ranges = connection.execute(RANGES, {"name": name}).fetchall()
    kernels: dict[int, list[int]] = {}
    for thread, called, took in connection.execute(LAUNCHED):
        if any(of == thread and start <= called < end for of, start, end in ranges):
            kernels.setdefault(thread & ~0xFFFFFF, []).append(took)
    rows = {each.process: each for each in found.ranges if each.name == name}
    assert len(rows) == 2
    assert {process: row.kernels for process, row in rows.items()} == {p: len(each) for p, each in kernels.items()}
    for process, row in rows.items():
        mine = [(start, end) for thread, start, end in ranges if thread & ~0xFFFFFF == process]
        assert row.count == len(mine)
        assert row.cpu_ns == sum(end - start for start, end in mine)
        assert row.gpu_sum_ns == sum(kernels[process]) or row.operations > row.kernels


def test_annotations_of_the_pytorch_profiler_are_ranges_too(samples: Path) -> None:
    with open_trace(samples / "kineto/h100_bert_small.json.gz") as trace:
        found = project(trace)
        figures = by_name(found)
        assert (figures["ProfilerStep#6"].kernels, figures["ProfilerStep#6"].domain) == (60, "")
        linear = figures["aten::linear"]
        assert (linear.count, linear.kernels, linear.domain) == (26, 26, "PyTorch operators")
        assert found.outside.operations == found.unlaunched.operations == 0
        kernels = 'SELECT sum("end" - start) FROM kernels'
        copies = 'SELECT sum("end" - start) FROM copies'
        assert figures["ProfilerStep#6"].gpu_sum_ns == trace.one(kernels) + trace.one(copies)


def test_processes_of_a_virtual_machine_keep_their_whole_id(export: Export) -> None:
    export.annotation("step", 0, 100, pid=5).launch("k", 1, 10, 20, pid=5)
    with open_trace(export.close()) as trace:
        assert by_name(project(trace))["step"].process == process_id(5)
        assert PUSH_POP == 59


def test_work_before_the_clocks_zero_counts(export: Export) -> None:
    export.annotation("early", -500, -100)
    export.launch("k", -400, -300, -200).launch("k", -350, -150, 0)
    with open_trace(export.close()) as trace:
        assert by_name(project(trace))["early"].gpu_busy_ns == 250
