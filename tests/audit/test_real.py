"""Audits of the real tiny model: the effects of this machine's own kernels, named with the knob that ends them.

transformers answers in this process: an audit starts an engine for each round and setting, and a child of each would
spend nine tenths of its time on imports. vLLM, whose settings are environment variables, is audited in children.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proctor.audit.bench import Start, supervised
from proctor.audit.conduct import Audit, Auditor
from proctor.audit.lab import Lab
from proctor.audit.model import BASELINE, Comparison, Threshold
from proctor.demo.dataset import write_dataset
from proctor.spec import build_spec
from tests.audit.planted import in_process
from tests.engines.conftest import trained_model, vllm_python

__all__ = ["trained_model", "vllm_python"]  # fixtures
LONG = "You see frames of a road, seen from a car, one after another. " * 40 + "Describe the road and plan the path."
"""With an image about 1,700 tokens: long enough for attention that is split over threads, and within 2,048."""
SPLIT = "VLLM_CPU_ATTN_SPLIT_KV"


def spec_of(
    folder: Path, engine: dict[str, Any], audit: dict[str, Any], task: dict[str, Any] | None = None
) -> dict[str, Any]:
    write_dataset(folder / "data", 40, first_scene=50_000, corrupt={})
    columns = {"images": ["frames"], "target": "target"}
    return {
        "run_dir": str(folder / "run"),
        "source": {"kind": "mds", "path": str(folder / "data"), "columns": columns},
        "engine": {"env": {"OMP_NUM_THREADS": "1"}, **engine},
        "task": {"kind": "driving", **(task or {})},
        "sampling": {"max_tokens": 20},
        "audit": audit,
    }


def audited(spec: dict[str, Any], start: Start = in_process) -> tuple[Audit, Lab]:
    return Auditor(build_spec(spec), start=start).run()


def comparisons(audit: Audit) -> dict[str, Comparison]:
    """What every arm showed against its reference, by arm."""
    return {shown.arm.name: shown.comparison for shown in audit.arms if shown.comparison is not None}


def lies_within(found: Threshold, least: int, most: int) -> bool:
    """Whether a threshold is one of the batch, between these values."""
    assert isinstance(found.below, int)
    assert isinstance(found.above, int)
    return found.knob == "batch" and least <= found.below < found.above <= most


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.timeout(900)
def test_transformers_is_steady_and_is_told_what_its_padded_batches_do(tmp_path: Path, trained_model: Path) -> None:
    engine = {"kind": "transformers", "checkpoints": [str(trained_model)], "dtype": "bfloat16", "batch_size": 8}
    arms = {"sample": 8, "arms": ["repeat", "batch", "attention"], "batches": [8]}
    spec = spec_of(tmp_path, engine, arms)
    audit, lab = audited({**spec, "sampling": {"max_tokens": 8}})
    lengths = {found.prompt_tokens for found in lab.observations(BASELINE)}
    assert len(lengths) > 1, "a batch of these is padded"
    seen = comparisons(audit)
    assert seen["repeat"].rows == 16, "every row was answered, in both rounds"
    assert not seen["repeat"].differs
    # Whether padding and the batch change the sums depends on the processor: the verdict must follow what was seen.
    shows = seen["batch=8"].differs
    assert (("batch",) in audit.verdict.causes) == shows
    assert any(ruled.startswith("batch: ") for ruled in audit.verdict.ruled_out) != shows
    if shows:
        assert_the_switch_is_judged(audit, "attention=eager")
        assert all(lies_within(found, 1, 8) for found in audit.verdict.thresholds), "none if it comes and goes"
    assert audit.verdict.nature == ("rounding" if audit.effects else "unknown")


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.timeout(900)
def test_vllm_with_two_threads_is_told_which_switch_makes_its_batches_alike(
    tmp_path: Path, trained_model: Path, vllm_python: Path
) -> None:
    engine = {
        "kind": "vllm",
        "checkpoints": [str(trained_model)],
        "dtype": "float32",
        "batch_size": 2,
        "max_model_len": 2048,
        "python": str(vllm_python),
        "env": {"OMP_NUM_THREADS": "2"},
        "options": {"kv_cache_memory_bytes": 2**28, "enable_prefix_caching": False},
    }
    arms = {"sample": 2, "arms": ["repeat", "batch", SPLIT], "batches": [2]}
    audit, _ = audited(spec_of(tmp_path, engine, arms, {"prompt": LONG}), supervised)
    seen, verdict = comparisons(audit), audit.verdict
    assert seen["repeat"].rows == 4, "every row was answered"
    assert not seen["repeat"].differs
    # Whether the sums depend on the batch is the processor's matter: the verdict must say what was seen.
    assert (("batch",) in verdict.causes) == seen["batch=2"].differs
    assert any(ruled.startswith("batch: ") for ruled in verdict.ruled_out) != seen["batch=2"].differs
    if seen["batch=2"].differs:
        assert_the_switch_is_judged(audit, f"{SPLIT}=off")
        (found,) = audit.verdict.thresholds
        assert lies_within(found, 1, 2)


def assert_the_switch_is_judged(audit: Audit, setting: str) -> None:
    """The switch ends the effect of a batch, makes it rarer, or does nothing for it: whichever was seen is told."""
    effect = next(effect for effect in audit.effects if effect.causes == ("batch",))
    with_it, without = comparisons(audit)[effect.arm], comparisons(audit)[f"{effect.arm} x {setting}"]
    assert without.rows == with_it.rows == 2 * len(audit.design.rows), "every row was answered, in both rounds"
    assert effect.switches == (() if without.differs else (setting,))
    assert (f"{setting} switches it off" in audit.verdict.sentence) != without.differs
    assert with_it.logprob_equal is not None
    assert without.logprob_equal is not None
    rarer = without.differs and without.logprob_equal.low > with_it.logprob_equal.high
    assert effect.dampers == ((setting,) if rarer else ())
    results = {remedy.setting: remedy.result for remedy in audit.remedies}
    assert (setting in results) == (rarer or not without.differs)
