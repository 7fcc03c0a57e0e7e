from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proctor.engines.chat import Chat
from proctor.engines.refusal import Refused
from proctor.rows import ErrorKind, Message, Request, TextPart
from tests.engines.tiny import ask, picture

pytestmark = pytest.mark.model

PICTURE = picture()


@pytest.fixture(scope="module")
def processor(random_model: Path) -> Any:
    from proctor.engines.hf_processor import load_processor

    return load_processor(random_model, images=True)


@pytest.fixture(scope="module")
def chat(processor: Any) -> Chat:
    return Chat(processor, takes_images=True)


def refusal(chat: Chat, request: Request) -> str:
    with pytest.raises(Refused) as caught:
        chat.render(request)
    assert caught.value.failure.kind is ErrorKind.INFER_REJECTED
    return caught.value.failure.message


def test_the_template_writes_a_placeholder_for_each_image(chat: Chat):
    image = "<|vision_start|><|image_pad|><|vision_end|>"
    assert chat.render(ask(1, [PICTURE, PICTURE], text="Where to?")) == (
        f"<|im_start|>user\n{image}{image}Where to?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_system_message_comes_first(chat: Chat):
    prompt = (Message("system", (TextPart("Be brief."),)), Message("user", (TextPart("Where "), TextPart("to?"))))
    assert chat.render(Request(1, prompt)) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhere to?<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(("slots", "given"), [(1, 0), (0, 1), (2, 1), (1, 2)])
def test_images_named_and_given_must_be_as_many(chat: Chat, slots: int, given: int):
    request = ask(1, [PICTURE] * given, slots=slots)
    assert refusal(chat, request) == f"the prompt names {slots} images, {given} are given"


def test_a_placeholder_in_the_text_is_refused(chat: Chat):
    assert "'<|image_pad|>'" in refusal(chat, ask(1, [PICTURE], text="What is <|image_pad|>?"))


def test_a_template_that_forgets_images_is_refused(processor: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(processor, "chat_template", "{{ messages[0].role }}")
    chat = Chat(processor, takes_images=True)
    assert refusal(chat, ask(1, [PICTURE])) == "the chat template writes 0 image placeholders for 1 images"


def test_a_template_that_does_not_take_the_prompt_costs_the_row(processor: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(processor, "chat_template", "{{ raise_exception('roles must alternate') }}")
    chat = Chat(processor, takes_images=True)
    assert "roles must alternate" in refusal(chat, ask(1))


def test_a_text_model_gets_strings_and_takes_no_images(processor: Any):
    chat = Chat(processor.tokenizer, takes_images=False)
    assert chat.render(ask(1, text="Hello")) == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    assert refusal(chat, ask(1, [PICTURE])) == "1 images for a model that takes none"


def test_special_tokens_are_added_once(random_model: Path):
    from proctor.engines.hf_processor import load_processor

    processor = load_processor(random_model, images=True)
    chat = Chat(processor, takes_images=True)
    assert chat.needs_special_tokens("<s>Hello")
    processor.tokenizer.bos_token = "<s>"
    assert not chat.needs_special_tokens("<s>Hello")
    assert chat.needs_special_tokens("Hello")
    assert not Chat(processor.tokenizer, takes_images=False).needs_special_tokens("Hello")
