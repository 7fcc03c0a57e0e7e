"""Each hypothesis on a pair that differs in that one thing, and on a near miss where it must not be stated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proctor.trace.diff.board import State
from tests.trace.diff.pairs import (
    CACHE,
    COPY,
    FLASH,
    MERGE,
    MODEL,
    NCCL,
    NORM,
    NVJET,
    SILU,
    K,
    compared,
    hypothesis,
    program,
    state,
    swapped,
)
from tests.trace.exports import Export

STATED = {State.SUPPORTED, State.CONTESTED, State.SUGGESTED}


class Pair:
    """Writes both sides and says what the diff states."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, a: Any = MODEL, b: Any = MODEL, *, a_: Any = None, b_: Any = None) -> Any:
        one = program(self.folder / "a.sqlite", a, **(a_ or {}))
        two = program(self.folder / "b.sqlite", b, **(b_ or {}))
        found = compared(one, two)
        one.unlink()
        two.unlink()
        return found


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def stated(found: Any) -> set[str]:
    return {each.id for each in found.board.hypotheses if each.state in STATED}


def test_nothing_is_stated_of_two_runs_of_the_same(pair: Pair) -> None:
    found = pair(b_={"gap_us": 2.01})
    assert stated(found) == set()
    assert {change.delta_ns for change in found.changes} == {0}


def test_split_attention(pair: Pair) -> None:
    split = swapped(MODEL, FLASH, K(FLASH, 210, 2), K(MERGE, 8))
    found = pair(b=split)
    assert state(found, "split_attention") is State.SUPPORTED
    merge = next(clue for clue in found.board.clues if clue.id == "merge_kernel")
    assert (merge.a, merge.b) == ("0 launches", "12 launches")
    assert "split_attention" in merge.supports
    gone = hypothesis(pair(a=split), "split_attention")
    assert gone is not None
    assert gone.says == "split attention: the merge kernel of A is gone from B"


def test_split_attention_near_misses(pair: Pair) -> None:
    split = swapped(MODEL, FLASH, K(FLASH, 210, 2), K(MERGE, 8))
    assert state(pair(a=split, b=split, b_={"scale": 1.5}), "split_attention") is State.RULED_OUT
    none = hypothesis(pair(b=swapped(MODEL, CACHE, K(CACHE, 52))), "split_attention")
    assert none is not None
    assert none.why.startswith("no merge kernel on either side")


def test_equal_counts_speak_against_an_added_pass(pair: Pair) -> None:
    """A merge kernel came, and as many launches of others went."""
    found = pair(b=swapped(swapped(MODEL, COPY), FLASH, K(FLASH, 400), K(MERGE, 8)))
    assert state(found, "split_attention") is State.CONTESTED
    counts = next(clue for clue in found.board.clues if clue.id == "equal_counts")
    assert "split_attention" in counts.against
    slower = pair(b=swapped(MODEL, CACHE, K(CACHE, 52)))
    ruled_out = hypothesis(slower, "added_pass")
    assert ruled_out is not None
    assert ruled_out.why == "both sides launch the same kernels, each as often"


def test_split_k(pair: Pair) -> None:
    reduce = "void cublasLt::splitKreduce_kernel<(int)32, (int)16>(float *)"
    found = pair(b=swapped(MODEL, NVJET, K(NVJET, 150, 2), K(reduce, 6)))
    assert state(found, "split_k") is State.SUPPORTED
    both = (*MODEL, K(reduce, 6))
    assert state(pair(both, both, b_={"scale": 1.4}), "split_k") is None


def test_other_tiles_of_one_library(pair: Pair) -> None:
    other = "nvjet_tst_128x256_64x4_2x1_v_bz_coopB_bias_TNN"
    found = pair(b=swapped(MODEL, NVJET, K(other, 190, 2)))
    assert state(found, "gemm_config") is State.SUPPORTED
    tiles = next(clue for clue in found.board.clues if clue.id.startswith("tiles:"))
    assert tiles.a.startswith("192x192 64x4 (")
    assert tiles.b.startswith("128x256 64x4 (")
    assert state(found, "library_switch") is None
    added = pair(b=(*MODEL, K(other, 190)))  # nothing went: no tile was replaced
    assert state(added, "gemm_config") is None


def test_another_library(pair: Pair) -> None:
    triton = "triton_tem_fused_mm_0"
    found = pair(b=swapped(MODEL, NVJET, K(triton, 190, 2)))
    assert state(found, "library_switch") is State.SUPPORTED
    clue = next(clue for clue in found.board.clues if clue.id == "library:gemm")
    assert clue.a == "cuBLAS (100%), Triton 0%"
    mixed = pair(b=swapped(MODEL, NVJET, K(NVJET, 150), K(triton, 190)))
    assert state(mixed, "library_switch") is None


def test_batch_invariant_mode(pair: Pair) -> None:
    found = pair(b=swapped(MODEL, NVJET, K("matmul_kernel_persistent", 290, 2)))
    assert state(found, "batch_invariant") is State.SUPPORTED
    still = pair(b=swapped(MODEL, NVJET, K(NVJET, 150), K("matmul_kernel_persistent", 290)))
    contested = hypothesis(still, "batch_invariant")
    assert contested is not None
    assert contested.state is State.CONTESTED
    assert contested.contradicted_by == ("cublas_products",)


def test_thirty_two_bits(pair: Pair) -> None:
    single = "ampere_sgemm_128x64_nn"
    found = pair(b=swapped(MODEL, NVJET, K(single, 600, 2)))
    assert state(found, "precision") is State.SUPPORTED
    precision, tiles = (hypothesis(found, id_) for id_ in ("precision", "gemm_config"))
    assert precision is not None
    assert precision.contribution_ns == 12 * 2 * 450_000  # 150 us, then 600 us, twice a step
    if tiles is not None:  # what another type brings with it is not counted again
        assert (tiles.contribution_ns, tiles.shared_ns) == (0, precision.contribution_ns)
        assert tiles.shared_with == ("precision",)
    half = NVJET.replace("_tst_", "_hsh_")
    ruled_out = pair(b=swapped(MODEL, NVJET, K(half, 150, 2)))
    assert state(ruled_out, "precision") is State.RULED_OUT


def test_an_added_pass(pair: Pair) -> None:
    added = "void cub::DeviceRadixSortOnesweepKernel<float>(float *)"
    found = pair(b=(*MODEL, K(added, 40)))
    assert state(found, "added_pass") is State.SUPPORTED
    replaced = "void vllm::fused_add_rms_norm_kernel<float>(float *)"
    assert state(pair(b=swapped(MODEL, NORM, K(replaced, 25))), "added_pass") is None


def test_only_the_number_of_iterations(pair: Pair) -> None:
    found = pair(b_={"steps": 9})
    assert state(found, "iterations_only") is State.SUPPORTED
    assert found.iterations is not None
    assert (found.iterations.a, found.iterations.b) == (12, 9)
    work = next(total for total in found.totals if total.name == "work")
    assert found.split.iterations == pytest.approx(work.delta, rel=0.001)
    slower = pair(b=swapped(MODEL, FLASH, K(FLASH, 520)), b_={"steps": 9})
    assert state(slower, "iterations_only") is State.CONTESTED
    assert state(pair(b=swapped(MODEL, FLASH, K(FLASH, 520))), "iterations_only") is None


def test_the_clock(pair: Pair) -> None:
    found = pair(b_={"scale": 1.2})
    assert state(found, "clock") is State.SUPPORTED
    factor = next(clue for clue in found.board.clues if clue.id == "one_factor")
    assert float(factor.b) == pytest.approx(1.2, abs=0.005)
    some = tuple(kernel._replace(us=kernel.us * 1.2) if kernel.name in (FLASH, NORM) else kernel for kernel in MODEL)
    assert state(pair(b=some), "clock") is State.RULED_OUT


def test_more_tokens(pair: Pair) -> None:
    longer = tuple(k._replace(us=k.us * 3, grid=(396, 1, 1)) if k.name in (FLASH, CACHE) else k for k in MODEL)
    assert state(pair(b=longer), "more_tokens") is State.SUPPORTED
    only = hypothesis(pair(b=swapped(MODEL, CACHE, K(CACHE, 51))), "more_tokens")
    assert only is not None
    assert only.state is State.RULED_OUT
    assert "attention 1.00 times" in only.why


def test_occupancy_fell_with_more_registers(pair: Pair) -> None:
    found = pair(b=swapped(MODEL, SILU, K(SILU, 45, registers=255)))
    assert state(found, "launch_config") is State.SUPPORTED
    clue = next(clue for clue in found.board.clues if clue.id.startswith("occupancy:"))
    # 128 threads are 4 warps: 65,536 / (64 * 128) = 8 blocks before, 2 after, of 64 warps.
    assert (clue.a, clue.b) == ("50%", "12%, limited by registers")
    assert "registers 64 -> 255" in clue.what
    assert state(pair(b=swapped(MODEL, SILU, K(SILU, 45))), "launch_config") is None
    assert state(pair(b=swapped(MODEL, SILU, K(SILU, 30, registers=255))), "launch_config") is None


def test_waiting_for_a_peer(pair: Pair) -> None:
    before, after = (*MODEL, K(NCCL, 100)), (*MODEL, K(NCCL, 180))
    assert state(pair(before, after), "waiting") is State.SUPPORTED
    both = tuple(kernel._replace(us=kernel.us * 1.8) for kernel in before)
    assert state(pair(before, both), "waiting") is None


def test_the_gpu_waits_more(pair: Pair) -> None:
    assert state(pair(b_={"gap_us": 40}), "host_bound") is State.SUPPORTED
    ruled_out = pair(b=swapped(MODEL, FLASH, K(FLASH, 700)))
    assert state(ruled_out, "host_bound") is State.RULED_OUT
    slower = pair(b_={"gap_us": 60, "scale": 1.5})
    assert state(slower, "host_bound") is State.CONTESTED


def synchronising(export: Export, step: int, now: int) -> None:
    export.call("cudaDeviceSynchronize_v3020", now, now + 500)


def test_new_synchronisation(pair: Pair) -> None:
    assert state(pair(b_={"extra": synchronising}), "new_syncs") is State.SUPPORTED
    scaled = pair(a_={"extra": synchronising}, b_={"extra": synchronising, "steps": 36})
    assert state(scaled, "new_syncs") is State.RULED_OUT


def copying(kind: int) -> Any:
    def extra(export: Export, step: int, now: int) -> None:
        export.copy(now - 1900, now - 400, kind=1, bytes=4096, srcKind=kind, dstKind=2)

    return extra


def test_pageable_copies(pair: Pair) -> None:
    assert state(pair(b_={"extra": copying(0)}), "pageable") is State.SUPPORTED
    assert state(pair(b_={"extra": copying(1)}), "pageable") is State.RULED_OUT
    scaled = pair(a_={"extra": copying(0)}, b_={"extra": copying(0), "steps": 36})
    assert state(scaled, "pageable") is State.RULED_OUT


def communicating(hidden: bool) -> Any:
    def extra(export: Export, step: int, now: int) -> None:
        begin = now - 300_000 if hidden else now - 1500
        export.launch(NCCL, begin - 10_000, begin, begin + 100_000, stream=20)

    return extra


def test_exposed_communication(pair: Pair) -> None:
    hidden, shown = {"extra": communicating(True), "gap_us": 300}, {"extra": communicating(False), "gap_us": 300}
    covered = pair(a_={**hidden, "gap_us": 2}, b_=shown)
    assert state(covered, "exposed") is State.SUPPORTED
    assert state(pair(a_=shown, b_={**shown, "scale": 1.3}), "exposed") is State.RULED_OUT


def launching(export: Export, step: int, now: int) -> None:
    export.call("cudaGraphLaunch_v10000", now, now + 500)


def test_cuda_graphs_on_one_side(pair: Pair) -> None:
    found = hypothesis(pair(b_={"extra": launching}), "graphs")
    assert found is not None
    assert found.says == "B launches CUDA graphs, A single kernels"
    assert state(pair(a_={"extra": launching}, b_={"extra": launching}), "graphs") is None
