"""Replays of the real tiny model: the baseline's tokens forced on arms that differ in number format and batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.audit.conduct import Auditor
from proctor.spec import build_spec
from tests.audit.test_real import spec_of
from tests.engines.conftest import trained_model

__all__ = ["trained_model"]  # fixtures


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.timeout(600)
def test_transformers_replays_every_position_and_judges_it_against_a_higher_precision(
    tmp_path: Path, trained_model: Path
) -> None:
    engine = {"kind": "transformers", "checkpoints": [str(trained_model)], "dtype": "bfloat16", "batch_size": 2}
    audit, lab = Auditor(
        build_spec(spec_of(tmp_path, engine, {"sample": 4, "arms": ["repeat", "batch", "dtype"]}))
    ).run()
    assert audit.verdict.kind in ("no effect found", "isolated")
    answers = {one.row_id: one.token_ids for one in lab.observations("baseline", lab.rounds_of("baseline")[:1])}
    tokens = sum(map(len, answers.values()))
    shown = {one.arm.name: one for one in audit.arms}
    free = {name: one.comparison for name, one in shown.items() if one.comparison is not None}
    # Which arms differ is this processor's matter: those that part are replayed, and so is what a verdict judges.
    expected = {arm.name for arm in audit.design.arms if arm.name in free and free[arm.name].flips}
    expected |= {effect.arm for effect in audit.effects[:1]}
    assert {name for name, one in shown.items() if one.replayed is not None} >= expected
    for name in lab.replayed:
        assert {one.row_id: one.token_ids for one in lab.replay(name) or []} == answers
    for one in audit.arms:
        if one.replayed is not None:
            assert one.replayed.failed == 0
            assert one.replayed.top1_equal is not None
            assert one.replayed.top1_equal.of == tokens
            assert not any("did not keep" in remark for remark in one.replayed.remarks)
    if audit.effects:
        assert audit.verdict.nature == "rounding"
        assert any("root mean square error against dtype=float32" in clue for clue in audit.verdict.evidence)
    control = shown["dtype=float32"].comparison
    assert control is not None, "a control that is the reference as well is still a control"
    assert control.differs
