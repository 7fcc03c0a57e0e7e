"""How timings become figures: what counts, what each shape weighs, subsets, and what lies in no target."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from proctor.compile.model import ANSWERS, ENCODER, Timing
from proctor.compile.verdict import exit_code, verdict
from tests.compile.invented import FASTER, SHAPES, invented, judged, of


def test_warm_up_does_not_count_and_a_cold_first_round_is_seen() -> None:
    measured = invented(FASTER)
    slow = tuple(replace(one, seconds=50.0) if one.round < 0 else one for one in measured.timings)
    assert replace(verdict(replace(measured, timings=slow)), flags=()) == replace(verdict(measured), flags=())
    cold = tuple(
        replace(one, seconds=9 * one.seconds) if one.round == 0 and one.arm == "compiled" else one
        for one in measured.timings
    )
    assert any("the warm-up was too short" in flag for flag in verdict(replace(measured, timings=cold)).flags)
    bare = tuple(one for one in measured.timings if one.round >= 0)
    assert any("no warm-up is recorded" in flag for flag in verdict(replace(measured, timings=bare)).flags)


def test_rounds_with_one_arm_are_left_out_and_told() -> None:
    measured = invented(FASTER)
    alone = Timing("blocks", SHAPES[0].name, "compiled", 0, 99, 1e-9)
    found = verdict(replace(measured, timings=(*measured.timings, alone)))
    assert of(found, "blocks").saved == of(verdict(measured), "blocks").saved
    assert "blocks: left out, with one arm only: 1 round" in found.flags


def test_both_calls_of_a_round_count() -> None:
    """ABBA: each arm is timed twice in a round, here with other numbers of calls."""
    measured = invented({"blocks": (4.0, 3.0)}, within=0.0, cost={})
    first = [replace(one, seconds=one.seconds * 1.5, calls=1) for one in measured.timings]
    second = [replace(one, seconds=one.seconds * 0.5, calls=3) for one in measured.timings]
    found = of(verdict(replace(measured, timings=(*first, *second))), "blocks")
    plain = of(verdict(measured), "blocks")
    assert found.eager is not None
    assert plain.eager is not None
    assert found.eager.value == pytest.approx(0.75 * plain.eager.value)


def test_shapes_weigh_what_their_rows_are() -> None:
    """A unit of four rows stands for four of them: its share of the units is a quarter of that of the rows."""
    times = {SHAPES[0].name: (1.0, 0.5), SHAPES[1].name: (2.0, 3.0)}
    timings = tuple(
        Timing("blocks", shape, arm, process, number, seconds)
        for shape, both in times.items()
        for arm, seconds in zip(("eager", "compiled"), both, strict=True)
        for process in range(3)
        for number in range(2)
    )
    found = of(verdict(replace(invented({"blocks": (1.0, 1.0)}), timings=timings)), "blocks")
    units = 0.75 + 0.25 / 4
    assert found.saved is not None
    assert found.saved.value == pytest.approx((0.75 * 0.5 - 0.25 / 4 * 1.0) / units)


def test_the_best_subset_is_that_of_the_targets_that_gain() -> None:
    found = judged()
    assert found.subsets[0].targets == ("blocks",)
    assert len(found.subsets) == 7
    saves = {one.targets: one.saves.value for one in found.subsets}
    assert saves["embed", "blocks"] == pytest.approx(saves["embed",] + saves["blocks",])
    many = judged({f"part {n}": (1e-2, 9e-3 if n % 2 else 1.1e-2) for n in range(7)})
    assert many.subsets[0].targets == ("part 1", "part 3", "part 5") == many.best
    assert len(many.subsets) == 1 + 1 + 7 + 7


def test_what_lies_in_no_target_is_a_row_of_its_own() -> None:
    found = judged({"blocks": (9e-2, 8e-2), ENCODER: (0.1, 0.09)})
    scale = (0.75 + 0.25) / (0.75 + 0.25 / 4)
    assert found.unaccounted == {
        "eager": pytest.approx(0.01 * scale, rel=0.2),
        "compiled": pytest.approx(0.01 * scale, rel=0.2),
    }
    assert not any("in no target" in flag for flag in found.flags)
    elsewhere = judged({"blocks": (9e-2, 9e-2), ENCODER: (0.1, 0.05)}, within=0.001)
    assert any("in no target has another time in the two arms" in flag for flag in elsewhere.flags)
    assert judged({"blocks": (9e-2, 8e-2)}).unaccounted == {}


def test_the_whole_beats_the_sum_of_its_parts() -> None:
    found = judged({"blocks": (9e-2, 8e-2), ENCODER: (0.1, 0.09), ANSWERS: (0.5, 0.6)})
    assert of(found, "blocks").decision == "keep"
    assert of(found, ANSWERS).decision == "skip"
    assert (found.best, exit_code(found)) == ((), 4)
    assert any("blocks alone gains, but with everything compiled answers loses" in flag for flag in found.flags)


def test_the_same_figures_give_the_same_verdict() -> None:
    measured = invented(FASTER, between=0.03)
    assert verdict(measured) == verdict(measured)
    shuffled = replace(measured, timings=measured.timings[::-1])
    assert verdict(shuffled).findings == verdict(measured).findings
