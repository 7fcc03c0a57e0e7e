"""Public reports of engines that do not give the same answer twice, planted: the audit says what their threads found.

Each test plants what a report describes and holds the verdict against it. Reports of wrong answers are in
``test_wrong_reports.py``.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.audit.planted import audited, evident, threshold

ULPS = {"ulps": 8.0}
"""A shift of rounding's size."""


def test_vllm_51187_batch_invariant_mode_is_not_the_same_from_run_to_run_at_44_rows(tmp_path: Path) -> None:
    """Five identical workloads gave three outputs at about 44 rows in flight; ``max_num_seqs`` 8 gave one."""
    noise = {"nats": 0.5, "noise": True, "batch": 44, "at_least": {"max_num_seqs": 9}}
    most = {"name": "max_num_seqs", "default": 256, "values": [8]}
    arms = {"rounds": 5, "arms": ["repeat", "batch", "max_num_seqs"], "batches": [8, 64]}
    audit, lab = audited(tmp_path, noise, knobs=[most], rows=8, batch_size=64, longest=12, audit=arms)
    assert (audit.verdict.kind, audit.exit_code) == ("run-to-run", 4)
    assert audit.verdict.causes == (("batch",),)
    assert threshold(audit, "batch") == (43, 44)
    assert "max_num_seqs=8 ends it" in audit.verdict.sentence
    assert "No other knob can be judged" in audit.verdict.sentence
    assert audit.verdict.ruled_out == ()
    loud, quiet = lab.repeats("batch=64"), lab.repeats("batch=8")
    assert loud.unique is not None
    assert quiet.unique is not None
    assert loud.unique.hits > 0
    assert (quiet.unique.hits, quiet.unique.of) == (0, 8)


@pytest.mark.parametrize(
    ("batch_size", "prefix", "together"), [(2, 200, (254, 256)), (20, 64, (240, 260))], ids=["exact", "in steps of 20"]
)
def test_vllm_48271_another_block_size_from_256_tokens_on(
    tmp_path: Path, batch_size: int, prefix: int, together: tuple[int, int]
) -> None:
    """RMSNorm sums in another order when the prompts of a step have 256 tokens together."""
    arms = {"arms": ["batch", "prefix"], "prefix_words": [prefix]}
    audit, _ = audited(tmp_path, {**ULPS, "total": 256}, rows=6, batch_size=batch_size, audit=arms)
    assert audit.verdict.causes == (("prefix", "batch"),)
    found = {found.knob: found for found in audit.verdict.thresholds}
    assert found["prefix"].together == together
    assert together[0] < 256 <= together[1]
    assert "48271" in found["prefix"].known_as
    assert evident(audit, "a hint and no proof", "48271")
    assert audit.verdict.nature == "rounding"


def test_vllm_51290_only_tensor_parallelism_of_four_changes_outputs(tmp_path: Path) -> None:
    """Fused all-reduce (and sglang #10785): two devices agree with one, four do not; nothing else matters."""
    devices = {"name": "tensor_parallel", "default": 1, "values": [2, 4, 8], "ordered": True, "listed": True}
    eager = {"name": "enforce_eager", "default": False, "values": [True]}
    audit, lab = audited(tmp_path, {**ULPS, "at_least": {"tensor_parallel": 4}}, knobs=[devices, eager])
    assert audit.verdict.kind == "isolated"
    assert audit.verdict.causes == (("tensor_parallel",),)
    assert threshold(audit, "tensor_parallel") == (2, 4)
    assert "tensor_parallel=4 (from 4 on, not up to 2; " in audit.verdict.sentence
    assert not lab.has_sat("tensor_parallel=3"), "there is no such number of devices"
    ruled_out = {line.partition(":")[0] for line in audit.verdict.ruled_out}
    assert {"batch", "order", "neighbours", "cache", "enforce_eager"} <= ruled_out


@pytest.mark.parametrize("stop", [["###"], []], ids=["with a stop text", "without"])
def test_vllm_42699_a_warm_prefix_cache_changes_answers_that_a_text_ends(tmp_path: Path, stop: list[str]) -> None:
    """Cold and warm differ (also #5543), and only for requests with a stop text."""
    effect = {"nats": 3.0, "warm": 5, "stops": True}
    audit, _ = audited(tmp_path, effect, sampling={"stop": stop}, audit={"arms": ["batch", "cache", "stop"]})
    if not stop:
        assert audit.verdict.kind == "no effect found"
        return
    assert audit.verdict.causes == (("cache",),)
    assert audit.effects[0].layer == "cache"
    assert audit.effects[0].switches == ("stop=off",)
    assert audit.verdict.nature == "wrong results"
    assert not any(line.startswith("cache:") for line in audit.verdict.ruled_out)


def test_ollama_18163_asking_for_log_probabilities_changes_long_answers(tmp_path: Path) -> None:
    effect = {"nats": 3.0, "observed": True, "step": 24}
    arms = {"arms": ["batch", "cache", "logprobs"]}
    audit, lab = audited(tmp_path, effect, shortest=10, longest=48, batch_size=4, audit=arms)
    assert audit.verdict.kind == "observer"
    assert audit.verdict.causes == (("logprobs",),)
    assert "The measurement changes the answers" in audit.verdict.sentence
    flips = lab.comparison("logprobs=off").flips
    assert flips
    assert min(flip.position for flip in flips) >= 24
    short, _ = audited(tmp_path, effect, shortest=10, longest=24, batch_size=4, audit=arms)
    assert short.verdict.kind == "no effect found"


def test_vllm_44319_log_probabilities_depend_on_how_many_are_asked_for(tmp_path: Path) -> None:
    """With 2, 4 and 5 leaders the same token had other values, and fewer came: the instrument is not stable."""
    audit, lab = audited(tmp_path, {**ULPS, "top": 4}, {"hides": 1, "top": 4}, near_ties=0.0)
    assert audit.verdict.kind == "observer"
    assert audit.verdict.causes == (("top",),)
    assert threshold(audit, "top") == (3, 4)
    assert "The instrument is not stable" in audit.verdict.sentence
    assert evident(audit, "top=5: 5 most likely tokens were asked for, and 4 came at ")
    seen = lab.comparison("top=5")
    assert seen.token_equal is not None
    assert seen.token_equal.hits == seen.token_equal.of


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_unsloth_9708_batches_round_otherwise_in_half_precision(tmp_path: Path, dtype: str) -> None:
    """The same from run to run, another rounding in any batch, gone in float32; one row is NaN and stands apart."""
    rounding = {"ulps": 1.0, "batch": 2, "dtypes": ["bfloat16", "float16"]}
    overflow = {"nan": True, "every": 10, "below": 1}
    audit, lab = audited(tmp_path, rounding, overflow, dtype=dtype, audit={"arms": ["repeat", "batch", "dtype"]})
    assert audit.verdict.kind == "isolated"
    assert audit.verdict.causes == (("batch",),)
    assert threshold(audit, "batch") == (1, 2)
    assert audit.verdict.nature == "rounding"
    assert "dtype=float32 switches it off" in audit.verdict.sentence
    assert evident(audit, "asked again with nothing changed", "20 of 20")
    assert evident(audit, "log-probabilities of row 0 are not numbers", "kept apart")
    seen = lab.comparison("batch=2")
    assert seen.logprob_equal is not None
    assert 0 < seen.logprob_equal.of < sum(len(one.token_ids) for one in lab.observations("batch=2"))
    assert all(map(math.isfinite, seen.shift))


def test_log_probabilities_that_are_no_numbers_are_never_called_equal(tmp_path: Path) -> None:
    audit, _ = audited(tmp_path, {"nan": True}, audit={"arms": ["batch"]})
    assert audit.verdict.kind == "no effect found"
    assert "gave the same answers" in audit.verdict.sentence
    assert evident(audit, "log-probabilities of rows 0, 1, 2", "are not numbers")


def test_unirl_208_a_fixed_seed_makes_clones_of_all_samples(tmp_path: Path) -> None:
    """The deterministic mode's default seed, 42, was that of every sample: n answers, one unique."""
    hot = {"temperature": 1.0}
    arms = {"arms": ["repeat", "batch", "seed"]}
    audit, _ = audited(tmp_path, fixed_seed=42, sampling=hot, longest=8, audit=arms)
    assert (audit.verdict.kind, audit.exit_code) == ("too identical", 4)
    assert "10 of 10 rows at temperature 1" in audit.verdict.sentence
    assert evident(audit, "control seed=1 was not seen")
    healthy, _ = audited(tmp_path, sampling=hot, longest=8, audit=arms)
    assert (healthy.verdict.kind, healthy.exit_code) == ("no effect found", 0)
    assert not evident(healthy, "was not seen")


def test_sglang_11718_single_prompts_pass_where_shared_prefixes_fail(tmp_path: Path) -> None:
    """A check of single prompts (PR #10651) says nothing about prefixes, and must not sound as if it did."""
    effect = {**ULPS, "batch": 2, "prefix": 64}
    single, _ = audited(tmp_path, effect, audit={"arms": ["repeat", "batch"]})
    assert single.verdict.kind == "no effect found"
    assert "determinis" not in single.verdict.sentence
    assert "Not tried: neighbours, order, prefix, cache" in single.verdict.sentence
    assert dict(single.verdict.untried)["prefix"] == "left out by audit.arms"
    whole, _ = audited(tmp_path, effect, audit={"arms": ["repeat", "batch", "prefix"]})
    assert whole.verdict.kind == "isolated"
    assert whole.verdict.causes == (("prefix", "batch"),)
    assert threshold(whole, "prefix") == (59, 60)  # the question's own first words, "What is on road", are shared too
