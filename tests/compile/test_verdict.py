"""The verdict on invented benches: each rule on a bench that differs from a fine one in that rule alone."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from proctor.compile.model import (
    ANSWERS,
    ENCODER,
    Compilation,
    Dispatch,
    Measured,
    ProbeAnswers,
)
from proctor.compile.verdict import exit_code, verdict
from tests.compile.invented import COST, FASTER, SHAPES, agreement, invented, judged, of

LARGE = 10_000_000


def altered(measured: Measured, target: str, **changes: Any) -> Measured:
    """The same bench with compilations of `target` that differ."""
    made = tuple(replace(one, **changes) if one.target == target else one for one in measured.compilations)
    return replace(measured, compilations=made)


def test_what_is_faster_is_kept_and_what_is_slower_is_not() -> None:
    found = judged()
    assert {one.target: one.decision for one in found.findings} == {
        "embed": "skip",
        "blocks": "keep",
        "merger": "skip",
        ENCODER: "keep",
    }
    assert found.best == ("blocks",)
    assert exit_code(found) == 0
    units = 0.75 / 1 + 0.25 / 4  # of one row
    seconds = 0.01 * (0.75 * 1 + 0.25 / 4 * 4) / units  # four images take four times as long
    assert found.best_saves == pytest.approx(seconds, rel=0.1)
    assert found.sentence.startswith("Compile blocks: it saves ")
    assert "leave embed and merger as they are" in found.sentence


def test_the_reason_has_the_deciding_figure() -> None:
    found = judged(dispatches=(Dispatch("embed", 7.6e-6),))
    assert of(found, "embed").reason.startswith("loses ")
    assert "it is slower (a compiled call costs 7.60 µs before any work is done)" in of(found, "embed").reason
    assert of(found, "blocks").reason.startswith("saves ")


def test_break_even_is_where_the_seconds_are_saved_again() -> None:
    found = of(judged(within=0.001), "blocks")
    per_row = 0.01 * (0.75 * 1 + 0.25 * 4 / 4)
    for cache, seconds in COST.items():
        paid = found.break_even[cache]
        assert paid is not None
        assert paid.value == pytest.approx(seconds / per_row, rel=0.05)
        assert paid.low is not None
        assert paid.high is not None
        assert paid.low < paid.value < paid.high
    assert of(judged(), "embed").break_even == {"cold": None, "warm": None}


def test_a_cache_that_was_not_measured_has_no_break_even() -> None:
    found = judged(cost={"cold": 20.0})
    assert set(of(found, "blocks").break_even) == {"cold"}
    assert (found.worth_it["cold"], found.worth_it["warm"]) == (True, None)
    assert any("what compiling takes was not measured" in flag for flag in judged(cost={}).flags)


def test_the_planned_run_decides_whether_it_is_worth_it() -> None:
    per_row = 0.01
    between = round((COST["cold"] * COST["warm"]) ** 0.5 / per_row)
    found = judged(within=0.001, rows=between)
    assert found.worth_it == {"cold": False, "warm": True}
    assert "loses" in found.sentence
    assert "with a cold cache" in found.sentence
    assert exit_code(found) == 0, "a warm cache makes it worth it"
    assert judged(rows=LARGE).worth_it == {"cold": True, "warm": True}
    assert judged(rows=None).worth_it == {"cold": None, "warm": None}
    assert judged(rows=None).net == {}


def test_what_cannot_pay_in_the_planned_run_is_skipped() -> None:
    found = judged(within=0.001, rows=20)
    assert of(found, "blocks").decision == "skip"
    assert "a run of 20 rows does not pay for compiling it: it loses " in of(found, "blocks").reason
    assert (found.best, exit_code(found)) == ((), 4)
    assert found.sentence.startswith("Do not compile. ")


def test_noise_that_cannot_hide_a_gain_for_this_run_is_no_reason_to_measure_more() -> None:
    equal = {"blocks": (1e-2, 1e-2)}
    assert of(judged(equal, within=0.1, rows=LARGE), "blocks").decision == "inconclusive"
    found = of(judged(equal, within=0.1, rows=100), "blocks")
    assert found.decision == "skip"
    assert "a run of 100 rows does not pay for compiling it" in found.reason


def test_a_gate_that_failed_beats_any_speed() -> None:
    fine = [agreement(name, shape.name) for name in ("embed", "blocks", "merger") for shape in SHAPES]
    for level in ("eager", "aot_eager", "inductor"):
        bad = agreement("blocks", SHAPES[1].name, level=level, passed=False, reason="error 0.4 at the second size")
        found = judged({**FASTER, "blocks": (9e-2, 1e-3)}, agreements=(*fine, bad))
        assert of(found, "blocks").decision == "skip"
        assert "4 images of 224x224" in of(found, "blocks").reason
        assert "error 0.4 at the second size" in of(found, "blocks").reason
        assert of(found, ENCODER).decision == "skip", "it is in the encoder"
        assert found.best == ()
        assert found.flags[0].startswith("blocks: other outputs at 4 images of 224x224")


def test_nothing_is_kept_whose_outputs_were_not_compared_at_every_size() -> None:
    only_warm_up = tuple(agreement(name, SHAPES[0].name) for name in ("embed", "blocks", "merger"))
    found = judged(agreements=only_warm_up)
    assert of(found, "blocks").decision == "inconclusive"
    assert "nobody compared its outputs at 4 images of 224x224" in of(found, "blocks").reason
    assert found.best == ()
    assert judged(agreements=()).best == ()


def test_answers_to_probes_vouch_for_the_whole() -> None:
    probed = ProbeAnswers(ANSWERS, probes=8, changed=(), steady_eager=True, steady_compiled=True)
    truth = {ANSWERS: (0.5, 0.4)}
    measured = replace(invented(truth, agreements=(), answers=(probed,), cost={}), targets={"blocks": 24})
    found = verdict(measured)
    assert of(found, ANSWERS).decision == "keep"
    assert of(found, "blocks").decision == "inconclusive"
    assert found.best == ("blocks",), "the whole was measured with exactly these compiled"
    changed = replace(probed, changed=(("1", "a car", "a cat"),), steady_compiled=False)
    flags = verdict(replace(measured, answers=(changed,))).flags
    assert any("1 of 8 answers to probes differ" in flag for flag in flags)
    assert any("does not repeat its own answers" in flag for flag in flags)


@pytest.mark.parametrize("whose", [ANSWERS, "blocks"])
def test_answers_that_fail_beat_any_speed(whose: str) -> None:
    why = "the answer to row 3 changed where two tokens were 2.1 nats apart, no near-tie"
    failed = ProbeAnswers(whose, 8, (("row 3", "a car", "a cat"),), True, True, (2.1,), passed=False, reason=why)
    found = verdict(invented({"blocks": (0.3, 0.1), "merger": (0.3, 0.1)}, answers=(failed,)))
    assert of(found, "blocks").decision == "skip"
    assert why in of(found, "blocks").reason
    assert of(found, "merger").decision == ("skip" if whose == ANSWERS else "keep")
    assert any(why in flag for flag in found.flags)


def test_what_was_not_compiled_is_no_result() -> None:
    found = verdict(altered(invented(FASTER), "blocks", graphs=0))
    assert of(found, "blocks").decision == "inconclusive"
    assert "no graph was made" in of(found, "blocks").reason
    assert any(flag.startswith("blocks: not compiled (in no process") for flag in found.flags)
    assert found.best == ()


def test_what_the_compiler_did_is_told() -> None:
    spoken = altered(
        invented(FASTER), "blocks", breaks=("tolist",), recompiles=("L['n'] == 4", "L['n'] == 5"), fallbacks=("limit",)
    )
    flags = verdict(spoken).flags
    assert "blocks: ran eagerly after a limit was hit: limit" in flags
    assert "blocks: was compiled anew: L['n'] == 4, and 1 more" in flags
    assert "blocks: has graph breaks: tolist" in flags
    once = replace(spoken, compilations=(Compilation(target="blocks", process=0, cache="cold", seconds=9.0, graphs=1),))
    assert any("a cold cache was measured once (blocks)" in flag for flag in verdict(once).flags)


def test_noise_is_told_with_the_rounds_that_would_decide() -> None:
    noisy = {"blocks": (9e-2, 8.6e-2), ENCODER: (0.1, 0.096)}
    found = next(
        found
        for seed in range(40)
        if of(found := judged(noisy, seed=seed, between=0.05, processes=3), "blocks").decision == "inconclusive"
        and of(found, "blocks").more_rounds
    )
    more = of(found, "blocks").more_rounds
    assert more is not None
    assert more % 12 == 0
    assert f"about {more:,} more rounds, in {more // 12} more process" in of(found, "blocks").reason
    assert exit_code(found) == 3
    assert found.sentence.startswith("Could not tell. ")


def test_many_rounds_of_one_process_decide_nothing() -> None:
    found = judged(processes=1, rounds=200, within=1e-4)
    assert {one.decision for one in found.findings} == {"inconclusive"}
    assert of(found, "blocks").saved is not None
    assert of(found, "blocks").saved == replace(of(found, "blocks").saved, low=None, high=None)  # type: ignore[type-var]
    assert of(found, "blocks").more_rounds is None
    assert found.sentence.startswith("Nothing can be concluded: everything was seen in one process only")
    assert "with blocks alone" in found.sentence, "the arithmetic is given all the same"


def test_a_saving_too_small_to_matter_is_skipped_and_not_open() -> None:
    truth = {**FASTER, "embed": (5e-3, 5e-3), ENCODER: (0.105, 0.097)}
    found = of(judged(truth, within=0.02), "embed")
    assert found.decision == "skip"
    assert "of the encoder's time, too little to matter" in found.reason
    assert of(judged(truth, between=0.5), "embed").decision == "inconclusive"


def test_a_target_that_takes_next_to_nothing_is_skipped_whatever_the_noise() -> None:
    """Amdahl: even one that takes no time at all saves less than 1 % of the whole."""
    truth = {**FASTER, "embed": (5e-3, 4e-3), ENCODER: (0.105, 0.096), ANSWERS: (0.8, 0.79)}
    for within in (0.001, 0.3):
        found = of(judged(truth, within=within), "embed")
        assert found.decision == "skip"
        assert "% of the time end to end at most, too little to matter even if it took none" in found.reason
    assert of(judged(truth, within=0.001), "blocks").decision == "keep", "of 11 % more than 1 % can be saved"


def test_the_whole_saves_what_its_targets_save() -> None:
    """Answers are noisier than the encoder in them, and say no more of it than its parts do."""
    equal = {"blocks": (9e-2, 9e-2), ENCODER: (0.1, 0.1), ANSWERS: (1.0, 1.0)}
    quiet = invented(equal, within=0.005)
    noisy = invented(equal, within=0.2)
    mixed = tuple(one for one in quiet.timings if one.target != ANSWERS)
    mixed += tuple(one for one in noisy.timings if one.target == ANSWERS)
    found = verdict(replace(quiet, timings=mixed))
    assert {one.target: one.decision for one in found.findings} == {"blocks": "skip", ENCODER: "skip", ANSWERS: "skip"}
    assert exit_code(found) == 4


def test_a_run_that_the_encoder_cannot_pay_in_is_not_open_for_the_answers() -> None:
    truth = {"blocks": (9e-2, 8.9e-2), ENCODER: (0.1, 0.099), ANSWERS: (1.0, 0.999)}
    quiet, noisy = invented(truth, within=0.005, rows=100), invented(truth, between=0.5, rows=100)
    mixed = tuple(one for one in quiet.timings if one.target != ANSWERS)
    mixed += tuple(one for one in noisy.timings if one.target == ANSWERS)
    found = verdict(replace(quiet, timings=mixed))
    assert {one.decision for one in found.findings} == {"skip"}
    assert "a run of 100 rows does not pay for compiling it" in of(found, ANSWERS).reason
    assert exit_code(found) == 4


def test_a_gain_above_what_the_share_allows_is_flagged() -> None:
    allowed = judged({**FASTER, ANSWERS: (1.0, 0.992)}, within=0.001).amdahl
    assert allowed is not None
    assert allowed.share == pytest.approx(0.1, rel=0.01)
    assert allowed.predicted.value == pytest.approx(1 / (1 - 0.008) - 1, rel=0.1)
    assert allowed.most == pytest.approx(1 / 0.9 - 1, rel=0.05)
    assert not allowed.flagged
    found = judged({**FASTER, ANSWERS: (1.0, 0.95)}, within=0.001)
    assert found.amdahl is not None
    assert found.amdahl.flagged
    assert any(flag.startswith("end to end: 10.0 % of the time is the encoder's") for flag in found.flags)
    assert judged().amdahl is None


def test_an_encoder_slower_than_the_whole_predicts_nothing() -> None:
    found = judged({**FASTER, ANSWERS: (0.05, 0.04)}).amdahl
    assert found is not None
    assert (found.flagged, found.most) == (True, None)
    assert "not timed under the same load" in found.reason


def test_nothing_timed_is_nothing_told() -> None:
    found = verdict(Measured(subject={}, targets={"blocks": 24}, shapes=SHAPES))
    assert found.sentence == "Nothing can be concluded: nothing was timed in both arms."
    assert exit_code(found) == 3
    assert of(found, "blocks").reason == "it was not timed in both arms"


def test_a_target_that_could_not_be_compiled_does_not_stop_the_others() -> None:
    """What it takes is then in no target, and everything else was measured without it."""
    measured = invented(FASTER)
    failed = Compilation("embed", 0, "cold", 0.0, 0, breaks=("tolist",))
    without = replace(
        measured,
        timings=tuple(one for one in measured.timings if one.target != "embed"),
        compilations=(failed, *(one for one in measured.compilations if one.target != "embed")),
        agreements=tuple(one for one in measured.agreements if one.target != "embed"),
    )
    found = verdict(without)
    assert found.best == ("blocks",)
    assert of(found, "embed").decision == "inconclusive"
    assert "no graph was made" in of(found, "embed").reason
    assert found.unaccounted["eager"] > verdict(measured).unaccounted["eager"]
    alone = verdict(replace(without, targets={"embed": 1, "blocks": 1}))
    assert alone.net_of == ("blocks",)
    assert set(alone.net) == {"cold", "warm"}
