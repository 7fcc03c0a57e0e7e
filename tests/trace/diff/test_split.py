"""A change in three parts that sum to it, whatever the figures."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.trace import open_trace
from proctor.trace.diff import diff
from proctor.trace.diff.split import Amount, Split, split
from tests.trace.exports import Export

AMOUNTS = st.integers(0, 10_000).flatmap(
    lambda calls: st.builds(Amount, st.just(calls), st.integers(calls, 10**12) if calls else st.just(0))
)
REPEATS = st.none() | st.tuples(st.integers(1, 500), st.integers(1, 500))


@given(AMOUNTS, AMOUNTS, REPEATS)
def test_parts_sum_to_the_change_to_the_nanosecond(a: Amount, b: Amount, iterations: tuple[int, int] | None) -> None:
    assert split(a, b, iterations).total == b.total - a.total


@given(AMOUNTS, AMOUNTS, REPEATS)
def test_parts_change_sign_when_the_sides_change_places(
    a: Amount, b: Amount, iterations: tuple[int, int] | None
) -> None:
    there = split(a, b, iterations)
    back = split(b, a, None if iterations is None else (iterations[1], iterations[0]))
    assert all(abs(one + other) <= 1 for one, other in zip(there, back, strict=True))


def test_the_midpoint_rule() -> None:
    # 10 calls of 100 ns, then 14 of 150 ns: (14 - 10) * 125 = 500 for calls, (150 - 100) * 12 = 600 per call.
    assert split(Amount(10, 1000), Amount(14, 2100)) == Split(0, 500, 600)


def test_three_factors_by_hand() -> None:
    # 2 iterations of 5 calls of 100 ns, then 4 of 6 of 120 ns; Shapley values with weights 1/3 and 1/6.
    per_iteration = (4 - 2) * ((5 * 100 + 6 * 120) / 3 + (5 * 120 + 6 * 100) / 6)
    per_call = (120 - 100) * ((2 * 5 + 4 * 6) / 3 + (2 * 6 + 4 * 5) / 6)
    found = split(Amount(10, 1000), Amount(24, 2880), (2, 4))
    assert found.iterations == round(per_iteration)
    assert found.per_call == round(per_call)
    assert found.total == 1880


def test_only_iterations() -> None:
    assert split(Amount(30, 3000), Amount(20, 2000), (3, 2)) == Split(-1000, 0, 0)


def test_what_is_new_has_no_time_per_call_to_compare() -> None:
    assert split(Amount(0, 0), Amount(7, 700)) == Split(0, 700, 0)
    assert split(Amount(7, 700), Amount(0, 0)) == Split(0, -700, 0)
    assert split(Amount(0, 0), Amount(0, 0)) == Split(0, 0, 0)


def random_export(path: Path, seed: int) -> Path:
    """Kernels of a few names and shapes, copies, memsets and graphs, in any order and side by side."""
    draw = random.Random(seed)
    export = Export(path)
    for _ in range(draw.randrange(1, 60)):
        start, length = draw.randrange(1, 10**6), draw.randrange(0, 5000)
        name = draw.choice(["gemm", "void f<(int)3>(float *)", "f<3>", "softmax_warp_forward", "flash_fwd_kernel"])
        grid = (draw.randrange(1, 4), 1, 1)
        export.kernel(name, start, start + length, grid=grid, stream=draw.randrange(3), pid=draw.choice([100, 200]))
        if draw.random() < 0.4:
            kinds = {"srcKind": draw.randrange(3), "dstKind": 2}
            export.copy(start, start + length, kind=draw.randrange(14), bytes=draw.randrange(10**6), **kinds)
        if draw.random() < 0.2:
            export.memset(start, start + length)
        if draw.random() < 0.1:
            place = export.place(start, start + length + 1, 0, 7, 100, None)
            export.row("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", **place)
    return export.close()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**9))
def test_contributions_sum_to_the_change_of_the_whole(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    folder = tmp_path_factory.mktemp("pair")
    sides = [random_export(folder / f"{side}.sqlite", seed + side) for side in range(2)]
    with open_trace(sides[0]) as a, open_trace(sides[1]) as b:
        found = diff(a, b)
        work = [
            sum(
                trace.one(f'SELECT COALESCE(SUM("end" - start), 0) FROM {view}')
                for view in ("kernels", "copies", "memsets", "graphs")
            )
            for trace in (a, b)
        ]
    assert sum(change.delta_ns for change in found.changes) == work[1] - work[0]
    assert found.split.total == work[1] - work[0]
    assert sum(group.delta_ns for group in found.categories) == work[1] - work[0]
    assert all(change.split.total == change.delta_ns for change in found.changes)
    kernels = sum(change.delta_ns for change in found.changes if change.kind == "kernel")
    total = next(figure for figure in found.totals if figure.name == "total")
    assert kernels == total.delta == sum(group.delta_ns for group in found.ranges)
