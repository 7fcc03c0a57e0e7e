"""One screen about a trace: its figures against SQL, and that what it tells one to type exists."""

from __future__ import annotations

import json
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from proctor.cli.trace import app
from proctor.trace import open_trace
from proctor.trace.names import Answer
from proctor.trace.summary import summary as module
from proctor.trace.summary.summary import Summary, kept_summary, summary
from tests.trace.exports import Export


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def of(file: Path) -> Summary:
    with open_trace(file) as trace:
        return summary(trace)


@pytest.fixture
def real(samples: Path) -> Path:
    return samples / "nsys" / "nsys-ai" / "mfu_2gpu_before.sqlite"


def test_a_real_capture(real: Path) -> None:
    found = of(real)
    connection = sqlite3.connect(f"{real.as_uri()}?mode=ro&immutable=1", uri=True)
    calls, total = connection.execute("SELECT COUNT(*), SUM(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
    name, dearest, launches = connection.execute(
        "SELECT s.value, SUM(k.end - k.start), COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k "
        "JOIN StringIds s ON s.id = k.demangledName GROUP BY 1 ORDER BY 2 DESC"
    ).fetchone()
    copies = connection.execute(
        "SELECT COUNT(*), SUM(bytes), SUM(end - start) FROM CUPTI_ACTIVITY_KIND_MEMCPY"
    ).fetchone()
    connection.close()
    assert (found.calls, found.total) == (calls, total) == (4010, 535_200_650)
    assert (found.copies, found.copied, found.copy_time) == copies
    first = found.kernels[0]
    assert (first.name, first.total, first.calls) == (name, dearest, launches)
    assert first.share == pytest.approx(dearest / total)
    assert (first.category, first.batch_invariant) == ("attention", Answer.DEPENDS)
    assert sum(category.total for category in found.categories) == total
    assert sum(category.calls for category in found.categories) == calls
    assert [device.pids for device in found.devices] == [(144,), (145,)]


def test_communication_of_the_real_capture_is_all_exposed(real: Path) -> None:
    """One stream a process: nothing else can run beside NCCL's kernel."""
    found = of(real)
    assert found.communication is not None
    assert found.communication.total == found.communication.exposed == 25_401_752
    assert "overlap" in [step.words[0] for step in found.next if step.words]


def test_idle_time_and_its_cause(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite").gpu()
    for start in range(0, 10_000_000, 1_000_000):  # 0.4 ms of each 1 ms
        export.launch("gemm", start + 990, start + 1_000, start + 401_000)
    found = of(export.close())
    (device,) = found.devices
    assert (device.busy, device.idle, device.gaps) == (4_000_000, 9 * 600_000, 9)
    assert found.gap is not None
    assert found.gap.length == 9 * 600_000
    assert found.next[0].words[0] == "gaps"
    assert "57%" in found.next[0].why  # 5.4 ms of 9.4 ms


def test_a_busy_gpu_has_no_step_for_idle_time(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite").gpu()
    for start in range(0, 10_000_000, 1_000_000):
        export.launch("gemm", start, start + 1_000, start + 999_000)
    found = of(export.close())
    assert "gaps" not in [step.words[0] for step in found.next if step.words]
    stakeout = next(step for step in found.next if step.words[0] == "stakeout")
    assert "takes 100% of kernel time in 10 launches" in stakeout.why
    assert found.communication is None


def test_risks_are_shares_of_time(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite")
    export.launch("ncclDevKernel_AllReduce_Sum_bf16_NVLS", 0, 1_000, 31_000)
    export.launch("void vllm::act_and_mul_kernel<float>(float *)", 0, 40_000, 110_000)
    found = of(export.close())
    no = next(risk for risk in found.risks if risk.question == "run to run")
    assert (no.answer, no.kernels, no.share) == (Answer.NO, 1, pytest.approx(0.3))


def test_no_kernels_says_what_to_capture(samples: Path) -> None:
    found = of(samples / "nsys" / "lighttransport-gemm" / "profile.sqlite")
    assert found.calls == 0
    assert found.next[0].words == ()
    assert "nsys no older than the GPU's driver" in found.next[0].why


def test_graphs_that_hide_work_make_idle_time_unknown(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite").kernel("gemm", 1_000, 2_000)
    found = of(export.call("cudaGraphLaunch_v10000", 10, 20).close())
    assert found.devices == ()
    assert "idle time cannot be told" in found.no_times


def test_commands_bear_any_file_name_and_exist(tmp_path: Path, real: Path) -> None:
    file = tmp_path / "a b'; rm -rf.sqlite"
    file.write_bytes(real.read_bytes())
    verbs = set(typer.main.get_group(app).commands)
    for step in of(file).next:
        if step.words:
            words = shlex.split(step.command(file))
            assert words[:2] == ["proctor", "trace"]
            assert words[2] in verbs
            assert words[3] == str(file)


def test_a_second_look_reads_the_cache_whatever_the_file_is_called(
    real: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_trace(real) as trace:
        first = kept_summary(trace)
    monkeypatch.setattr(module, "summary", lambda trace: pytest.fail("worked out again"))
    again = tmp_path / "renamed.sqlite"
    again.write_bytes(real.read_bytes())
    with open_trace(again) as trace:
        assert kept_summary(trace) == first


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "proctor", "trace", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)


@pytest.mark.slow
def test_one_screen(real: Path) -> None:
    done = run(real)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) <= 40
    assert "4,010 kernels, 535.201 ms in sum; 1,020 copies, 5.692 ms, 8,046.1 MB" in lines
    assert any(line.startswith("next: proctor trace gaps ") for line in lines)
    whole = json.loads(run(real, "--json").stdout)
    assert (whole["event"], whole["total"], whole["schema"]) == ("summary", 535_200_650, "3.25.0")
    assert whole["next"][0]["command"].startswith("proctor trace gaps ")


@pytest.mark.slow
def test_names_of_a_trace_cannot_command_a_terminal(tmp_path: Path) -> None:
    file = Export(tmp_path / "t.sqlite").kernel("evil\x1b[2J[bold]<x>", 0, 1_000).close()
    done = run(file)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "[bold]" in done.stdout
