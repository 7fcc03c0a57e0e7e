"""The script for a GPU, as far as it can run without one."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest
import torch

from benchmarks import gpu_overlap, gpu_transfer
from benchmarks.gpu_overlap import common
from benchmarks.gpu_transfer import Row, between_processes, rows, table
from proctor.transfer.devices.cpu import CpuDevice, CpuStream


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_in_one_line_and_fails() -> None:
    command = [sys.executable, "-m", "benchmarks.gpu_transfer"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1:] == [
        "gpu_transfer needs an NVIDIA GPU and a torch for CUDA: there is none here"
    ]


@pytest.mark.slow
def test_two_processes_compare_every_tensor() -> None:
    speed, wrong = between_processes("stream", "cpu", "cpu", nbytes=1 << 20, epochs=2)
    assert float(speed.figure) >= 0
    assert (wrong.figure, wrong.note) == ("0", "of 2004; must be 0")


def test_a_part_that_fails_is_a_row_and_the_others_run() -> None:
    def broken() -> list[Row]:
        raise RuntimeError("CUDA error: out of memory\nmore")

    def whole() -> list[Row]:
        return [Row("fine", "1", "s")]

    lines = list(table(rows((broken, whole))))
    assert lines[4:6] == ["| broken | FAILED |  | RuntimeError: CUDA error: out of memory |", "| fine | 1 | s |  |"]
    assert len(lines) == 7


class Clocked(CpuDevice):
    """The CPU with marks that tell the time, in the place of a GPU."""

    def stream(self) -> Any:
        stream = CpuStream()
        stream.mark = Mark  # type: ignore[attr-defined]
        return stream


class Mark:
    def __init__(self) -> None:
        self.at = time.perf_counter()

    def seconds_since(self, earlier: Mark) -> float:
        return self.at - earlier.at


def test_every_part_that_needs_one_gpu_runs_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the CPU in the GPU's place: what the figures are worth is another matter."""
    for module in (gpu_transfer, gpu_overlap):
        monkeypatch.setattr(module, "BUCKET", 1 << 12)
        monkeypatch.setattr(module, "pinned_memory", lambda nbytes: torch.zeros(nbytes, dtype=torch.uint8))
    monkeypatch.setattr(gpu_transfer, "BIG", 1 << 16)
    monkeypatch.setattr(gpu_transfer, "GPU", "cpu")
    monkeypatch.setattr(gpu_transfer, "cuda_device", lambda index: Clocked())
    monkeypatch.setattr(gpu_transfer, "serve", lambda: (None, 0))
    for name in ("synchronize", "_sleep", "memory_reserved"):
        monkeypatch.setattr(torch.cuda, name, lambda *arguments: 0)

    class Group:
        def __init__(self, store: Any, rank: int, names: Any, device: Any) -> None:
            assert (rank, names) == (0, ("publisher",))

        def __call__(self, stream: Any, buffer: torch.Tensor) -> None:
            stream.copy(buffer, buffer.clone())

        def abort(self) -> None:
            pass

    monkeypatch.setattr(gpu_transfer, "NcclBroadcast", Group)
    found = {row.what: row for row in rows(gpu_transfer.PARTS[:-1])}
    assert not [row for row in found.values() if row.figure == "FAILED"]
    assert found["wrong copies under load"].figure == f"0 of {gpu_transfer.TRIALS}"
    assert found["packing hidden behind sending, 1 buffers"].figure == "0%"
    assert "NCCL refuses two ranks on one" in found["NCCL between two ranks"].note
    assert len(found) == 14


def test_common_time_of_intervals() -> None:
    assert common([(0, 4), (6, 8)], [(1, 2), (3, 7)]) == 3
    assert common([(0, 1)], [(1, 2)]) == 0
