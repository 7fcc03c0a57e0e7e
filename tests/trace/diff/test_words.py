"""How a diff is printed: units, lines that fit, the verdict first."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.cli.trace.diff_words import change, size, value
from tests.trace.diff.pairs import MODEL, NORM, K, program, swapped
from tests.trace.diff.test_gate import run

LONG = "void a::kernel_with_a_long_name<" + ", ".join(f"a::SomeFunctor<(int){i}>" for i in range(40)) + ">(float *)"


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0 B"), (272, "272 B"), (3_136, "3.14 kB"), (9_996, "10.0 kB"), (99_960, "100 kB"), (999_600, "1.00 MB"),
     (8_046_134_544, "8.05 GB"), (2e15, "2,000 TB"), (-850_757_648, "-851 MB")],
)  # fmt: skip
def test_sizes(number: float, shown: str) -> None:
    assert size(number) == shown


def test_figures() -> None:
    assert value(5_692_000, "ns") == "5.692 ms"
    assert value(239_845_896.5, "bytes") == "240 MB"
    assert value(117.94, "launches") == "117.9"
    assert value(None, "ns") == "-"


@pytest.mark.parametrize(
    ("a", "b", "shown"),
    [(100, 105, "+5.0%"), (100, 0, "-100.0%"), (100, 999, "+899.0%"), (0.027, 1865.4, "x 69,089"), (0, 3, "new"),
     (0, 0, "-"), (None, 3, "-")],
)  # fmt: skip
def test_changes(a: float | None, b: float | None, shown: str) -> None:
    assert change(a, b) == shown


@pytest.mark.slow
def test_the_verdict_comes_first_and_lines_fit(tmp_path: Path) -> None:
    a = program(tmp_path / "a.sqlite")
    b = program(tmp_path / "b.sqlite", swapped(MODEL, NORM, K(LONG, 120), K(NORM, 30)), steps=15)
    lines = run(a, b).stdout.splitlines()
    assert max(map(len, lines)) <= 140
    assert len(lines) <= 90
    parts = ("comparable", "contested: iterations_only", "ruled out: ", "window as captured", "what ran")
    begins = [next(i for i, line in enumerate(lines) if line.lstrip().startswith(part)) for part in parts]
    assert begins == sorted(begins)
    assert "no synchronising call became more frequent" not in "".join(lines)
    (row,) = [line for line in lines if line.startswith(" kernel_with_a_long_name<") and "new in B" in line]
    assert "… " in row
    why = " ".join(run(a, b, "--why").stdout.split())
    assert "ruled out: new_syncs: the CPU waits for the GPU more often" in why
    assert "why: no synchronising call became more frequent" in why
