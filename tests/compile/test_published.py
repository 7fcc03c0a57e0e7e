"""The published comparison, judged by the rules for what is measured here: its arithmetic holds, its conclusion not."""

from __future__ import annotations

import pytest

from proctor.compile.model import ANSWERS, ENCODER, Verdict
from proctor.compile.published import published
from proctor.compile.verdict import exit_code, verdict


@pytest.fixture(scope="module")
def found() -> Verdict:
    return verdict(published())


def test_nothing_can_be_concluded_from_single_figures(found: Verdict) -> None:
    assert {one.decision for one in found.findings} == {"inconclusive"}
    assert found.sentence.startswith("Nothing can be concluded: everything was seen in one process only")
    assert (found.best, exit_code(found)) == ((), 3)
    for one in found.findings:
        assert one.saved is not None
        assert (one.saved.low, one.saved.high, one.more_rounds) == (None, None, None)
    assert found.worth_it == {"cold": None, "warm": None}


def test_it_has_paid_after_12787_samples(found: Verdict) -> None:
    paid = next(one for one in found.findings if one.target == ANSWERS).break_even["cold"]
    assert paid is not None
    assert round(paid.value) == 12_787


def test_the_comparison_itself_was_a_loss(found: Verdict) -> None:
    """8.7 s were saved in 8,603 samples, and 12.9 s spent on compiling."""
    assert found.net["cold"].value == pytest.approx(8.7 - 12.9, abs=0.05)
    assert "a run of 8,603 rows loses 4.22 s with a cold cache" in found.sentence


def test_the_share_allows_less_than_was_measured(found: Verdict) -> None:
    checked = found.amdahl
    assert checked is not None
    assert checked.measured is not None
    assert checked.share == pytest.approx(0.135, abs=5e-4)
    assert checked.predicted.value == pytest.approx(0.0060, abs=5e-5)
    assert checked.measured.value == pytest.approx(0.0337, abs=5e-5)
    assert checked.most == pytest.approx(0.156, abs=5e-4)
    assert checked.flagged
    assert checked.measured.value / checked.predicted.value == pytest.approx(5.6, abs=0.1)


def test_a_fifth_of_the_encoder_is_in_no_target(found: Verdict) -> None:
    assert found.unaccounted == {"eager": pytest.approx(0.0888), "compiled": pytest.approx(0.0888)}
    encoder = next(one for one in found.findings if one.target == ENCODER)
    assert encoder.eager is not None
    assert found.unaccounted["eager"] / encoder.eager.value == pytest.approx(0.20, abs=0.005)


def test_the_blocks_alone_save_most(found: Verdict) -> None:
    saves = {one.targets: one.saves.value for one in found.subsets}
    assert found.subsets[0].targets == ("VisionBlocks",)
    assert saves["VisionBlocks",] == pytest.approx(0.0223)
    assert saves["PatchEmbed", "VisionBlocks"] == pytest.approx(0.0213)  # what vLLM compiles
    assert saves["PatchEmbed", "VisionBlocks", "PatchMerger"] == pytest.approx(0.0198)
