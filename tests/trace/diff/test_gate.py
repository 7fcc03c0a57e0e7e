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
    assert check(gate, found).outcome is Outcome.FAILED  # 8 steps, then 12
    assert check(gate, found, each=True).outcome is Outcome.PASSED
    assert check(read_gate("kernel:flash > +5%", METRICS), found, each=True).outcome is Outcome.PASSED


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
    assert run(files[0], tmp_path / "none.sqlite").returncode == 1


@pytest.mark.slow
def test_refused_without_force(files: tuple[Path, Path], tmp_path: Path) -> None:
    from tests.trace.exports import Export

    empty = Export(tmp_path / "empty.sqlite").call("cudaMalloc", 0, 10).close()
    refused = run(files[0], empty, "--fail-if", "total > +5%")
    assert refused.returncode == 1
    assert "the traces cannot be compared: B has no GPU work" in refused.stderr
    forced = run(files[0], empty, "--force", "--fail-if", "total > +5%")
    assert forced.returncode == 0
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
