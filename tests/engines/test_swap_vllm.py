"""Swaps in vLLM's CPU build: whatever it answers after one is what a cold engine answers, to the last bit."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from proctor.engines.base import EngineConfig
from proctor.engines.fingerprint import differences
from tests.engines.in_vllm import run_steps, vllm_config
from tests.engines.swapping import REQUESTS, copy_with, published, retensored
from tests.engines.vllm_swaps_child import Outcome, Step

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(600)]
pytest.importorskip("torch", reason="needs the `transformers` extra")

CAREFUL = {"options": {"mm_processor_cache_gb": 1}, "max_model_len": 1024}
"""All three caches are on, and the long probe fits."""
UNPACKED = "proctor.engines.vllm_worker:remake_tied"


def config(directory: Path, **changes: Any) -> EngineConfig:
    return vllm_config(directory, **{**CAREFUL, **changes})


def start(directory: Path, **changes: Any) -> Step:
    return Step("start", config(directory, **changes), requests=REQUESTS)


def swap(directory: Path, weights: str = "", *, without: tuple[str, ...] = (), **changes: Any) -> Step:
    return Step("swap", config(directory, **changes), weights, list(without), REQUESTS)


def assert_same(expected: Outcome, found: Outcome) -> None:
    assert found.error is None
    assert expected.fingerprint is not None
    assert found.fingerprint is not None
    assert differences(expected.fingerprint, found.fingerprint) == ""
    assert {answer.failure for answer in found.fingerprint.answers} == {""}
    assert found.responses == expected.responses


def difference(expected: Outcome, found: Outcome) -> str:
    assert found.error is None
    assert expected.fingerprint is not None
    assert found.fingerprint is not None
    return differences(expected.fingerprint, found.fingerprint)


@pytest.fixture
def shared(checkpoints: list[Path]) -> Iterator[list[str]]:
    """Paths of the published weights of all checkpoints."""
    with ExitStack() as stack:
        yield [stack.enter_context(published(directory)).path for directory in checkpoints]


def test_swaps_along_all_checkpoints_equal_cold_engines(
    checkpoints: list[Path], shared: list[str], vllm_python: Path, tmp_path: Path
):
    one = {"dtype": "bfloat16"}  # the other tests swap float32
    cold = run_steps(vllm_python, tmp_path, [start(directory, **one) for directory in checkpoints])
    assert len({outcome.fingerprint for outcome in cold}) == len(checkpoints)
    order = (1, 2, 3, 0, 0, 2)
    steps = [start(checkpoints[0], **one)]
    steps += [swap(checkpoints[number], shared[number], **one) for number in order]
    steps += [swap(checkpoints[number], **one) for number in order[1:]]  # vLLM reads the files itself
    for number, outcome in zip((0, *order, *order[1:]), run_steps(vllm_python, tmp_path, steps), strict=True):
        assert_same(cold[number], outcome)
        assert outcome.mapped == 0


def test_a_packed_copy_of_the_old_head_is_seen(
    checkpoints: list[Path], shared: list[str], vllm_python: Path, tmp_path: Path
):
    """Of tied weights vLLM's own reload leaves the head's packed copy as it was; only a fingerprint tells."""
    first, other = checkpoints[0], checkpoints[3]
    steps = [start(other), start(first), swap(other, shared[3], without=(UNPACKED,)), swap(other, shared[3])]
    cold, _, unpacked, right = run_steps(vllm_python, tmp_path, steps)
    assert "differ" in difference(cold, unpacked)
    assert_same(cold, right)


def test_caches_of_what_the_old_weights_made_are_seen(
    checkpoints: list[Path], shared: list[str], vllm_python: Path, tmp_path: Path
):
    """Under the old directory's path: an image counts by its pixels and that path, so under another it is a new one."""
    first = checkpoints[0]
    prefix, encoder = (f"vllm.v1.engine.llm_engine:LLMEngine.reset_{kind}_cache" for kind in ("prefix", "encoder"))
    runner = "vllm.v1.worker.gpu_model_runner:GPUModelRunner.reset_encoder_cache"
    steps = [start(checkpoints[3])]
    for without in ((prefix,), (encoder,), (encoder, runner), ()):
        steps += [start(first), swap(first, shared[3], without=without)]
    cold, *outcomes = run_steps(vllm_python, tmp_path, steps)
    blocks, scheduler, embeddings, right = outcomes[1::2]
    assert difference(cold, blocks).startswith("long text: ")
    assert scheduler.unanswerable.startswith("Encoder cache miss")
    assert difference(cold, embeddings).startswith("image: ")
    assert_same(cold, right)


def refused(outcome: Outcome, before: Outcome) -> str:
    """Why; the engine answers as before."""
    assert outcome.error is not None
    kind, reason = outcome.error
    assert kind == "SwapRefused", reason
    assert outcome.fingerprint == before.fingerprint
    assert outcome.responses == before.responses
    return reason


def test_what_cannot_be_swapped_is_refused_before_anything_changes(
    checkpoints: list[Path], vllm_python: Path, tmp_path: Path
):
    first, other = checkpoints[:2]
    narrow = copy_with(other, tmp_path / "narrow", config=lambda content: content["text_config"].update(head_dim=64))
    method = {"quant_method": "fp8"}
    quantized = copy_with(other, tmp_path / "q", config=lambda content: content.update(quantization_config=method))
    ended = copy_with(other, tmp_path / "ended", generation_config=lambda content: content.update(eos_token_id=[2, 9]))
    template = copy_with(other, tmp_path / "template")
    (template / "chat_template.jinja").write_text("{{ messages }}")
    short = retensored(other, tmp_path / "short", lambda tensors: tensors.pop("lm_head.norm", tensors.popitem()))
    with published(short) as weights:
        steps = [
            start(first),
            swap(narrow),
            swap(quantized),
            swap(ended),
            swap(template),
            swap(short),
            swap(other, weights.path),
            swap(other, "/proc/1/fd/999999"),
            Step("swap", replace(config(other), batch_size=3), requests=REQUESTS),
            start(other),
            swap(other),
        ]
        before, *outcomes, cold, again = run_steps(vllm_python, tmp_path, steps)
    reasons = [refused(outcome, before) for outcome in outcomes]
    for reason, said in zip(
        reasons,
        [
            "config.json differs in `text_config.head_dim`: 64, not 32",
            "quantized weights (fp8)",
            "generation_config.json differs, and vLLM reads it only when it starts",
            "chat_template.jinja differs, and vLLM reads it only when it starts",
            "the weights lack ",
            "the weights lack ",
            "no published weights",
            "differs in `batch_size`",
        ],
        strict=True,
    ):
        assert said in reason
    assert_same(cold, again)


def test_after_a_swap_that_fails_half_way_nothing_is_answered(
    checkpoints: list[Path], vllm_python: Path, tmp_path: Path
):
    """The weights of another shape under the right configuration: as a file that is damaged between look and use."""
    broken = "proctor.engines.swap_check:_check_layout"
    other = retensored(checkpoints[1], tmp_path / "other", lambda tensors: _cut(tensors))
    before, failed = run_steps(vllm_python, tmp_path, [start(checkpoints[0]), swap(other, without=(broken,))])
    assert before.fingerprint is not None
    assert failed.error is not None
    assert failed.error[0] != "SwapRefused"
    assert failed.fingerprint is None
    assert failed.unanswerable == "a swap has failed half-way: the engine has to be started anew"


def _cut(tensors: dict[str, Any]) -> None:
    name = next(name for name in tensors if name.endswith("q_proj.weight"))
    tensors[name] = tensors[name][:3].clone()


def test_workers_in_processes_of_their_own_are_swapped_too(
    checkpoints: list[Path], shared: list[str], vllm_python: Path, tmp_path: Path
):
    apart = {"multiprocessing": True}
    steps = [start(checkpoints[3], **apart), start(checkpoints[0], **apart)]
    steps += [swap(checkpoints[3], shared[3], **apart), swap(checkpoints[0], **apart)]
    cold, first, there, back = run_steps(vllm_python, tmp_path, steps)
    assert_same(cold, there)
    assert_same(first, back)


def test_text_models_are_swapped_too(vllm_python: Path, tmp_path: Path):
    """Of their probes the ones with images are refused, before and after."""
    pytest.importorskip("transformers", reason="needs the `transformers` extra")
    from tests.engines.other_models import write_text_model

    one_head = {"num_attention_heads": 1, "num_key_value_heads": 1, "max_position_embeddings": 1024}
    with ExitStack() as stack:
        steps = []
        for tied in (False, True):
            one, two = (
                write_text_model(tmp_path / f"{name}-{tied}", **one_head, tie_word_embeddings=tied) for name in "ab"
            )
            path = stack.enter_context(published(two)).path
            steps += [start(two), start(one), swap(two, path), swap(one)]
        outcomes = run_steps(vllm_python, tmp_path, steps)
    for cold, first, there, back in (outcomes[:4], outcomes[4:]):
        assert difference(cold, there) == difference(first, back) == ""
        assert difference(cold, first) != ""
        assert cold.fingerprint is not None
        assert [answer.failure for answer in cold.fingerprint.answers] == ["", "", "", *["infer.rejected"] * 3]


def test_the_file_as_it_is_now_is_what_counts(checkpoints: list[Path], vllm_python: Path, tmp_path: Path):
    """Under one path, one checkpoint after another, as training writes its latest."""
    latest = Path(shutil.copytree(checkpoints[1], tmp_path / "latest"))
    steps = [start(checkpoints[2]), start(checkpoints[0]), swap(latest), swap(latest)]
    steps[-1].replaced = (str(checkpoints[2] / "model.safetensors"), str(latest / "model.safetensors"))
    cold, _, before, after = run_steps(vllm_python, tmp_path, steps)
    assert difference(cold, before) != ""
    assert_same(cold, after)
