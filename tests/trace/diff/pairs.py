"""Two small programs that differ in one thing: what a diff must find, and what it must not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from proctor.trace import open_trace
from proctor.trace.diff import Diff, diff
from proctor.trace.diff.board import Hypothesis, State
from tests.trace.exports import Export

FLASH = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<(int)128, (int)128>>(Flash_fwd_params)"
NVJET = "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN"
NORM = "void vllm::rms_norm_kernel<float>(float *)"
SILU = "void vllm::act_and_mul_kernel<float>(float *)"
ROPE = "void vllm::rotary_embedding_kernel<float>(float *)"
CACHE = "void vllm::reshape_and_cache_flash_kernel<float>(float *)"
MERGE = "void vllm::merge_attn_states_kernel<float>(float *)"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
COPY = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>>(int)"


class K(NamedTuple):
    """A kernel that a program runs in every step."""

    name: str
    us: float
    calls: int = 1
    grid: tuple[int, int, int] = (132, 1, 1)
    registers: int = 64
    shared: int = 0
    stream: int = 7


MODEL = (K(NORM, 20), K(NVJET, 150, 2), K(ROPE, 15), K(CACHE, 10), K(FLASH, 400), K(SILU, 30), K(COPY, 5))
"""A layer of a model."""


def program(
    path: Path,
    kernels: Sequence[K] = MODEL,
    *,
    steps: int = 12,
    gap_us: float = 2,
    gpu: str = "NVIDIA H100 80GB HBM3",
    schema: str = "3.25.0",
    extra: Any = None,
    scale: float = 1.0,
    marked: bool = False,
) -> Path:
    """Writes a program that runs `kernels` `steps` times, one after the other, `gap_us` apart.

    `extra(export, step, now)` may add to each step. Launches of a kernel vary by up to 128 ns.
    """
    export = Export(path, schema=schema)
    export.gpu(name=gpu)
    now = 1_000_000
    turn = 0
    for step in range(steps):
        begun = now
        for kernel in kernels:
            for _ in range(kernel.calls):
                turn += 1
                length = round(kernel.us * 1000 * scale) + 32 * (turn * 7 % 5)
                export.launch(
                    kernel.name, now - 10_000, now, now + length, grid=kernel.grid, registers=kernel.registers,
                    dynamicSharedMemory=kernel.shared, stream=kernel.stream,
                )  # fmt: skip
                now += length + round(gap_us * 1000)
        if extra is not None:
            extra(export, step, now)
        if marked:
            export.annotation("step", begun - 11_000, now - 11_000)
    return export.close()


def compared(a: Path, b: Path, **options: Any) -> Diff:
    with open_trace(a) as one, open_trace(b) as two:
        return diff(one, two, **options)


def hypothesis(found: Diff, id_: str) -> Hypothesis | None:
    return next((each for each in found.board.hypotheses if each.id == id_), None)


def state(found: Diff, id_: str) -> State | None:
    """What the diff says of a hypothesis; None where it says nothing."""
    each = hypothesis(found, id_)
    return each.state if each else None


def swapped(kernels: Sequence[K], old: str, *new: K) -> tuple[K, ...]:
    """`kernels` with `new` in the place of the one called `old`."""
    return tuple(each for kernel in kernels for each in (new if kernel.name == old else (kernel,)))
