"""Processes are added for what is open, and for nothing else."""

from __future__ import annotations

from functools import cache

import pytest
from msgspec.structs import replace

from proctor.compile.collected import Collected
from proctor.compile.model import ANSWERS, ENCODER, Interval, Measured
from proctor.compile.orders import Options, Piece
from proctor.compile.sequence import Sitting, sittings, still_open
from proctor.compile.verdict import verdict
from proctor.compile.worth import Worth, at_best
from tests.compile.invented import FASTER, invented, of

NOISY = {**FASTER, "middle": (4e-2, 3.8e-2), ENCODER: (0.14, 0.13), ANSWERS: (0.3, 0.29)}


def bench(processes: int, seed: int = 0, **noise: float) -> Measured:
    """One in which `middle` is open after three processes, and decided after six."""
    full = invented(NOISY, seed=seed, processes=6, rounds=6, **{"between": 0.02, "within": 0.01, **noise})  # type: ignore[arg-type]
    kept = tuple(timing for timing in full.timings if timing.process < processes)
    return replace(full, timings=kept, looks=2)


def told_of(measured: Measured) -> Collected:
    told = Collected({"processes": 3}, rows=measured.rows)
    told.add(
        Piece(
            targets=measured.targets,
            shapes=measured.shapes,
            timings=measured.timings,
            compilations=measured.compilations,
            agreements=measured.agreements,
        )
    )
    return told


@cache
def an_open_bench() -> Measured:
    """The first of them with `middle` open and `blocks` kept."""
    for seed in range(60):
        measured = bench(3, seed)
        if of(verdict(measured), "blocks").decision == "keep" and still_open(measured, 3).keys() == {"middle"}:
            return measured
    raise AssertionError("none of 60 benches leaves that one target open")


def test_what_is_open_is_timed_in_more_processes_and_nothing_else() -> None:
    told = told_of(an_open_bench())
    run = list(sittings(Options(processes=3, most=6), told))
    assert run[:3] == [Sitting(number, 3) for number in range(3)]
    assert [sitting.only for sitting in run[3:]] == [("middle",)] * len(run[3:])
    assert 1 <= len(run[3:]) <= 3
    assert told.measured().looks == 2
    assert told.measured().subject["processes"] == len(run)
    assert told.measured().notes[-1].endswith("timed middle only")


def test_without_more_processes_allowed_none_are_added() -> None:
    told = told_of(an_open_bench())
    assert len(list(sittings(Options(processes=3), told))) == 3
    assert told.measured().looks == 1


def test_where_all_is_decided_none_are_added() -> None:
    assert still_open(bench(3, between=0.0005, within=0.001), 3) == {}


def test_what_more_would_not_decide_is_left_open() -> None:
    for seed in range(60):
        measured = invented({"blocks": (1e-2, 1e-2)}, seed=seed, processes=3, rounds=6, between=0.05)
        found = of(verdict(measured), "blocks")
        if found.decision == "inconclusive" and (found.more_rounds is None or found.more_rounds > 6 * 6):
            assert still_open(measured, 3) == {}
            return
    raise AssertionError("none of 60 benches of equal arms is far from decided")


def test_the_encoder_and_the_answers_are_timed_together() -> None:
    """The sum of the parts does not decide here, so that the wholes are open with everything that may be kept."""
    truth = {"blocks": (9e-2, 8.6e-2), ENCODER: (0.1, 0.096), ANSWERS: (0.3, 0.29)}
    for seed in range(60):
        measured = invented(truth, seed=seed, processes=3, rounds=6, between=0.03)
        found = still_open(measured, 3)
        if {ENCODER, ANSWERS} & set(found):
            assert {ENCODER, ANSWERS} <= set(found)
            return
    raise AssertionError("the wholes are decided in each of 60 benches")


def test_what_was_timed_in_more_processes_is_judged_by_all_of_them() -> None:
    measured = bench(6)
    rest = tuple(one for one in measured.timings if one.process < 3 or one.target == "middle")
    found, before = verdict(replace(measured, timings=rest)), verdict(bench(3))
    assert of(found, "middle") == of(verdict(measured), "middle")
    assert of(found, "blocks") == of(before, "blocks")
    assert found.unaccounted == before.unaccounted
    assert found.amdahl == before.amdahl
    alone = next(one for one in found.subsets if one.targets == ("middle",))
    assert alone.saves == of(found, "middle").saved


def test_what_the_whole_was_not_timed_with_still_counts_for_its_target() -> None:
    """Of processes that timed the target alone the speed-up is known, and its share from those that timed both."""
    held = Worth(ANSWERS, 1.0, Interval(0.02, 0.01, 0.03), Interval(0.0, -0.04, 0.04))
    assert at_best(held, None) == 0.04
    assert at_best(held, Interval(1.0, 0.8, 1.25)) == pytest.approx(0.2 * 0.03)
    assert at_best(held, Interval(0.8, 0.7, 0.9)) == 0.0
    assert at_best(held._replace(saving=Interval(0.0)), Interval(1.0)) is None


@pytest.mark.slow
def test_two_looks_do_not_make_noise_an_effect() -> None:
    """Equal arms are kept as seldom as without processes added, and a gain is seen far more often."""
    noise = {"between": 0.03, "within": 0.01}
    kept = {}
    for truth in (1e-2, 9.4e-3):
        decisions = []
        for seed in range(150):
            full = replace(invented({"blocks": (1e-2, truth)}, seed=seed, processes=6, rounds=5, **noise), looks=2)  # type: ignore[arg-type]
            first = replace(full, timings=tuple(one for one in full.timings if one.process < 3))
            total = 3 + max(still_open(first, 3).values(), default=0)
            last = replace(full, timings=tuple(one for one in full.timings if one.process < total))
            decisions.append((verdict(first).findings[0].decision, verdict(last).findings[0].decision))
        kept[truth] = [sum(one[look] == "keep" for one in decisions) for look in (0, 1)]
    assert kept[1e-2][1] <= 0.05 * 150
    assert kept[9.4e-3][1] >= 2 * kept[9.4e-3][0]
    assert kept[9.4e-3][1] >= 0.4 * 150
