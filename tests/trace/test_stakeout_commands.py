"""``proctor trace stakeout`` and ``occupancy``: which kernel is meant, and what is printed."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from proctor.cli.trace import app
from proctor.rows import UserError
from proctor.trace import open_trace
from proctor.trace.launches.kernel_choice import AmbiguousKernelError, choose
from tests.trace.exports import Export


def run(*words: str | Path) -> str:
    done = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    return done.stdout


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def several(tmp_path: Path) -> Path:
    export = Export(tmp_path / "several.sqlite").gpu()
    for at in range(20):
        export.launch("void gemm<(int)128>(float*)", 1000 * at, 1000 * at + 100, 1000 * at + 300, grid=(132, 1, 1))
    export.launch("void gemm<(int)64>(float*)", 30_000, 30_100, 30_900).launch("copy.1", 31_000, 31_100, 31_200)
    return export.close()


def test_a_kernel_is_found_by_id_name_part_and_expression(several: Path) -> None:
    with open_trace(several) as trace:
        whole = choose(trace, "void gemm<(int)128>(float*)")[0]
        assert (whole.launches, whole.total) == (20, 4000)
        assert choose(trace, f"#{whole.id}") == [whole]
        assert choose(trace, "GEMM<(INT)128>") == [whole]
        assert choose(trace, r"gemm<\(int\)1\d+>") == [whole]
        assert [each.name for each in choose(trace, "copy.1")] == ["copy.1"]
        assert [each.total for each in choose(trace, "gemm", all_=True)] == [4000, 800]


def test_an_ambiguous_kernel_lists_the_candidates(several: Path) -> None:
    with open_trace(several) as trace:
        with pytest.raises(AmbiguousKernelError, match="fits 2 kernels") as caught:
            choose(trace, "gemm")
        assert [(each.launches, each.total) for each in caught.value.candidates] == [(20, 4000), (1, 800)]
        for wrong in ("conv", "#999", "gemm[("):
            with pytest.raises(UserError, match="no kernel fits"):
                choose(trace, wrong)
    assert "fits 2 kernels" in run("stakeout", several, "gemm")
    assert [len(line["candidates"]) for line in lines(run("stakeout", several, "gemm", "--json"))] == [2]
    together = lines(run("stakeout", several, "gemm", "--json", "--all"))
    assert [line["event"] for line in together] == ["configuration", "configuration", "stakeout"]
    assert together[-1]["launches"] == 21


def test_every_launch_for_machines(several: Path) -> None:
    told = [
        line
        for line in lines(run("stakeout", several, "(int)128", "--json", "--launches"))
        if line["event"] == "launch"
    ]
    rows = list(csv.DictReader(io.StringIO(run("stakeout", several, "(int)128", "--csv"))))
    assert len(told) == len(rows) == 20
    assert [(each["start"], each["duration"], each["latency"]) for each in told] == [
        (1000 * at + 100, 200, 100) for at in range(20)
    ]
    assert [int(row["start"]) for row in rows] == [each["start"] for each in told]
    assert rows[0]["call"] == "cudaLaunchKernel_v7000"


def test_the_calculator() -> None:
    words = ("--threads", "384", "--registers", "168", "--shared", "213196", "--gpu", "H100", "--blocks", "264")
    shown = run("occupancy", *words)
    assert "18.8%: 1 block an SM, 12 of 64 warps, limited by registers, shared memory" in shown
    assert "2.00 waves of 132 blocks: 2 full; 100.0% of the places in use" in shown
    (line,) = lines(run("occupancy", *words, "--json"))
    assert (line["occupancy"]["blocks"], line["waves"]["at_once"], line["limits"]["sm_count"]) == (1, 132, 132)
    assert "does not fit: 2,000 threads" in run("occupancy", "--threads", "2000", "--gpu", "H100")
    for wrong in ((), ("--threads", "32"), ("FILE", "--threads", "32", "--gpu", "T4")):
        with pytest.raises(UserError, match=r"give a trace|needs a GPU"):
            run("occupancy", *wrong)


def test_names_are_shown_as_they_are(tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite").gpu().kernel("evil[red]\x1b[31m" + "x" * 3000, 0, 100)
    path = export.close()
    for words in (("stakeout", path, "evil", "--launches"), ("occupancy", path)):
        shown = run(*words)
        assert "\x1b" not in shown
        assert "evil[red]\\x1b[31m" in shown
    assert len(lines(run("occupancy", path, "--json"))[0]["name"]) > 3000


@pytest.mark.slow
def test_a_reader_who_leaves_ends_the_list(several: Path) -> None:
    export = Export(several.with_name("long.sqlite")).gpu()
    for at in range(5000):
        export.kernel("k", 10 * at, 10 * at + 5)
    command = [
        sys.executable,
        "-c",
        "from proctor.cli.app import main; main()",
        "trace",
        "stakeout",
        str(export.close()),
    ]
    with subprocess.Popen([*command, "k", "--csv"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"at,start,duration,")
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0
