"""Swaps in vLLM's CPU build: whatever it answers after one is what a cold engine answers, to the last bit.

Importing vLLM and starting it are what takes time: all steps that can share a process do, and an engine is started
where a test needs what a cold one answers or one that nothing is known of.
"""

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

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(900)]
pytest.importorskip("torch", reason="needs the `transformers` extra")

CAREFUL = {"options": {"mm_processor_cache_gb": 1}, "max_model_len": 1024}
"""All three caches are on, and the long probe fits."""
UNPACKED = "proctor.engines.vllm_worker:remake_tied"
UNCHECKED = "proctor.engines.swap_check:_check_layout"
PREFIX, ENCODER = (f"vllm.v1.engine.llm_engine:LLMEngine.reset_{kind}_cache" for kind in ("prefix", "encoder"))
RUNNER = "vllm.v1.worker.gpu_model_runner:GPUModelRunner.reset_encoder_cache"
Steps = dict[str, Step]
Outcomes = dict[str, Outcome]
ALONG = (1, 2, 3, 0, 0, 2)
REFUSALS = {
    "narrow": "config.json differs in `text_config.head_dim`: 64, not 32",
    "quantized": "quantized weights (fp8)",
    "ended": "generation_config.json differs, and vLLM reads it only when it starts",
    "template": "chat_template.jinja differs, and vLLM reads it only when it starts",
    "short": "the weights lack ",
    "short published": "the weights lack ",
    "nothing published": "no published weights",
    "another batch": "differs in `batch_size`",
}


def config(directory: Path, **changes: Any) -> EngineConfig:
    return vllm_config(directory, **{**CAREFUL, **changes})


def start(directory: Path, **changes: Any) -> Step:
    return Step("start", config(directory, **changes), requests=REQUESTS)


def swap(directory: Path, weights: str = "", *, without: tuple[str, ...] = (), **changes: Any) -> Step:
    return Step("swap", config(directory, **changes), weights, list(without), REQUESTS)


@pytest.fixture(scope="module")
def shared(checkpoints: list[Path]) -> Iterator[list[str]]:
    """Paths of the published weights of all checkpoints."""
    with ExitStack() as stack:
        yield [stack.enter_context(published(directory)).path for directory in checkpoints]


@pytest.fixture(scope="module")
def outcomes(
    checkpoints: list[Path], shared: list[str], vllm_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Outcomes:
    """What came of each step in one process of vLLM, by the step's name."""
    work = tmp_path_factory.mktemp("swaps")
    with ExitStack() as stack:
        steps = {
            **in_bfloat16(checkpoints, shared),
            **of_the_third(checkpoints, work),
            **of_the_first(checkpoints, shared, work, stack),
            **of_text_models(work, stack),
        }
        return dict(zip(steps, run_steps(vllm_python, work, list(steps.values())), strict=True))


def in_bfloat16(checkpoints: list[Path], shared: list[str]) -> Steps:
    """The last that starts is the first to be swapped; all others swap float32."""
    one = {"dtype": "bfloat16"}
    steps = {f"bfloat16 {number}": start(checkpoints[number], **one) for number in (1, 2, 3, 0)}
    for place, number in enumerate(ALONG):
        steps[f"published {place}"] = swap(checkpoints[number], shared[number], **one)
    for place, number in enumerate(ALONG[1:]):
        steps[f"read {place}"] = swap(checkpoints[number], **one)  # vLLM reads the files itself
    return steps


def of_the_third(checkpoints: list[Path], work: Path) -> Steps:
    """An engine that is never used again. What breaks it has another shape under the right configuration: as a file
    that is damaged between look and use."""
    broken = retensored(checkpoints[1], work / "broken", lambda tensors: _cut(tensors))
    return {
        **{f"cold {number}": start(checkpoints[number]) for number in (3, 1, 2)},
        "broken": swap(broken, without=(UNCHECKED,)),
    }


def _cut(tensors: dict[str, Any]) -> None:
    name = next(name for name in tensors if name.endswith("q_proj.weight"))
    tensors[name] = tensors[name][:3].clone()


def of_the_first(checkpoints: list[Path], shared: list[str], work: Path, stack: ExitStack) -> Steps:
    """An engine that refuses, then swaps, and forgets to do what it should; the last step leaves it unusable.

    What is to be found in a cache of images is swapped under the old directory's path: an image counts by its pixels
    and that path, so under another it is a new one.
    """
    first, other, third, last = checkpoints
    latest = Path(shutil.copytree(other, work / "latest"))
    replaced = swap(latest)
    replaced.replaced = (str(third / "model.safetensors"), str(latest / "model.safetensors"))
    return {
        "cold 0": start(first),
        **refused_steps(other, work, stack),
        "after refusals": swap(other),
        "latest": swap(latest),
        "latest replaced": replaced,
        "first": swap(first, shared[0]),
        "packed": swap(last, shared[3], without=(UNPACKED,)),
        "unpacked": swap(last, shared[3]),
        "before prefix": swap(first, shared[0]),
        "prefix kept": swap(first, shared[3], without=(PREFIX,)),
        "before embeddings": swap(first, shared[0]),
        "embeddings kept": swap(first, shared[3], without=(ENCODER, RUNNER)),
        "before encoder": swap(first, shared[0]),
        "scheduler's part kept": swap(first, shared[3], without=(ENCODER,)),
    }


def refused_steps(other: Path, work: Path, stack: ExitStack) -> Steps:
    """In the order of `REFUSALS`."""
    narrow = copy_with(other, work / "narrow", config=lambda content: content["text_config"].update(head_dim=64))
    method = {"quant_method": "fp8"}
    quantized = copy_with(other, work / "q", config=lambda content: content.update(quantization_config=method))
    ended = copy_with(other, work / "ended", generation_config=lambda content: content.update(eos_token_id=[2, 9]))
    template = copy_with(other, work / "template")
    (template / "chat_template.jinja").write_text("{{ messages }}")
    short = retensored(other, work / "short", lambda tensors: tensors.pop("lm_head.norm", tensors.popitem()))
    lacking = stack.enter_context(published(short)).path
    steps = [
        swap(narrow),
        swap(quantized),
        swap(ended),
        swap(template),
        swap(short),
        swap(other, lacking),
        swap(other, "/proc/1/fd/999999"),
        Step("swap", replace(config(other), batch_size=3), requests=REQUESTS),
    ]
    return dict(zip(REFUSALS, steps, strict=True))


def of_text_models(work: Path, stack: ExitStack) -> Steps:
    """Each of two is swapped for the other, with a head of its own and with a tied one."""
    pytest.importorskip("transformers", reason="needs the `transformers` extra")
    from tests.engines.other_models import write_text_model

    one_head = {"num_attention_heads": 1, "num_key_value_heads": 1, "max_position_embeddings": 1024}
    steps: Steps = {}
    for tied in (False, True):
        one, two = (write_text_model(work / f"{name}-{tied}", **one_head, tie_word_embeddings=tied) for name in "ab")
        path = stack.enter_context(published(two)).path
        for name, step in {"two": start(two), "one": start(one), "there": swap(two, path), "back": swap(one)}.items():
            steps[f"text {name} {tied}"] = step
    return steps


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


def test_swaps_along_all_checkpoints_equal_cold_engines(outcomes: Outcomes):
    cold = [outcomes[f"bfloat16 {number}"] for number in range(4)]
    assert len({outcome.fingerprint for outcome in cold}) == 4
    for place, number in enumerate(ALONG):
        assert_same(cold[number], outcomes[f"published {place}"])
    for place, number in enumerate(ALONG[1:]):
        assert_same(cold[number], outcomes[f"read {place}"])


def test_nothing_that_was_published_stays_mapped(outcomes: Outcomes):
    assert {outcome.mapped for outcome in outcomes.values()} == {0}


def test_a_packed_copy_of_the_old_head_is_seen(outcomes: Outcomes):
    """Of tied weights vLLM's own reload leaves the head's packed copy as it was; only a fingerprint tells."""
    assert_same(outcomes["cold 0"], outcomes["first"])
    assert "differ" in difference(outcomes["cold 3"], outcomes["packed"])
    assert_same(outcomes["cold 3"], outcomes["unpacked"])


def test_caches_of_what_the_old_weights_made_are_seen(outcomes: Outcomes):
    cold = outcomes["cold 3"]
    for name in ("before prefix", "before embeddings", "before encoder"):
        assert_same(outcomes["cold 0"], outcomes[name])
    assert difference(cold, outcomes["prefix kept"]).startswith("long text: ")
    assert outcomes["scheduler's part kept"].unanswerable.startswith("Encoder cache miss")
    assert difference(cold, outcomes["embeddings kept"]).startswith("image: ")


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_swapped_is_refused_before_anything_changes(outcomes: Outcomes, name: str):
    """Why it is told, and the engine answers as before."""
    before, outcome = outcomes["cold 0"], outcomes[name]
    assert outcome.error is not None
    kind, reason = outcome.error
    assert kind == "SwapRefused", reason
    assert REFUSALS[name] in reason
    assert outcome.fingerprint == before.fingerprint
    assert outcome.responses == before.responses


def test_after_refusals_a_swap_is_as_good_as_ever(outcomes: Outcomes):
    assert_same(outcomes["cold 1"], outcomes["after refusals"])


def test_after_a_swap_that_fails_half_way_nothing_is_answered(outcomes: Outcomes):
    before, failed = outcomes["cold 2"], outcomes["broken"]
    assert before.fingerprint is not None
    assert failed.error is not None
    assert failed.error[0] != "SwapRefused"
    assert failed.fingerprint is None
    assert failed.unanswerable == "a swap has failed half-way: the engine has to be started anew"


@pytest.mark.parametrize("tied", [False, True])
def test_text_models_are_swapped_too(outcomes: Outcomes, tied: bool):
    """Of their probes the ones with images are refused, before and after."""
    cold, first, there, back = (outcomes[f"text {name} {tied}"] for name in ("two", "one", "there", "back"))
    assert difference(cold, there) == difference(first, back) == ""
    assert difference(cold, first) != ""
    assert cold.fingerprint is not None
    assert [answer.failure for answer in cold.fingerprint.answers] == ["", "", "", *["infer.rejected"] * 3]


def test_the_file_as_it_is_now_is_what_counts(outcomes: Outcomes):
    """Under one path, one checkpoint after another, as training writes its latest."""
    assert difference(outcomes["cold 2"], outcomes["latest"]) != ""
    assert_same(outcomes["cold 1"], outcomes["latest"])
    assert_same(outcomes["cold 2"], outcomes["latest replaced"])


def test_workers_in_processes_of_their_own_are_swapped_too(
    checkpoints: list[Path], shared: list[str], vllm_python: Path, tmp_path: Path, outcomes: Outcomes
):
    """vLLM's multi-process mode, which a user may choose: started and swapped there, it answers as in one process.

    torchvision must load in those processes, too.
    """
    apart = {"multiprocessing": True}
    steps = [start(checkpoints[0], **apart), swap(checkpoints[3], shared[3], **apart), swap(checkpoints[0], **apart)]
    first, there, back = run_steps(vllm_python, tmp_path, steps)
    assert_same(outcomes["cold 0"], first)
    assert_same(outcomes["cold 3"], there)
    assert_same(first, back)
