"""Prefill and decode apart give, bit for bit, what one process gives; what cannot be split is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
pytest.importorskip("transformers")

from transformers import (  # noqa: E402
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    LogitsProcessor,
    Qwen3Config,
    Qwen3ForCausalLM,
    StaticCache,
    StoppingCriteria,
    T5Config,
    T5ForConditionalGeneration,
)

from proctor.rows import UserError  # noqa: E402
from proctor.transfer.disaggregate import decode, layout_of, prefill, weights_id  # noqa: E402
from proctor.transfer.errors import Reason, TransferError  # noqa: E402
from proctor.transfer.kv.block import Block  # noqa: E402
from proctor.transfer.kv.inbox import Received  # noqa: E402
from proctor.transfer.kv.model_state import check_cache, remember  # noqa: E402
from proctor.transfer.kv.receiver import Receiver  # noqa: E402
from proctor.transfer.kv.sender import Sender  # noqa: E402

pytestmark = pytest.mark.model

SMALL: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "initializer_range": 0.2,
}  # fmt: skip
FAMILIES: dict[str, Callable[..., Any]] = {
    "llama": lambda **more: LlamaForCausalLM(LlamaConfig(**SMALL, **more)),
    "qwen3": lambda **more: Qwen3ForCausalLM(Qwen3Config(**SMALL, head_dim=16, **more)),
}
PROMPTS = [[5, 9, 33, 70], [8] * 31, [61, 3]]


def model(family: str = "llama", dtype: Any = None, **more: Any) -> Any:
    torch.manual_seed(4)
    made = FAMILIES[family](**more).to(dtype or torch.float32).eval()
    made.generation_config = GenerationConfig(do_sample=False, eos_token_id=[2, 11], pad_token_id=0)
    return made


def inputs(*prompts: list[int]) -> dict[str, Any]:
    """Padded on the left."""
    length = max(map(len, prompts))
    return {
        "input_ids": torch.tensor([[0] * (length - len(prompt)) + prompt for prompt in prompts]),
        "attention_mask": torch.tensor([[0] * (length - len(prompt)) + [1] * len(prompt) for prompt in prompts]),
    }


def whole(model: Any, given: dict[str, Any], limit: int = 24, **more: Any) -> Any:
    with torch.inference_mode():
        return model.generate(**given, max_new_tokens=limit, return_dict_in_generate=True, output_logits=True, **more)


def same(apart: Any, whole: Any) -> bool:
    return bool(
        torch.equal(apart.sequences, whole.sequences)
        and len(apart.logits) == len(whole.logits)
        and all(torch.equal(one, other) for one, other in zip(apart.logits, whole.logits, strict=True))
    )


@pytest.fixture
def ship(tmp_path: Path) -> Callable[[Any, Block], Received]:
    """Sends a block through both ends."""

    def shipped(model: Any, block: Block) -> Received:
        layout = layout_of(model, "tiny")
        with Sender(f"ipc://{tmp_path}/kv", layout) as sender, Receiver(sender.address, layout) as receiver:
            sender.put(block)
            return receiver.receive(block.request)

    return shipped


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("prompts", [PROMPTS[:1], PROMPTS[1:2], PROMPTS], ids=["short", "long", "batch"])
def test_tokens_and_logits_are_those_of_one_process(
    family: str, attention: str, dtype: str, prompts: list[list[int]], ship: Callable[[Any, Block], Received]
):
    reading = model(family, getattr(torch, dtype), attn_implementation=attention)
    writing = model(family, getattr(torch, dtype), attn_implementation=attention)
    expected = whole(model(family, getattr(torch, dtype), attn_implementation=attention), inputs(*prompts))
    received = ship(reading, prefill(reading, inputs(*prompts), "r"))
    assert same(decode(writing, received, 24, logits=True), expected)


def test_blocks_that_are_continued_in_another_order(ship: Callable[[Any, Block], Received]):
    reading, writing = model(), model()
    expected = [whole(reading, inputs(prompt)) for prompt in PROMPTS]
    received = [ship(reading, prefill(reading, inputs(prompt), str(number))) for number, prompt in enumerate(PROMPTS)]
    for number in (2, 0, 1):
        assert same(decode(writing, received[number], 24, logits=True), expected[number])


def test_a_change_in_the_cache_is_a_change_in_the_logits():
    """So what is compared above depends on what was shipped."""
    made, given = model(), inputs(PROMPTS[1])
    block = prefill(made, given, "r")
    tensors = {name: tensor.clone() for name, tensor in block.tensors.items()}
    tensors["layer.1.value"][:, :, 3] += 1e-3
    expected = whole(made, given)
    changed = decode(made, Received("r", block.tokens, block.position, tensors), 24, logits=True)
    assert not same(changed, expected)


class Without(LogitsProcessor):
    """Rules a token out."""

    def __init__(self, token: int) -> None:
        self._token = token

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        scores = scores.clone()
        scores[:, self._token] = -torch.inf
        return scores


class EndAfter(StoppingCriteria):
    def __init__(self, token: int) -> None:
        self._token = token

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        return input_ids[:, -1] == self._token


def test_processors_and_criteria_count_from_the_first_token(ship: Callable[[Any, Block], Received]):
    made, given = model(), inputs(*PROMPTS)
    first = int(whole(made, given, 1).sequences[0, -1])
    expected = whole(made, given, logits_processor=[Without(first)])
    assert int(expected.sequences[0, len(PROMPTS[1])]) != first
    received = ship(made, prefill(made, given, "r"))
    assert same(decode(made, received, 24, processors=[Without(first)], logits=True), expected)


@pytest.mark.parametrize("by", ["criterion", "end token"])
def test_a_row_that_ends_with_its_first_token_is_filled_up(by: str, ship: Callable[[Any, Block], Received]):
    made, given = model(), inputs(*PROMPTS)
    firsts = whole(made, given, 1).sequences[:, -1].tolist()
    ending = next(token for token in firsts if firsts.count(token) == 1)
    criteria = [EndAfter(ending)] if by == "criterion" else []
    if by == "end token":
        made.generation_config.eos_token_id = [ending]
    expected = whole(made, given, stopping_criteria=criteria)
    received = ship(made, prefill(made, given, "r"))
    apart = decode(made, received, 24, criteria=criteria, logits=True)
    assert same(apart, expected)
    assert (apart.sequences[firsts.index(ending), len(PROMPTS[1]) + 1 :] == 0).all()


def test_one_token_is_the_prefill_s_own():
    made, given = model(), inputs(*PROMPTS)
    block = prefill(made, given, "r")
    assert same(decode(made, Received(*_parts(block)), 1, logits=True), whole(made, given, 1))
    with pytest.raises(UserError, match="no answer"):
        decode(made, Received(*_parts(block)), 0)


def _parts(block: Block) -> tuple[Any, ...]:
    return block.request, block.tokens, block.position, block.tensors


# What cannot be split.


def test_a_sliding_cache_is_refused():
    made = Gemma3ForCausalLM(Gemma3TextConfig(**SMALL, head_dim=8, sliding_window=8)).eval()
    with pytest.raises(UserError, match="DynamicSlidingWindowLayer"):
        layout_of(made, "gemma")
    with pytest.raises(UserError, match="run it in one process"):
        prefill(made, inputs(PROMPTS[0]), "r")


def test_another_kind_of_cache_is_refused():
    with pytest.raises(UserError, match="StaticCache"):
        check_cache(StaticCache(LlamaConfig(**SMALL), max_cache_len=16))


def test_an_encoder_decoder_is_refused():
    made = T5ForConditionalGeneration(
        T5Config(vocab_size=97, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0)
    )
    with pytest.raises(UserError, match="encoder-decoder"):
        layout_of(made, "t5")


def test_a_rotary_embedding_that_changes_is_refused():
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    with pytest.raises(UserError, match="dynamic"):
        layout_of(model(rope_parameters=rope), "llama")


@pytest.mark.parametrize(
    "change", [{"repetition_penalty": 1.3}, {"do_sample": True}, {"temperature": 0.7, "do_sample": True}]
)
def test_a_generation_configuration_that_asks_for_more_is_refused(change: dict[str, Any]):
    made = model()
    made.generation_config = GenerationConfig(eos_token_id=2, **change)
    with pytest.raises(UserError, match="|".join(change)):
        prefill(made, inputs(PROMPTS[0]), "r")


def test_an_input_that_nothing_is_known_of_is_refused():
    with pytest.raises(UserError, match="secret"):
        prefill(model(), {**inputs(PROMPTS[0]), "secret": torch.zeros(1)}, "r")
    with pytest.raises(UserError, match="no token ids"):
        prefill(model(), {"attention_mask": torch.ones(1, 3, dtype=torch.int64)}, "r")


@pytest.mark.parametrize("what", ["buffer", "number"])
def test_a_model_that_keeps_more_than_its_cache_is_refused(what: str):
    """As in ATOM #2154, but noticed: a state beside the cache that a prompt changes."""
    made = model()
    layer = made.model.layers[1]
    layer.register_buffer("ssm_state", torch.zeros(4))
    layer.seen = 0

    def change(module: Any, args: Any, output: Any) -> None:
        if what == "buffer":
            module.ssm_state += 1.0
        else:
            module.seen += 1

    layer.register_forward_hook(change)
    with pytest.raises(UserError, match=r"model\.layers\.1\.s"):
        prefill(made, inputs(PROMPTS[0]), "r")


def test_tensors_that_modules_keep_travel(ship: Callable[[Any, Block], Received]):
    """A model whose answer depends on what its prompt left in an attribute, as Qwen-VL's does."""

    def with_state() -> Any:
        made = model()
        made.model.offset = None

        def keep(module: Any, args: Any, output: Any) -> Any:
            if output.shape[1] > 1:
                made.model.offset = output[:, -1:].clone()
            return output + made.model.offset

        made.model.embed_tokens.register_forward_hook(keep)
        return made

    reading, writing = with_state(), with_state()
    expected = whole(with_state(), inputs(*PROMPTS))
    received = ship(reading, prefill(reading, inputs(*PROMPTS), "r"))
    assert "state.model.offset" in received.tensors
    assert same(decode(writing, received, 24, logits=True), expected)


def test_a_state_that_has_no_place_is_told():
    with pytest.raises(TransferError, match=r"no model\.visual"):
        remember(model(), {"state.model.visual.offset": torch.zeros(1)})


@pytest.mark.parametrize("missing", ["logits", "attention_mask", "input_ids"])
def test_a_block_that_is_not_whole_is_refused(missing: str):
    block = prefill(model(), inputs(PROMPTS[0]), "r")
    tensors = {name: tensor for name, tensor in block.tensors.items() if name != missing}
    with pytest.raises(TransferError, match=missing) as refused:
        decode(model(), Received("r", block.tokens, block.position, tensors), 4)
    assert refused.value.reason is Reason.MISMATCH


@pytest.mark.parametrize("change", [{"tokens": (1, 2, 3, 4)}, {"position": 3}])
def test_a_block_of_another_prompt_is_refused(change: dict[str, Any]):
    block = prefill(model(), inputs(PROMPTS[0]), "r")
    received = Received("r", block.tokens, block.position, block.tensors)._replace(**change)
    with pytest.raises(TransferError, match="not those of its prompt"):
        decode(model(), received, 4)


def test_the_id_of_the_weights_is_that_of_their_bytes():
    first, second = model(), model()
    assert weights_id(first) == weights_id(second)
    with torch.no_grad():
        second.model.layers[0].mlp.up_proj.weight[0, 0] += 1e-3
    assert weights_id(first) != weights_id(second)
    assert layout_of(first, weights_id(first)).difference(layout_of(second, weights_id(second))).startswith("model is")
