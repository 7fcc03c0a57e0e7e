"""The verdict over many benches of known truth: how often it is right, and that none makes it fail."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from proctor.compile.breakeven import ahead, break_even, net_gain
from proctor.compile.estimate import estimate, student
from proctor.compile.model import (
    ANSWERS,
    ENCODER,
    Agreement,
    Compilation,
    Dispatch,
    Interval,
    Measured,
    ProbeAnswers,
    Shape,
    Timing,
)
from proctor.compile.verdict import exit_code, verdict
from tests.compile.invented import COST, SHAPES, invented

SEEDS = range(200)
NOISES = {
    "rounds": {"within": 0.03},
    "processes": {"between": 0.03, "within": 0.01},
    "load that comes and goes": {"shared": 0.3, "within": 0.02, "between": 0.01},
}


def decisions(truth: tuple[float, float], **noise: float) -> Counter[str]:
    found: Counter[str] = Counter()
    for seed in SEEDS:
        measured = invented({"blocks": truth}, seed=seed, processes=3, rounds=5, **noise)  # type: ignore[arg-type]
        found[verdict(measured).findings[0].decision] += 1
    return found


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
def test_equal_arms_are_hardly_ever_kept(noise: str) -> None:
    found = decisions((1e-2, 1e-2), **NOISES[noise])
    assert found["keep"] <= 0.05 * len(SEEDS)
    assert found["inconclusive"] >= 0.9 * len(SEEDS)


@pytest.mark.slow
def test_what_is_slower_is_never_kept_and_what_is_much_faster_always() -> None:
    noise = {"between": 0.02, "within": 0.02}
    assert decisions((1e-2, 1.1e-2), **noise)["keep"] == 0
    assert decisions((1e-2, 5e-3), **noise) == {"keep": len(SEEDS)}


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
def test_intervals_cover_the_truth(noise: str) -> None:
    """Of the saving and of the break-even, 95 % of the time: at least 91 % of 200."""
    per_row = 2e-3 * (0.75 + 0.25)
    units = 0.75 + 0.25 / 4
    hits: Counter[str] = Counter()
    for seed in SEEDS:
        measured = invented({"blocks": (1e-2, 8e-3)}, seed=seed, processes=4, rounds=6, **NOISES[noise])  # type: ignore[arg-type]
        found = verdict(measured).findings[0]
        assert found.saved is not None
        hits["saved"] += _covers(found.saved, per_row / units)
        for cache, paid in found.break_even.items():
            hits[cache] += paid is not None and _covers(paid, COST[cache] / per_row)
    assert min(hits[name] for name in ("saved", "cold", "warm")) >= 0.91 * len(SEEDS)


def _covers(found: Interval, truth: float) -> bool:
    return found.low is not None and found.low <= truth <= (math.inf if found.high is None else found.high)


@pytest.mark.slow
def test_as_many_more_rounds_as_it_asks_for_decide() -> None:
    """With the promised processes most benches of an effect of the size seen come to a decision."""
    truth, noise, decided, asked = (1e-2, 9.5e-3), {"between": 0.04, "within": 0.01}, 0, 0
    for seed in range(60):
        first = verdict(invented({"blocks": truth}, seed=seed, processes=3, rounds=4, **noise)).findings[0]  # type: ignore[arg-type]
        if first.more_rounds is None or first.saved is None or not 0.7 < first.saved.value / 6e-4 < 1.4:
            continue
        again = invented({"blocks": truth}, seed=1000 + seed, processes=3 + first.more_rounds // 4, rounds=4, **noise)  # type: ignore[arg-type]
        asked += 1
        decided += verdict(again).findings[0].decision == "keep"
    assert asked >= 10
    assert decided >= 0.4 * asked  # an estimate that is just enough decides about half the time


positive = st.floats(1e-9, 1e4)
interval = st.tuples(positive, st.floats(0, 3)).map(lambda v: Interval(v[0], v[0] * (1 - v[1]), v[0] * (1 + v[1])))


@given(interval, interval)
def test_break_even_lies_within_its_interval(cost: Interval, saved: Interval) -> None:
    cost = replace(cost, low=max(0.0, cost.low or 0.0))
    found = break_even(cost, saved)
    assert found is not None
    assert found.value == cost.value / saved.value
    assert found.low is not None
    assert 0 <= found.low <= found.value * (1 + 1e-9)
    if saved.low is not None and saved.low > 1e-6 * saved.value:
        assert found.high is not None
        assert found.high >= found.value * (1 - 1e-9)
        assert found.high <= (cost.high or 0.0) / saved.low * (1 + 1e-6), "not wider than both worst cases together"
    elif saved.low is not None and saved.low <= 0:
        assert found.high is None


def test_break_even_by_hand() -> None:
    assert break_even(Interval(10.0), Interval(-1.0, -2.0, 0.0)) is None
    assert break_even(Interval(10.0), Interval(2.0)) == Interval(5.0)
    assert break_even(Interval(10.0, 10.0, 10.0), Interval(2.0, 1.0, 3.0)) == Interval(
        5.0, pytest.approx(10 / 3), pytest.approx(10.0)
    )
    assert break_even(Interval(10.0, 8.0, 12.0), Interval(2.0, 2.0, 2.0)) == Interval(
        5.0, pytest.approx(4.0), pytest.approx(6.0)
    )
    assert break_even(Interval(10.0, 8.0, 12.0), Interval(2.0, -1.0, 5.0)) == Interval(5.0, pytest.approx(1.6), None)


def test_a_run_is_ahead_where_its_rows_save_more_than_compiling_takes() -> None:
    assert net_gain(Interval(10.0), Interval(0.01), 2000) == Interval(10.0)
    sure = net_gain(Interval(10.0, 7.0, 13.0), Interval(0.01, 0.008, 0.012), 2000)
    assert sure == Interval(10.0, pytest.approx(5.0), pytest.approx(15.0))  # the root of 3² + 4²
    assert [ahead(sure), ahead(Interval(-1.0, -2.0, -0.5)), ahead(Interval(1.0, -1.0, 3.0)), ahead(Interval(1.0))] == [
        True,
        False,
        None,
        None,
    ]


def test_student() -> None:
    assert student(1) == pytest.approx(12.706, abs=1e-3)
    assert student(4) == pytest.approx(2.776, abs=1e-3)
    assert student(10_000) == pytest.approx(1.960, abs=1e-3)


def test_two_processes_close_by_luck_do_not_make_a_narrow_interval() -> None:
    """Where processes agree better than their rounds allow, the rounds say how wide it is."""
    rounds = [1.0, 1.2, 0.8, 1.1, 0.9]
    timings = tuple(
        Timing("blocks", SHAPES[0].name, arm, process, number, seconds if arm == "eager" else 0.95)
        for process in range(2)
        for number, seconds in enumerate(rounds)
        for arm in ("eager", "compiled")
    )
    found = estimate(replace(invented({"blocks": (1, 1)}), timings=timings), "blocks")
    assert found is not None
    assert found.saved.value == pytest.approx(0.05)
    assert found.saved.low is not None
    assert found.saved.low < 0


names = st.sampled_from(["embed", "blocks", ENCODER, ANSWERS, "elsewhere"])
shapes = st.sampled_from([*(shape.name for shape in SHAPES), "unheard of"])
arms = st.sampled_from(["eager", "compiled"])
small = st.integers(0, 3)
seconds = st.floats(1e-9, 1e5)
lines = st.lists(st.text(max_size=5), max_size=2).map(tuple)
timings = st.builds(Timing, names, shapes, arms, small, st.integers(-2, 4), seconds, st.integers(1, 9))
compilations = st.builds(
    Compilation,
    names,
    small,
    st.sampled_from(["cold", "warm"]),
    st.floats(-1, 1e5),
    st.none() | small,
    *[lines] * 3,
)
share = st.floats(0, 1)
agreements = st.builds(
    Agreement, names, shapes, st.sampled_from(["eager", "inductor"]), share, share, share, share, *[st.booleans()] * 3
)
probes = st.builds(ProbeAnswers, names, small, st.just((("1", "a", "b"),)), st.booleans(), st.booleans())
workloads = st.lists(
    st.builds(Shape, st.sampled_from([shape.name for shape in SHAPES]), small, small, st.integers(1, 64), share),
    unique_by=lambda shape: shape.name,
    max_size=2,
)
benches = st.builds(
    Measured,
    subject=st.just({"model": "any"}),
    targets=st.dictionaries(st.sampled_from(["embed", "blocks", ENCODER]), st.integers(1, 30), max_size=3),
    shapes=workloads.map(tuple),
    timings=st.lists(timings, max_size=40).map(tuple),
    compilations=st.lists(compilations, max_size=6).map(tuple),
    dispatches=st.lists(st.builds(Dispatch, names, seconds), max_size=2).map(tuple),
    agreements=st.lists(agreements, max_size=4).map(tuple),
    answers=st.lists(probes, max_size=2).map(tuple),
    rows=st.none() | st.integers(0, 10**9),
)


@settings(deadline=None, max_examples=150)
@given(benches)
def test_no_bench_makes_it_fail(measured: Measured) -> None:
    found = verdict(measured)
    assert found.sentence
    assert exit_code(found) in (0, 3, 4)
    assert set(found.best) <= set(measured.targets)
    failed = {one.target for one in measured.agreements if not one.passed}
    assert not failed & set(found.best)
    for one in found.findings:
        assert one.reason
        if one.decision == "keep":
            assert one.saved is not None
            assert one.saved.low is not None
            assert one.saved.low > 0
