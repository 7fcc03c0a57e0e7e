"""The same checkpoint in vLLM and in transformers gives the same greedy answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.engines.base import EngineConfig
from proctor.engines.transformers import TransformersEngine
from tests.engines.in_vllm import run_jobs, vllm_config
from tests.engines.tiny import answers, ask_scene, write_random_model
from tests.engines.vllm_child import Job, Jobs

pytestmark = pytest.mark.model
pytest.importorskip("torch", reason="needs the `transformers` extra")
ties = pytest.importorskip("tests.engines.ties")

ROWS = 64
REQUESTS = [ask_scene(number, max_tokens=24, logprobs=True) for number in range(ROWS)]


def loaded(directory: Path) -> TransformersEngine:
    engine = TransformersEngine(EngineConfig("transformers", str(directory), dtype="float32", batch_size=16))
    engine.load()
    return engine


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_vllm_answers_as_transformers_does(trained_model: Path, vllm_python: Path, tmp_path: Path):
    assert {len(request.images) for request in REQUESTS} == {1, 2, 3}
    engine = loaded(trained_model)
    ours = answers(engine, REQUESTS)
    jobs = Jobs(vllm_config(trained_model, batch_size=16), [Job("scenes", REQUESTS)])
    theirs = {response.id: response for response in run_jobs(vllm_python, tmp_path, jobs).results["scenes"].responses}
    assert sorted(theirs) == sorted(ours)
    margins = ties.margins(engine._loaded, REQUESTS, ours, theirs)
    assert {id_: nats for id_, nats in margins.items() if nats >= ties.BOUND} == {}
    for id_ in set(ours) - set(margins):
        mine, yours = ours[id_], theirs[id_]
        assert (mine.text, mine.finish_reason, mine.prompt_tokens) == (
            yours.text,
            yours.finish_reason,
            yours.prompt_tokens,
        )
        assert yours.logprobs == pytest.approx(mine.logprobs, abs=1e-3)


def test_other_weights_are_told_apart(random_model: Path, tmp_path: Path):
    """The comparison has teeth: answers of another checkpoint are not explained by ties."""
    requests = REQUESTS[:6]
    engine = loaded(random_model)
    other = loaded(write_random_model(tmp_path / "other", seed=1))
    margins = ties.margins(engine._loaded, requests, answers(engine, requests), answers(other, requests))
    assert set(margins) == {request.id for request in requests}
    assert max(margins.values()) > ties.BOUND


def test_a_margin_is_measured_with_the_models_own_logprobs(random_model: Path):
    engine = loaded(random_model)
    (response,) = answers(engine, REQUESTS[:1]).values()
    assert response.logprobs
    for place in (0, 3):
        logprobs = ties.logprobs_after(engine._loaded, REQUESTS[0], response.token_ids[:place])
        assert logprobs[response.token_ids[place]].item() == pytest.approx(response.logprobs[place], abs=1e-4)
    ids = response.token_ids
    assert ties.margin(engine._loaded, REQUESTS[0], ids, ids[:4]) == float("inf")
