"""The audit names the planted knob and its threshold, whatever the seed, and never accuses an innocent engine."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from proctor.audit.conduct import Audit
from tests.audit.planted import audited

SEEDS = range(20)
SPLIT = {"name": "SPLIT", "default": 1, "values": [0], "env": True}
MODE = {"name": "MODE", "default": 0, "values": [1]}
ULPS = {"ulps": 8.0}
"""A shift of rounding's size: it changes log-probabilities, and a token only where two are nearly equal."""


def thresholds(audit: Audit) -> dict[str, tuple[Any, Any]]:
    return {found.knob: (found.below, found.above) for found in audit.verdict.thresholds}


def seeded(seed: int, **settings: Any) -> dict[str, Any]:
    return {"seed": seed, "rows": 5 + seed % 3, "audit": {"seed": seed, **settings}}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("decimals", [None, 5], ids=["exact", "rounding server"])
def test_an_innocent_engine_is_never_accused(tmp_path: Path, decimals: int | None) -> None:
    for seed in list(SEEDS)[decimals is None :: 2]:
        audit, _ = audited(tmp_path, decimals=decimals, knobs=[SPLIT, MODE], **seeded(seed))
        assert audit.verdict.kind == "no effect found", (seed, audit.verdict)
        assert audit.exit_code == 0
        assert audit.verdict.causes == ()
        assert ("to the 6 digits" in audit.verdict.sentence or "bit for bit" not in audit.verdict.sentence) == bool(
            decimals
        )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_batch_at_which_outputs_change_is_found(tmp_path: Path) -> None:
    for seed in SEEDS:
        switch = random.Random(seed).randint(2, 20)
        audit, _ = audited(tmp_path, {**ULPS, "batch": switch}, **seeded(seed, arms=["batch", "order"]))
        assert audit.verdict.kind == "isolated", (seed, audit.verdict)
        assert audit.verdict.causes == (("batch",),)
        assert thresholds(audit) == {"batch": (switch - 1, switch)}
        assert audit.verdict.nature == "rounding"
        assert audit.exit_code == 4


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_shared_prefix_at_which_outputs_change_is_found(tmp_path: Path) -> None:
    for seed in SEEDS:
        switch = random.Random(seed).choice([40, 100, 256, 300])
        audit, _ = audited(tmp_path, {**ULPS, "batch": 2, "prefix": switch}, **seeded(seed, arms=["batch", "prefix"]))
        assert audit.verdict.causes == (("prefix", "batch"),), (seed, audit.verdict)
        # The question's own first words, "What is on road", are shared too.
        assert thresholds(audit) == {"prefix": (switch - 5, switch - 4), "batch": (1, 2)}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_noise_under_load_is_run_to_run_and_its_load_is_found(tmp_path: Path) -> None:
    for seed in SEEDS:
        load = random.Random(seed).randint(2, 20)
        audit, _ = audited(tmp_path, {**ULPS, "noise": True, "batch": load}, **seeded(seed, arms=["batch", "cache"]))
        assert audit.verdict.kind == "run-to-run", (seed, audit.verdict)
        assert thresholds(audit) == {"batch": (load - 1, load)}
        assert "No other knob can be judged" in audit.verdict.sentence


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_switch_of_the_engine_is_named_and_its_threshold_with_it(tmp_path: Path) -> None:
    for seed in SEEDS:
        switch = random.Random(seed).randint(2, 20)
        effect = {**ULPS, "batch": switch, "knobs": {"SPLIT": 1}}
        audit, _ = audited(tmp_path, effect, knobs=[SPLIT, MODE], **seeded(seed, arms=["batch", "SPLIT", "MODE"]))
        assert audit.verdict.causes == (("batch",),), (seed, audit.verdict)
        assert audit.effects[0].switches == ("SPLIT=0",)
        assert "SPLIT=0 switches it off" in audit.verdict.sentence
        assert thresholds(audit) == {"batch": (switch - 1, switch)}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_knobs_that_only_together_have_an_effect_are_named_together(tmp_path: Path) -> None:
    for seed in SEEDS:
        effect = {**ULPS, "batch": 8, "knobs": {"MODE": 1}}
        audit, _ = audited(tmp_path, effect, knobs=[SPLIT, MODE], **seeded(seed, arms=["batch", "SPLIT", "MODE"]))
        assert audit.verdict.causes == (("batch", "MODE"),), (seed, audit.verdict)
        assert thresholds(audit) == {"batch": (7, 8)}
        assert any(ruled.startswith("SPLIT:") for ruled in audit.verdict.ruled_out)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_warm_cache_is_told_from_a_cold_one(tmp_path: Path) -> None:
    for seed in SEEDS:
        audit, _ = audited(tmp_path, {**ULPS, "warm": 5}, **seeded(seed))
        assert audit.verdict.causes == (("cache",),), (seed, audit.verdict)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_asking_for_log_probabilities_is_named_as_what_changes_tokens(tmp_path: Path) -> None:
    for seed in SEEDS:
        audit, _ = audited(tmp_path, {"nats": 2.0, "observed": True}, **seeded(seed))
        assert audit.verdict.kind == "observer", (seed, audit.verdict)
        assert audit.verdict.causes == (("logprobs",),)


def test_wrong_results_are_told_from_rounding(tmp_path: Path) -> None:
    wrong, _ = audited(tmp_path, {"nats": 3.0, "batch": 4, "share": 0.5}, audit={"arms": ["batch"]})
    assert wrong.verdict.nature == "wrong results"
    assert "Rounding does not explain" in wrong.verdict.sentence
    coarse, _ = audited(tmp_path, {**ULPS, "batch": 4}, audit={"arms": ["batch"]})
    assert coarse.verdict.nature == "rounding"


def test_what_was_not_turned_is_part_of_the_verdict(tmp_path: Path) -> None:
    audit, _ = audited(tmp_path, audit={"arms": ["repeat", "batch"]})
    untried = dict(audit.verdict.untried)
    assert {"order", "prefix", "cache", "neighbours"} <= set(untried)
    assert "batch" not in untried


def test_a_limit_on_sittings_is_kept_and_what_it_left_out_is_said(tmp_path: Path) -> None:
    audit, lab = audited(
        tmp_path, {**ULPS, "batch": 17}, audit={"arms": ["batch"], "batches": [20], "most_sittings": 4}
    )
    planned = len(audit.design.sittings)
    assert len(lab.sat) <= planned + 4 + 1  # and one of higher precision
    (found,) = audit.verdict.thresholds
    assert found.below < 17 <= found.above
    assert found.above - found.below > 1
    assert any(why == "the limit on further sittings was reached" for _, why in audit.verdict.untried)


def test_a_control_that_does_not_show_makes_the_audit_say_what_it_cannot_see(tmp_path: Path) -> None:
    seeing, _ = audited(tmp_path)
    assert not any("was not seen" in clue for clue in seeing.verdict.evidence)


def test_effects_on_few_rows_are_found(tmp_path: Path) -> None:
    audit, _ = audited(tmp_path, {**ULPS, "batch": 4, "every": 10, "below": 1}, audit={"arms": ["batch"]})
    assert audit.verdict.causes == (("batch",),)
    assert thresholds(audit) == {"batch": (3, 4)}
