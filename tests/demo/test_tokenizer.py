from __future__ import annotations

from itertools import product

import pytest

pytest.importorskip("transformers")

from proctor.demo.batches import prompt_text, shared_tokenizer
from proctor.demo.scenes import CURVATURES, OBSTACLES, PROMPT, SURFACES, SYSTEM_TEXT, Scene, answer
from proctor.demo.tokenizer import SPECIAL_TOKENS, VOCABULARY

ANSWERS = [answer(Scene(0, s, k, o, 1)) for s, k, o in product(SURFACES, CURVATURES, OBSTACLES)]


def test_every_answer_survives_the_round_trip_in_few_tokens() -> None:
    tokenizer = shared_tokenizer()
    encoded = [tokenizer(text)["input_ids"] for text in ANSWERS]
    assert [tokenizer.decode(ids) for ids in encoded] == ANSWERS
    assert max(map(len, encoded)) <= 17


@pytest.mark.parametrize("text", ["", " two  spaces\n", "Straßenglätte 雪 🚗", "(+12.5, -3)"])
def test_any_other_text_survives_too(text: str) -> None:
    tokenizer = shared_tokenizer()
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_special_tokens_have_the_ids_the_configuration_names() -> None:
    tokenizer = shared_tokenizer()
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == list(range(8))
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (0, 2)
    assert len(tokenizer) <= VOCABULARY


def test_template_with_system_text_and_two_images() -> None:
    image = "<|vision_start|><|image_pad|><|vision_end|>"
    assert prompt_text(2, system=True) == (
        f"<|im_start|>system\n{SYSTEM_TEXT}<|im_end|>\n<|im_start|>user\n{image}{image}{PROMPT}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_template_takes_every_spelling_of_an_image_part() -> None:
    parts = [{"type": "image"}, {"type": "image_url", "image_url": {"url": "data:,"}}, {"image": "x.png", "type": ""}]
    messages = [{"role": "user", "content": [*parts, {"type": "text", "text": "What?"}]}]
    text = shared_tokenizer().apply_chat_template(messages, tokenize=False, add_generation_prompt=False)
    assert text == ("<|im_start|>user\n" + "<|vision_start|><|image_pad|><|vision_end|>" * 3 + "What?<|im_end|>\n")
