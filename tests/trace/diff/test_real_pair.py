"""The real pair: figures against SQL on the files themselves, and what may be said of them."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from proctor.trace import open_trace
from proctor.trace.diff import Diff
from proctor.trace.diff.board import State
from proctor.trace.diff.comparable import Basis, Level
from proctor.trace.diff.noise import Verdict
from tests.trace.diff.pairs import compared, hypothesis, state
from tests.trace.exports import Export

NAMES = ("mfu_2gpu_before.sqlite", "mfu_2gpu_after.sqlite")


@pytest.fixture(scope="module")
def files(samples: Path) -> list[Path]:
    return [samples / "nsys" / "nsys-ai" / name for name in NAMES]


@pytest.fixture(scope="module")
def found(files: list[Path]) -> Diff:
    return compared(*files)


def asked(file: Path, sql: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(f"{file.as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def total(found: Diff, name: str) -> tuple[float | None, float | None]:
    figure = next(figure for figure in found.totals if figure.name == name)
    return figure.a, figure.b


def test_totals(files: list[Path], found: Diff) -> None:
    sql = "SELECT SUM(end - start), COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL"
    (a, calls_a), (b, calls_b) = (asked(file, sql)[0] for file in files)
    assert (a, b) == (535_200_650, 488_835_406)
    assert total(found, "total") == (a, b)
    assert total(found, "calls") == (calls_a, calls_b) == (4010, 3587)
    copies = [asked(file, "SELECT COUNT(*), SUM(bytes) FROM CUPTI_ACTIVITY_KIND_MEMCPY")[0] for file in files]
    assert [count for count, _ in copies] == [1020, 904]
    assert total(found, "copy_calls") == (1020, 904)
    assert total(found, "copied") == tuple(size for _, size in copies)
    waits = [asked(f, "SELECT SUM(end - start) FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION")[0][0] for f in files]
    assert total(found, "syncs") == tuple(waits)


def test_idle_is_what_no_interval_covers(files: list[Path], found: Diff) -> None:
    idle = []
    for file in files:
        rows = asked(
            file,
            "SELECT deviceId, start, end FROM CUPTI_ACTIVITY_KIND_KERNEL UNION ALL SELECT deviceId, start, end FROM "
            "CUPTI_ACTIVITY_KIND_MEMCPY UNION ALL SELECT deviceId, start, end FROM CUPTI_ACTIVITY_KIND_MEMSET "
            "ORDER BY 2",
        )
        waited = 0
        for device in (0, 1):
            reach = None
            for _, start, end in (row for row in rows if row[0] == device):
                waited += 0 if reach is None else max(0, start - reach)
                reach = end if reach is None else max(reach, end)
        idle.append(waited)
    assert total(found, "idle") == tuple(idle)


def test_each_kernel_s_part(files: list[Path], found: Diff) -> None:
    sql = (
        "SELECT SUM(end - start), COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k "
        "JOIN StringIds s ON s.id = k.demangledName WHERE s.value LIKE 'void flash::flash_fwd_kernel%'"
    )
    (a, calls_a), (b, calls_b) = (asked(file, sql)[0] for file in files)
    flash = next(change for change in found.changes if "flash_fwd_kernel" in change.name)
    assert flash.a is not None
    assert flash.b is not None
    assert (flash.a.total_ns, flash.b.total_ns, flash.a.calls, flash.b.calls) == (a, b, calls_a, calls_b)
    assert flash.delta_ns == b - a == flash.split.total
    assert len([change for change in found.changes if change.kind == "kernel"]) == 27
    work = [total(found, "work")[side] or 0 for side in (0, 1)]
    assert sum(change.delta_ns for change in found.changes) == work[1] - work[0]


def test_the_total_fell_because_fewer_layers_fit_into_the_window(found: Diff) -> None:
    """34 passes of a layer, then 30, over two ranks: the kernel that runs once a layer and rank says so."""
    assert found.iterations is not None
    assert (found.iterations.a, found.iterations.b) == (34, 30)
    per_pass = next(figure for figure in found.totals if figure.name == "total")
    assert per_pass.a_each == pytest.approx(535_200_650 / 34)
    assert per_pass.b_each == pytest.approx(488_835_406 / 30)
    assert found.split.iterations < 0 < found.split.per_call
    assert state(found, "iterations_only") is State.CONTESTED
    contested = hypothesis(found, "iterations_only")
    assert contested is not None
    assert contested.contradicted_by == ("window_per_repetition",)


def test_what_the_edges_cut_cannot_be_told_apart(found: Diff) -> None:
    """A kernel that runs `m` times a repetition may be off by `m` launches a rank, at either window."""
    assert found.iterations is not None
    assert found.iterations.edge == pytest.approx(2 / 34 + 2 / 30)
    for change in found.changes:
        assert change.a is not None
        assert change.b is not None
        each = max(1.0, change.a.calls / 34, change.b.calls / 30)
        assert abs(change.b.calls - change.a.calls * 30 / 34) <= each * 2 * (1 + 30 / 34)
    assert found.edges_ns == found.split.calls == 6_150_058
    assert "edges" in [limit.code for limit in found.comparability.limits]


def test_a_mix_of_shapes_has_no_usual_launch_of_its_own(files: list[Path], found: Diff) -> None:
    """Launches take 155 us or 7,865 us, half of them each: the median of all lies where none is."""
    sql = (
        "SELECT gridX, gridY, gridZ, COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s "
        "ON s.id = k.demangledName WHERE s.value LIKE 'void flash::flash_fwd_kernel%' GROUP BY 1, 2, 3"
    )
    flash = next(change for change in found.changes if "flash_fwd_kernel" in change.name)
    assert flash.a is not None
    assert flash.a.shapes == len(asked(files[0], sql)) == 2
    assert flash.a.mean_ns == pytest.approx(flash.a.total_ns / 68)
    assert abs(flash.typical_ns or 0) < 3_000  # of 33,600 ns by which the medians of all launches differ


def test_a_cut_window_says_nothing_of_the_whole_run(found: Diff) -> None:
    assert found.comparability.level is Level.LIMITED
    cut = next(limit for limit in found.comparability.limits if limit.code == "cut")
    assert "24 and 10 kernels" in cut.what
    assert Basis.IDLE in cut.bars
    assert state(found, "host_bound") is State.SUGGESTED


def test_longer_communication_is_within_what_the_window_itself_shows(found: Diff) -> None:
    nccl = next(change for change in found.changes if change.name.startswith("ncclDevKernel_SendRecv"))
    assert nccl.delta_ns == 33_742_101 - 25_401_752
    assert nccl.verdict is Verdict.WITHIN
    assert state(found, "waiting") is State.NO_EVIDENCE


def test_what_is_ruled_out(found: Diff) -> None:
    for id_ in ("split_attention", "split_k", "gemm_config", "batch_invariant", "precision", "clock", "added_pass"):
        assert state(found, id_) is State.RULED_OUT, id_


def test_a_file_and_itself(files: list[Path]) -> None:
    found = compared(files[0], files[0])
    assert found.comparability.level is Level.SAME
    assert found.unchanged
    assert found.board.clues == ()
    assert {change.delta_ns for change in found.changes} == {0}


def test_kineto_and_nsys_spell_the_same_kernels_in_two_ways(samples: Path, tmp_path: Path) -> None:
    """A Kineto trace against an export of the same launches, names spelled as Nsight Systems does."""
    kineto = samples / "kineto" / "h100_bert_small.json.gz"
    export = Export(tmp_path / "same.sqlite")
    with open_trace(kineto) as trace:
        launched = list(trace.rows('SELECT k.start, k."end", s.text FROM kernels k JOIN strings s ON s.id = k.name'))
    casts = [(start, end, re.sub(r"([<,] ?)(\d+)(?=[,>])", r"\1(int)\2", name)) for start, end, name in launched]
    assert any("(int)" in name for _, _, name in casts)
    for start, end, name in casts:
        export.kernel(name, start, end)
    found = compared(kineto, export.close())
    kernels = [change for change in found.changes if change.kind == "kernel"]
    assert len(kernels) == len({name for _, _, name in launched}) == 11
    assert all(change.a and change.b and change.a.total_ns == change.b.total_ns for change in kernels)
    assert "origins" in [limit.code for limit in found.comparability.limits]
    assert found.comparability.bars(Basis.API)


def test_no_kernels_on_one_side(samples: Path, files: list[Path]) -> None:
    found = compared(files[0], samples / "nsys" / "lighttransport-gemm" / "profile.sqlite")
    assert found.comparability.level is Level.REFUSED
    assert found.comparability.reasons[0].startswith("B has no GPU work")
    assert found.totals == ()
    forced = compared(files[0], samples / "nsys" / "lighttransport-gemm" / "profile.sqlite", force=True)
    assert total(forced, "total") == (535_200_650, 0)
    assert forced.board.hypotheses == ()
