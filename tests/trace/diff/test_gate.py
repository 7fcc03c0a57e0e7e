"""Conditions that fail a diff: their grammar, what they compare, and the exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.rows import UserError
from proctor.trace.diff import METRICS, Diff, Outcome, check, read_gate
from tests.trace.diff.pairs import FLASH, MODEL, NCCL, K, compared, program, swapped
from tests.trace.exports import Export


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Attention takes 400 us, then 480 us; nothing else differs."""
    folder = tmp_path_factory.mktemp("pair")
    return (
        program(folder / "a.sqlite", marked=True),
        program(folder / "b.sqlite", swapped(MODEL, FLASH, K(FLASH, 480)), marked=True),
    )


@pytest.fixture(scope="module")
def found(files: tuple[Path, Path]) -> Diff:
    return compared(*files)


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("total > +5%", Outcome.FAILED),  # 780 us a step, then 860: 10.3 %
        ("total > +11%", Outcome.PASSED),
        ("total > 5%", Outcome.FAILED),
        ("total >= +0.9ms", Outcome.FAILED),  # 12 * 80 us
        ("total > +970us", Outcome.PASSED),
        ("total > 10 ms", Outcome.FAILED),  # 12 * 860 us, of B itself
        ("total < -1%", Outcome.PASSED),
        ('kernel:"flash_fwd" > +19%', Outcome.FAILED),
        ('kernel:"FLASH_fwd" > +21%', Outcome.PASSED),
        ("kernel:nvjet > +0ns", Outcome.PASSED),
        ("category:attention > +100us", Outcome.FAILED),
        ('category:"KV cache" > +1%', Outcome.PASSED),
        ("calls > +0", Outcome.PASSED),
        ("calls > 95", Outcome.FAILED),  # 12 * 8 launches
        ("calls>=96", Outcome.FAILED),
        ("exposed > 1ns", Outcome.PASSED),
        ("copies > +1%", Outcome.PASSED),  # 0 before and after
    ],
)
def test_conditions(found: Diff, text: str, outcome: Outcome) -> None:
    assert check(read_gate(text, METRICS), found).outcome is outcome


@pytest.mark.parametrize(
    "text",
    ["", "total", "total > ", "total >> 5%", "total > five", "totally > 5%", "total > 5 hours", 'total:"x" > 5%',
     "kernel > 5%", "total > +5%; calls > 3", "total = 5"],
)  # fmt: skip
def test_what_is_no_condition(text: str) -> None:
    with pytest.raises(UserError, match="condition"):
        read_gate(text, METRICS)


def test_conditions_that_do_not_fit(found: Diff) -> None:
    with pytest.raises(UserError, match="unit of time"):
        check(read_gate("calls > +5ms", METRICS), found)
    with pytest.raises(UserError, match="nothing in either trace matches"):
        check(read_gate("kernel:nccl > +5%", METRICS), found)
    with pytest.raises(UserError, match="syncs is not known: A holds no synchronisations"):
        check(read_gate("syncs > +5%", METRICS), found)


def test_a_change_within_noise_does_not_fail(tmp_path: Path) -> None:
    """The same jitter on both sides, and one tick more on average."""
    a = program(tmp_path / "a.sqlite", (*MODEL, K(NCCL, 100)))
    b = program(tmp_path / "b.sqlite", (*MODEL, K(NCCL, 100.03)))
    checked = check(read_gate("kernel:nccl > +0ns", METRICS), compared(a, b))
    assert checked.outcome is Outcome.WITHIN_NOISE
    assert "noise" in checked.said


def test_per_iteration(tmp_path: Path) -> None:
    a, b = (program(tmp_path / f"{steps}.sqlite", steps=steps, marked=True) for steps in (8, 12))
    found = compared(a, b, per="step")
    gate = read_gate("total > +5%", METRICS)
    assert check(gate, found, as_captured=True).outcome is Outcome.FAILED  # 8 steps, then 12
    assert check(gate, found, each=True).outcome is Outcome.PASSED
    assert check(read_gate("kernel:flash > +5%", METRICS), found, each=True).outcome is Outcome.PASSED


@pytest.mark.parametrize("per", ["step", None])
def test_windows_of_different_length_are_not_judged(tmp_path: Path, per: str | None) -> None:
    """A regression of 10 % in a window with fewer steps would pass, and more steps of the same would fail."""
    a = program(tmp_path / "a.sqlite", steps=12, marked=True)
    b = program(tmp_path / "b.sqlite", steps=8, marked=True, scale=1.1)
    found = compared(a, b, per=per)
    for text in (
        "total > +5%",
        "window > +5%",
        "calls > +0",
        "kernel:flash > +1ms",
        "category:gemm > +5%",
        "idle > +1us",
    ):
        checked = check(read_gate(text, METRICS), found)
        assert checked.outcome is Outcome.UNJUDGED, text
        assert checked.why.startswith("the windows hold 12 and 8 repetitions: name a range")
    assert check(read_gate("total > +5%", METRICS), found, as_captured=True).outcome is Outcome.PASSED
    assert check(read_gate("total > +5%", METRICS), found, each=True).outcome is Outcome.FAILED
    assert check(read_gate("calls >= 64", METRICS), found).outcome is Outcome.FAILED  # 8 * 8: of B alone
    assert check(read_gate("devices > +0", METRICS), found).outcome is Outcome.PASSED


def test_windows_of_unknown_length_are_not_judged(tmp_path: Path) -> None:
    """Too few kernels for a unit to be found: 500 ns, then 900 ns."""
    a = Export(tmp_path / "a.sqlite").kernel("f", 0, 100).kernel("g", 200, 300).kernel("g", 400, 500).close()
    b = Export(tmp_path / "b.sqlite").kernel("f", 0, 100).kernel("g", 200, 300).kernel("g", 400, 900).close()
    checked = check(read_gate("total > +900%", METRICS), compared(a, b))
    assert checked.outcome is Outcome.UNJUDGED
    assert "--per" in checked.why
    assert check(read_gate("total > +900%", METRICS), compared(a, b), as_captured=True).outcome is Outcome.PASSED
    same = check(read_gate("total > +5%", METRICS), compared(a, a))
    assert same.outcome is Outcome.PASSED


def test_kernels_hidden_in_graphs_are_not_judged(files: tuple[Path, Path], tmp_path: Path) -> None:
    """B's kernels run inside graphs that were recorded whole: their time did not go."""
    export = Export(tmp_path / "b.sqlite")
    for start in range(1_000, 30_000, 1_000):
        export.kernel(FLASH, start, start + 100)
        export.row("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", **export.place(start + 200, start + 900, 0, 7, 100, None))
    found = compared(files[0], export.close())
    for text in ("total > +5%", "kernel:flash > +5%", "category:attention > +5%", "calls > +0"):
        checked = check(read_gate(text, METRICS), found, as_captured=True)
        assert checked.outcome is Outcome.UNJUDGED, text
        assert "--cuda-graph-trace=node" in checked.why
    for text in ("work > +5%", "window > +5%"):
        assert check(read_gate(text, METRICS), found, as_captured=True).outcome is Outcome.PASSED


def test_the_real_pair_is_judged_per_repetition_only(samples: Path) -> None:
    """17 and 15 repetitions a rank: -8.7 % as captured; by the ranges of the program +0.5 % and +9.8 %."""
    folder = samples / "nsys" / "nsys-ai"
    pair = (folder / "mfu_2gpu_before.sqlite", folder / "mfu_2gpu_after.sqlite")
    total, window = (read_gate(f"{metric} > +5%", METRICS) for metric in ("total", "window"))
    found = compared(*pair)
    assert [check(gate, found).outcome for gate in (total, window)] == [Outcome.UNJUDGED, Outcome.UNJUDGED]
    found = compared(*pair, per="AllToAll4D")
    assert found.iterations is not None
    assert (found.iterations.a, found.iterations.b) == (66, 60)
    one, two = (check(gate, found, each=True) for gate in (total, window))
    assert (one.outcome, two.outcome) == (Outcome.PASSED, Outcome.FAILED)
    assert one.b / one.a == pytest.approx(488_835_406 / 60 / (535_200_650 / 66))
    assert "6.4%" in two.why  # 2 ranks: 2 / 66 + 2 / 60


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "proctor", "trace", "diff", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)


@pytest.mark.slow
def test_exit_codes(files: tuple[Path, Path], tmp_path: Path) -> None:
    passes = run(*files, "--fail-if", "total > +20%")
    assert passes.returncode == 0, passes.stderr
    assert "passed: total > +20%" in passes.stdout
    fails = run(*files, "--fail-if", "total > +20%", "--fail-if", 'kernel:"flash" > +5%')
    assert fails.returncode == 5
    assert 'failed: kernel:"flash" > +5%' in fails.stderr
    assert run(*files, "--fail-if", "speed > 1").returncode == 1
    longer = program(tmp_path / "longer.sqlite", steps=15)
    unjudged = run(files[0], longer, "--fail-if", "total > +50%")
    assert unjudged.returncode == 3
    assert "cannot be judged: total > +50%" in unjudged.stderr
    assert run(files[0], longer, "--fail-if", "total > +50%", "--as-captured").returncode == 0
    assert run(files[0], longer, "--fail-if", "total > +50%", "--fail-if", "calls > 96").returncode == 5
    assert run(files[0], tmp_path / "none.sqlite").returncode == 1


@pytest.mark.slow
def test_refused_without_force(files: tuple[Path, Path], tmp_path: Path) -> None:
    empty = Export(tmp_path / "empty.sqlite").call("cudaMalloc", 0, 10).close()
    refused = run(files[0], empty, "--fail-if", "total > +5%")
    assert refused.returncode == 1
    assert "the traces cannot be compared: B has no GPU work" in refused.stderr
    forced = run(files[0], empty, "--force", "--fail-if", "total > +5%")
    assert forced.returncode == 3
    assert "cannot be judged: total > +5%" in forced.stderr
    assert "gone from B" in forced.stdout


@pytest.mark.slow
def test_json_lines(files: tuple[Path, Path]) -> None:
    done = run(*files, "--json", "--fail-if", "total > +5%")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 5
    assert [line["outcome"] for line in lines if line["event"] == "condition"] == ["failed"]
    changes = [line for line in lines if line["event"] == "change"]
    whole = next(line for line in lines if line["event"] == "diff")
    work = next(total for total in whole["totals"] if total["name"] == "work")
    assert sum(change["delta_ns"] for change in changes) == work["b"] - work["a"] == 12 * 80_000
    assert changes[0]["name"] == "flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128>>"
