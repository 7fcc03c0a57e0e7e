"""Replays of the real tiny model: the baseline's tokens forced on rows in company, and at higher precision."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.audit.replay import Replays
from tests.audit.test_real import audited, spec_of
from tests.engines.conftest import trained_model

__all__ = ["trained_model"]  # fixtures


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.timeout(600)
def test_transformers_replays_every_position_and_judges_it_against_a_higher_precision(
    tmp_path: Path, trained_model: Path
) -> None:
    engine = {"kind": "transformers", "checkpoints": [str(trained_model)], "dtype": "bfloat16", "batch_size": 2}
    settings = {"sample": 4, "arms": ["repeat", "batch", "dtype"]}
    audit, lab = audited(spec_of(tmp_path, engine, settings))
    # Whether a batch changes the sums depends on the processor: only what a verdict judges was replayed by itself.
    assert ("batch=2" in lab.replayed) == bool(audit.effects)
    replays = Replays(lab, {})
    replays.run(["batch=2"])
    assert replays.troubles == {}
    answers = {one.row_id: one.token_ids for one in lab.observations("baseline", lab.rounds_of("baseline")[:1])}
    for name in lab.replayed:
        assert {one.row_id: one.token_ids for one in lab.replay(name) or []} == answers
    found = replays.comparison("batch=2")
    assert found is not None
    assert found.top1_equal is not None
    assert (found.failed, found.top1_equal.of) == (0, sum(map(len, answers.values())))
    assert not any("did not keep" in remark for remark in found.remarks)
    if audit.effects:
        assert audit.verdict.nature == "rounding"
        assert any("root mean square error against dtype=float32" in clue for clue in audit.verdict.evidence)
    control = next(shown for shown in audit.arms if shown.arm.layer == "control")
    assert control.comparison is not None
    assert control.comparison.differs
    assert not any("was not seen" in clue for clue in audit.verdict.evidence)
