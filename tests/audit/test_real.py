"""Audits of the real tiny model: the effects of this machine's own kernels, named with the knob that ends them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proctor.audit.conduct import Audit, Auditor
from proctor.demo.dataset import write_dataset
from proctor.spec import build_spec
from tests.engines.conftest import trained_model

__all__ = ["trained_model"]  # fixtures


def spec_of(folder: Path, engine: dict[str, Any], audit: dict[str, Any]) -> dict[str, Any]:
    write_dataset(folder / "data", 40, first_scene=50_000, corrupt={})
    columns = {"images": ["frames"], "target": "target"}
    return {
        "run_dir": str(folder / "run"),
        "source": {"kind": "mds", "path": str(folder / "data"), "columns": columns},
        "engine": {"env": {"OMP_NUM_THREADS": "1"}, **engine},
        "task": {"kind": "driving"},
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
@pytest.mark.parametrize("dtype", ["float32"])
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
