"""Audits of the real tiny model: the effects of this machine's own kernels, named with the knob that ends them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proctor.audit.conduct import Audit, Auditor
from proctor.demo.dataset import write_dataset
from proctor.spec import build_spec
from tests.engines.conftest import trained_model, vllm_python

__all__ = ["trained_model", "vllm_python"]  # fixtures

LONG = "You see frames of a road, seen from a car, one after another. " * 90
"""About 1,400 tokens: long enough for attention on a CPU to be split over threads."""


def spec_of(folder: Path, engine: dict[str, Any], audit: dict[str, Any], prompt: str | None = None) -> dict[str, Any]:
    write_dataset(folder / "data", 40, first_scene=50_000, corrupt={})
    columns = {"images": ["frames"], "target": "target"}
    return {
        "run_dir": str(folder / "run"),
        "source": {"kind": "mds", "path": str(folder / "data"), "columns": columns},
        "engine": {"env": {"OMP_NUM_THREADS": "1"}, **engine},
        "task": {"kind": "driving", **({"prompt": prompt} if prompt else {})},
        "sampling": {"max_tokens": 20},
        "audit": audit,
    }


def audited(spec: dict[str, Any]) -> Audit:
    return Auditor(build_spec(spec)).run()[0]


def shares(audit: Audit) -> dict[str, float | None]:
    """Share of equal log-probabilities, by arm."""
    return {
        shown.arm.name: shown.comparison.logprob_equal.value
        for shown in audit.arms
        if shown.comparison is not None and shown.comparison.logprob_equal is not None
    }


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.timeout(900)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_transformers_is_steady_and_its_batches_are_judged_by_what_this_machine_shows(
    tmp_path: Path, trained_model: Path, dtype: str
) -> None:
    engine = {"kind": "transformers", "checkpoints": [str(trained_model)], "dtype": dtype, "batch_size": 8}
    arms = ["repeat", "batch", "dtype"]
    audit = audited(spec_of(tmp_path, engine, {"sample": 8, "arms": arms, "batches": [8]}))
    seen = shares(audit)
    assert seen["repeat"] == 1.0
    assert audit.verdict.kind in ("no effect found", "isolated")
    # Whether a batch changes the sums depends on the processor: the verdict must follow what was seen.
    assert (("batch",) in audit.verdict.causes) == (seen["batch=8"] < 1.0)
    if ("batch",) in audit.verdict.causes:
        assert audit.verdict.nature == "rounding"
        (found,) = audit.verdict.thresholds
        assert 1 <= found.below < found.above <= 8
    control = next(shown for shown in audit.arms if shown.arm.layer == "control")
    assert control.comparison is not None
    assert control.comparison.differs
    assert not any("was not seen" in clue for clue in audit.verdict.evidence)


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.timeout(1500)
def test_vllm_on_two_threads_is_led_to_the_switch_of_split_attention(
    tmp_path: Path, trained_model: Path, vllm_python: Path
) -> None:
    engine = {
        "kind": "vllm",
        "checkpoints": [str(trained_model)],
        "python": str(vllm_python),
        "dtype": "float32",
        "batch_size": 4,
        "max_model_len": 2048,
        "env": {"OMP_NUM_THREADS": "2"},
        "options": {"kv_cache_memory_bytes": 2**28, "enable_prefix_caching": False},
    }
    audit_spec = {"sample": 4, "arms": ["repeat", "batch", "VLLM_CPU_ATTN_SPLIT_KV"], "batches": [4]}
    spec = spec_of(tmp_path, engine, audit_spec, prompt=LONG + "Describe the road and plan the path.")
    spec["sampling"] = {"max_tokens": 12}
    audit = audited(spec)
    seen = shares(audit)
    assert seen["repeat"] == 1.0
    if seen["batch=4"] == 1.0:
        pytest.skip("vLLM's attention does not depend on the batch on this machine")
    assert audit.verdict.causes[0] == ("batch",)
    (effect,) = [effect for effect in audit.effects if effect.causes == ("batch",)]
    # Splitting is the cause of all of it, or of nearly all: what is left then is another cause's.
    assert "VLLM_CPU_ATTN_SPLIT_KV=off" in (*effect.switches, *effect.dampers), (seen, audit.verdict)
