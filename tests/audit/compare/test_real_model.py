"""The comparison on the real tiny model: what batches do to float32 and bfloat16, and what other weights do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proctor.audit.compare import compare, compare_repeats, judged, suspicious_flips
from proctor.audit.model import Observation
from tests.engines.tiny import answers, ask_scene

pytestmark = [pytest.mark.model, pytest.mark.slow]

ROWS = 24
Asked = Callable[..., list[Observation]]


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    pytest.importorskip("transformers", reason="needs the `transformers` extra")
    from proctor.demo.weights import model_dirs

    return model_dirs(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def asked(directories: dict[str, Path]) -> Asked:
    from proctor.engines.base import EngineConfig
    from proctor.engines.transformers import TransformersEngine

    def observed(
        arm: str, *, batch: int, dtype: str = "float32", step: str = "step-1000", rounds: int = 1
    ) -> list[Any]:
        engine = TransformersEngine(EngineConfig("transformers", str(directories[step]), dtype, batch))
        engine.load()
        made = []
        for number in range(rounds):
            requests = [ask_scene(row, max_tokens=16, logprobs=True, top_logprobs=3) for row in range(ROWS)]
            groups = [requests] if batch > 1 else [[request] for request in requests]
            made += [
                Observation(
                    arm=arm,
                    round=number,
                    row_id=found.id,
                    text=found.text,
                    token_ids=found.token_ids,
                    logprobs=found.logprobs,
                    top=found.top_logprobs,
                    finish_reason=found.finish_reason,
                )
                for group in groups
                for found in answers(engine, group).values()
            ]
        engine.close()
        return made

    return observed


def test_repeats_are_clean_and_batches_are_rounding(asked: Asked) -> None:
    alone, batch = asked("batch=1", batch=1, rounds=2), asked("batch=16", batch=16)
    repeats = compare_repeats(alone)
    assert not repeats.differs, repeats.remarks
    assert repeats.bitwise
    found = compare(batch, alone)
    assert (found.rows, found.failed, found.bitwise, found.decimals) == (ROWS, 0, True, None)
    if found.differs:  # whether float32 depends on the batch is up to the processor and the build
        assert found.logprob_equal.value < 1
        assert found.shift[-1] < 1e-3
    assert suspicious_flips(found) == ()


def test_bfloat16_is_rounding_against_float32_and_other_weights_are_not(asked: Asked) -> None:
    exact = asked("float32", batch=1)
    half = asked("bfloat16", batch=1, dtype="bfloat16"), asked("bfloat16 batch=16", batch=16, dtype="bfloat16")
    other = asked("other weights", batch=1, step="step-0500")
    against = [compare(arm, exact) for arm in (*half, other)]
    assert against[0].differs
    assert judged(against[0], against[1]).kind == "rounding"
    assert judged(against[0], against[2]).kind == "wrong results"
    several = compare(asked("batch=16", batch=16), exact)
    assert judged(against[0], several, same_format=False).kind == "rounding"
    assert judged(against[2], several, same_format=False).kind == "wrong results"
    assert len(against[2].flips) > len(against[0].flips)
