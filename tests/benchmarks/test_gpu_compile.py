"""The script for a GPU, as far as it can run without one."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from benchmarks import gpu_compile
from benchmarks.gpu_compile import Bench, Size

pytestmark = pytest.mark.slow
SMALL = Size(2, 128, {"1 image": (1, 4), "3 images": (3, 6)})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_in_one_line_and_fails() -> None:
    command = [sys.executable, "-m", "benchmarks.gpu_compile"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1:] == ["gpu_compile needs an NVIDIA GPU and a torch for CUDA: there is none here"]


@pytest.mark.timeout(600)
def test_every_part_but_the_graphs_runs_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_compile, "ROUNDS", 2)
    bench = Bench("cpu", SMALL, "eager", torch.float32)
    targets = [target.name for target in bench.targets]
    assert targets == ["patch_embed", "blocks", "deepstack_mergers", "merger"]
    compiling = bench.compiling()
    assert [row.what for row in compiling[:-1]] == [f"{name}: compiling" for name in targets]
    assert bench.arms.names == tuple(targets)
    timed = {row.what.partition(":")[0] for row in bench.timing()}
    assert timed == {f"{name}, {shape}" for name in (*targets, "encoder") for shape in SMALL.images}
    assert len(bench.launches()) == 1 + len(targets)
    for row in bench.agreeing():
        passed, _, of = row.figure.partition(" of ")
        assert passed == of
        assert int(of) >= len(SMALL.images)
