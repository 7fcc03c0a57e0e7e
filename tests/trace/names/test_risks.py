"""Two answers about each kernel, and never a verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.trace import open_trace
from proctor.trace.names import Answer, Basis, normalise, risks_of
from proctor.trace.names.listing import reason_of, risks_in
from proctor.trace.names.risks import UNKNOWN
from tests.trace.exports import Export
from tests.trace.names.eighty_two import REAL, Real

LETTERS = {"y": Answer.YES, "n": Answer.NO, "c": Answer.DEPENDS, "?": Answer.UNKNOWN, "-": Answer.NOT_APPLICABLE}


@pytest.mark.parametrize("real", REAL, ids=lambda real: f"{real.number}-{normalise(real.name)[:40]}")
def test_eighty_two_real_names(real: Real) -> None:
    found = risks_of(real.name)
    assert found.run_to_run.answer is LETTERS[real.rtr]
    assert found.batch_invariant.answer is LETTERS[real.bi]
    for risk in (found.run_to_run, found.batch_invariant):
        assert risk.reason
        assert risk.source
        assert bool(risk.on) == (risk.answer is Answer.DEPENDS)
        if risk.answer in (Answer.DEPENDS, Answer.UNKNOWN):
            assert risk.basis is Basis.REASONED


@pytest.mark.parametrize(
    ("numbers", "clue"),
    [
        ({7, 10, 16, 41, 42}, "split-K"),
        ({24, 31}, "split-KV"),
        ({25, 29, 32}, "merge"),
        ({78, 80}, "NVLS"),
        ({26, 49, 70, 71}, "atomics"),
    ],
)
def test_risks_by_kind(numbers: set[int], clue: str) -> None:
    assert {real.number for real in REAL if risks_of(real.name).clue == clue} == numbers


def test_an_unknown_kernel_is_unknown() -> None:
    assert risks_of("mine") is UNKNOWN
    assert (UNKNOWN.run_to_run.answer, UNKNOWN.batch_invariant.answer) == (Answer.UNKNOWN, Answer.UNKNOWN)


def test_the_type_of_a_scan_matters() -> None:
    whole = "void cub::DeviceScanKernel<cub::Policy600, {0} const*, {0}*, cub::ScanTileState<{0}>, std::plus<{0}> >(X)"
    assert risks_of(whole.format("float")).run_to_run.answer is Answer.NO
    assert risks_of(whole.format("__half")).run_to_run.answer is Answer.NO
    assert risks_of(whole.format("long")).run_to_run.answer is Answer.YES
    assert risks_of("cub::DeviceScanKernel").run_to_run.answer is Answer.DEPENDS


def test_names_of_nccl_that_say_what_ran_and_names_that_do_not() -> None:
    """NCCL's generate.py: RING_LL and TREE_LL are also entered for other algorithms; other names are exact."""
    assert risks_of("ncclDevKernel_AllReduce_Sum_bf16_TREE_LL(X)").run_to_run.answer is Answer.DEPENDS
    assert risks_of("ncclDevKernel_AllReduce_Sum_bf16_RING_SIMPLE(X)").run_to_run.answer is Answer.YES
    assert risks_of("ncclDevKernel_AllReduce_Sum_bf16_NVLS_TREE_SIMPLE(X)").run_to_run.answer is Answer.NO


def test_answers_in_words() -> None:
    found = risks_of("ncclDevKernel_AllReduce_Sum_bf16_RING_SIMPLE(X)")
    assert str(found.run_to_run) == "yes"
    assert str(found.batch_invariant).startswith("depends: whether another size")
    assert reason_of(found).endswith("(reasoned)")
    assert reason_of(risks_of("reshape_and_cache_kernel_flash")) == "copies, or casts element by element (reasoned)"


def test_a_table_of_risks(tmp_path: Path) -> None:
    export = Export(tmp_path / "t.sqlite")
    export.kernel("nvjet_tst_64x8_64x16_4x2_h_bz_splitK_TNT", 0, 40)
    export.kernel("ncclDevKernel_AllReduce_Sum_bf16_NVLS(ncclDevKernelArgsStorage<4096>)", 40, 60)
    export.kernel("reshape_and_cache_kernel_flash", 60, 90).kernel("mine", 90, 100)
    with open_trace(export.close()) as trace:
        table = risks_in(trace)
    assert [(line.total, line.risks.clue) for line in table.lines] == [
        (40, "split-K"),
        (30, ""),
        (20, "NVLS"),
        (10, ""),
    ]
    assert table.run_to_run == {"yes": 0.7, "no": 0.2, "unknown": 0.1}
    assert table.batch_invariant == {"no": 0.6, "yes": 0.3, "unknown": 0.1}
    assert table.clues == {"split-K": 0.4, "NVLS": 0.2}
    assert "not verdicts" in table.summary()
    assert "20.0% of kernel time no" in table.summary()


def test_no_verdict_on_a_real_trace(samples: Path) -> None:
    with open_trace(samples / "nsys/nsys-ai/h100_2gpu_1s.sqlite") as trace:
        table = risks_in(trace)
    assert sum(table.run_to_run.values()) == pytest.approx(1)
    assert [line.total for line in table.lines] == sorted((line.total for line in table.lines), reverse=True)
    split = sum(line.total for line in table.lines if "split_k" in line.kernel)
    assert table.clues == {"split-K": split / table.total}
    for word in ("is deterministic", "is not deterministic", "guarantee"):
        assert word not in table.summary()
