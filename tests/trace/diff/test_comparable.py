"""What the captures themselves allow: refused, lowered, or free to conclude."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from proctor.rows import UserError
from proctor.trace import open_trace
from proctor.trace.diff import diff
from proctor.trace.diff.board import State
from proctor.trace.diff.comparable import Basis, Level
from tests.trace.diff.pairs import FLASH, MODEL, K, compared, program, state, swapped
from tests.trace.exports import Export


@pytest.fixture
def before(tmp_path: Path) -> Path:
    return program(tmp_path / "a.sqlite")


def test_copies_of_a_file_are_the_same_content(before: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    copy.write_bytes(before.read_bytes())
    found = compared(before, copy)
    assert found.comparability.level is Level.SAME
    assert found.unchanged


def test_the_same_runs_written_in_two_schemas_are_equal(before: Path, tmp_path: Path) -> None:
    """2.9.1 has neither clusters nor graph ids, and keeps its metadata in another table."""
    old = program(tmp_path / "old.sqlite")
    connection = sqlite3.connect(old)
    for column in ("clusterX", "clusterY", "clusterZ", "graphId", "maxActiveClusters", "greenContextId"):
        connection.execute(f"ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN {column}")
    connection.execute("ALTER TABLE META_DATA_EXPORT RENAME TO EXPORT_META_DATA")
    connection.execute("UPDATE EXPORT_META_DATA SET value = '2.9.1' WHERE name = 'EXPORT_SCHEMA_VERSION'")
    connection.commit()
    connection.close()
    found = compared(old, before)
    with open_trace(old) as trace:
        assert str(trace.schema) == "2.9.1"
    assert found.comparability.level is Level.COMPARABLE
    assert "tools" in [limit.code for limit in found.comparability.limits]
    assert found.unchanged


def test_other_gpus_lower_what_is_said_of_times(before: Path, tmp_path: Path) -> None:
    found = compared(before, program(tmp_path / "b.sqlite", scale=1.5, gpu="NVIDIA A100-SXM4-80GB"))
    assert found.comparability.level is Level.LIMITED
    assert found.comparability.bars(Basis.TIMES)
    assert state(found, "clock") is State.SUGGESTED


def test_no_kernels_on_a_side_is_refused(before: Path, tmp_path: Path) -> None:
    empty = Export(tmp_path / "b.sqlite").call("cudaMalloc", 0, 10).close()
    found = compared(empty, before)
    assert found.comparability.level is Level.REFUSED
    assert found.comparability.reasons[0].startswith("A has no GPU work")
    assert found.changes == ()
    assert not found.unchanged


def test_whole_graphs_on_one_side_bar_names_and_counts(before: Path, tmp_path: Path) -> None:
    export = Export(tmp_path / "b.sqlite")
    for start in range(1_000, 30_000, 1_000):
        export.kernel(FLASH, start, start + 100)
        export.row("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", **export.place(start + 200, start + 900, 0, 7, 100, None))
    found = compared(before, export.close())
    assert found.comparability.bars(Basis.NAMES)
    graphs = next(change for change in found.changes if change.kind == "graph")
    assert graphs.delta_ns == 29 * 700


def test_ranks(before: Path, tmp_path: Path) -> None:
    export = Export(tmp_path / "b.sqlite")
    for pid, device in ((100, 0), (200, 1)):
        for start in range(1_000, 9_000, 1_000):
            export.kernel(FLASH, start, start + 100, pid=pid, device=device)
    found = compared(before, export.close())
    assert found.comparability.bars(Basis.COUNTS)
    assert "ranks" in [limit.code for limit in found.comparability.limits]


def test_another_driver_is_told(tmp_path: Path) -> None:
    files = []
    for driver in ("580.95.05", "591.86"):
        export = Export(tmp_path / f"{driver}.sqlite").kernel(FLASH, 1_000, 2_000)
        export.row("TARGET_INFO_SYSTEM_ENV", name="DeviceEnvironment", value="TOKEN=secret")
        export.row("TARGET_INFO_SYSTEM_ENV", name="NvDriverVersion", value=driver)
        files.append(export.close())
    found = compared(*files)
    assert "driver 580.95.05, then 591.86" in [limit.what for limit in found.comparability.limits]
    assert "secret" not in repr(found)


def test_a_range_counts_iterations(tmp_path: Path) -> None:
    a = program(tmp_path / "a.sqlite", steps=4, marked=True)
    b = program(tmp_path / "b.sqlite", swapped(MODEL, FLASH, K(FLASH, 500)), steps=5, marked=True)
    found = compared(a, b, per="step")
    assert found.iterations is not None
    assert (found.iterations.a, found.iterations.b, found.iterations.by) == (4, 5, "range")
    flash = next(change for change in found.changes if "flash" in change.name)
    # By hand: one launch a step, 4 then 5 steps; Shapley values of 4 * 400 us -> 5 * 500 us with equal rates.
    assert flash.split.iterations == pytest.approx((5 - 4) * 450_000, rel=0.001)
    assert flash.split.per_call == pytest.approx((500_000 - 400_000) * 4.5, rel=0.001)
    assert abs(flash.split.calls) <= 1
    with pytest.raises(UserError, match=r"no NVTX range 'stpe' is in this trace.*the most frequent ones are 'step'"):
        compared(a, b, per="stpe")


def test_no_repeating_unit_in_a_few_kernels(tmp_path: Path) -> None:
    a = Export(tmp_path / "a.sqlite").kernel("f", 0, 100).kernel("g", 200, 300).kernel("g", 400, 500).close()
    b = Export(tmp_path / "b.sqlite").kernel("f", 0, 100).kernel("g", 200, 350).kernel("g", 400, 900).close()
    found = compared(a, b)
    assert found.iterations is None
    unknown = next(limit for limit in found.comparability.limits if limit.code == "no_iterations")
    assert Basis.COUNTS in unknown.bars  # 500 ns, then 900 ns
    assert found.split.iterations == 0


def test_an_unsorted_file_gives_the_same(before: Path, tmp_path: Path) -> None:
    shuffled = tmp_path / "shuffled.sqlite"
    shuffled.write_bytes(before.read_bytes())
    connection = sqlite3.connect(shuffled)
    connection.execute("CREATE TABLE turned AS SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY start DESC")
    connection.execute("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")
    connection.execute("ALTER TABLE turned RENAME TO CUPTI_ACTIVITY_KIND_KERNEL")
    connection.commit()
    connection.close()
    with open_trace(before) as a, open_trace(shuffled) as b:
        found = diff(a, b)
    assert found.unchanged
    assert all(total.a == total.b for total in found.totals)


def test_graphs_that_left_nothing_make_idle_time_unknown(before: Path, tmp_path: Path) -> None:
    export = Export(tmp_path / "b.sqlite").kernel(FLASH, 1_000, 2_000).kernel(FLASH, 9_000, 9_500)
    export.call("cudaGraphLaunch_v10000", 100, 200)
    found = compared(before, export.close())
    idle = next(total for total in found.totals if total.name == "idle")
    assert (idle.a, idle.b) == (None, None)
    assert "launches of CUDA graphs left neither kernels nor times" in idle.why
    assert state(found, "host_bound") is None
    total = next(total for total in found.totals if total.name == "total")
    assert total.b == 1_500


def test_two_programs_with_hardly_a_kernel_in_common(before: Path, tmp_path: Path) -> None:
    other = program(tmp_path / "b.sqlite", [K("another_kernel", 700), MODEL[0]], gap_us=90)
    found = compared(before, other)
    programs = next(limit for limit in found.comparability.limits if limit.code == "programs")
    # 20 us of 780 us a step, and of 720 us.
    assert programs.what == "kernels that both sides have take 3% of A's and 3% of B's kernel time"
    assert state(found, "host_bound") is State.CONTESTED
    assert programs.bars == tuple(Basis)


def test_nothing_is_supported_between_two_programs(samples: Path) -> None:
    """Matrix products in 16 bits and in 32, of two programs: names differ, and nothing changed from one to another."""
    folder = samples / "nsys" / "nsys-ai"
    found = compared(folder / "mfu_2gpu_before.sqlite", folder / "h100_2gpu_1s.sqlite")
    assert "programs" in [limit.code for limit in found.comparability.limits]
    assert {h.state for h in found.board.hypotheses} == {State.SUGGESTED, State.RULED_OUT}
    gemms = next(group for group in found.categories if group.name == "gemm")
    parts = {h.id: (h.contribution_ns, h.shared_with) for h in found.board.hypotheses if h.state is State.SUGGESTED}
    assert parts["precision"] == (gemms.delta_ns, ())
    assert parts["gemm_config"] == (0, ("precision",))
