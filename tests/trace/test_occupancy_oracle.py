"""Occupancy against NVIDIA's own arithmetic, ``cuda_occupancy.h``, which needs no GPU."""

from __future__ import annotations

import importlib.metadata
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from proctor.trace.launches.architectures import architectures
from proctor.trace.launches.occupancy import BLOCKS, REGISTERS, SHARED, WARPS, Limits, limits_of, occupancy
from proctor.trace.model import Gpu

HEADER = "cuda_occupancy.h"
PACKAGES = ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12")
BITS = {WARPS: 0x01, REGISTERS: 0x02, SHARED: 0x04, BLOCKS: 0x08}
"""``cudaOccLimitingFactor``. Barriers (0x10) are left out: with one barrier a block they never allow fewer blocks."""
NO_LIMIT = 2**31 - 1
CASES_EACH = 3000


def includes() -> Path | None:
    """The directory of the header: what PROCTOR_CUDA_INCLUDE names, or of an installed wheel of the CUDA runtime."""
    if named := os.environ.get("PROCTOR_CUDA_INCLUDE"):
        return Path(named)
    for package in PACKAGES:
        try:
            files = importlib.metadata.files(package) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name == HEADER:
                return Path(str(file.locate())).parent
    return None


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The oracle, compiled once."""
    compiler, directory = shutil.which("g++") or shutil.which("c++"), includes()
    if compiler is None:
        pytest.skip("no C++ compiler")
    if directory is None or not (directory / HEADER).is_file():
        pytest.skip(f"no {HEADER}: install {PACKAGES[0]}, or set PROCTOR_CUDA_INCLUDE")
    program = tmp_path_factory.mktemp("oracle") / "oracle"
    source = Path(__file__).with_name("occupancy_oracle.cpp")
    subprocess.run([compiler, "-O1", "-w", f"-I{directory}", str(source), "-o", str(program)], check=True)
    return program


def limits(compute: tuple[int, int]) -> Limits:
    found = limits_of(Gpu(device=0, compute=compute))
    assert found is not None
    return found


def cases(limit: Limits, chance: random.Random) -> list[tuple[int, int, int, int]]:
    """Launches, of the usual kind and at the edges: (threads, registers, static, dynamic)."""
    made = []
    for _ in range(CASES_EACH):
        threads = chance.choice([chance.randint(1, 1100), 32 * chance.randint(1, 33), 2 ** chance.randint(0, 10)])
        registers = chance.choice([0, chance.randint(1, 64), chance.randint(1, 258), 8 * chance.randint(1, 32)])
        fixed = chance.choice([0, 0, chance.randint(0, 2048), chance.randint(0, 49152)])
        share = limit.shared // chance.randint(1, 33)  # where another block just fits, or just does not
        edge = max(0, share - limit.reserved - fixed + chance.randint(-300, 300))
        dynamic = chance.choice([0, chance.randint(0, 65536), chance.randint(0, limit.block_shared + 2000), edge])
        made.append((threads, registers, fixed, dynamic))
    return made


@pytest.mark.slow
def test_every_figure_agrees_with_nvidias_arithmetic(oracle: Path) -> None:
    chance = random.Random(20261130)
    asked = [
        (limit, case) for row in architectures() for limit in [limits(row.compute)] for case in cases(limit, chance)
    ]
    assert len(asked) >= 20_000
    lines = [
        f"{limit.compute[0]} {limit.compute[1]} {limit.warps * 32} {limit.block_registers} {limit.registers} "
        f"{limit.shared} {limit.block_shared} {limit.reserved} {' '.join(map(str, case))}"
        for limit, case in asked
    ]
    answered = subprocess.run([oracle], input="\n".join(lines), capture_output=True, text=True, check=True)
    answers = [tuple(map(int, line.split())) for line in answered.stdout.splitlines()]
    assert len(answers) == len(asked)

    mismatches = []
    for (limit, (threads, registers, fixed, dynamic)), answer in zip(asked, answers, strict=True):
        found = occupancy(limit, threads=threads, registers=registers, shared=fixed + dynamic)
        ours = (
            0,
            found.blocks,
            sum(BITS[name] for name in found.limiters),
            *(found.allowed.get(name, NO_LIMIT) for name in (WARPS, BLOCKS, REGISTERS, SHARED)),
        )
        theirs = (*answer[:2], answer[2] & 0x0F, *answer[3:])
        if ours != theirs:
            mismatches.append((limit.compute, threads, registers, fixed, dynamic, ours, theirs))
    assert mismatches == []
    blocks = {answer[1] for answer in answers}
    assert {0, 1, 2, 16, 24, 32} <= blocks  # the cases reach what cannot run, and every architecture's most
