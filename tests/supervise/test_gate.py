from __future__ import annotations

import pytest

from proctor.rows import ErrorKind, Failure, ImagePart, Message, Request, Response
from proctor.supervise.gate import examined, refusal
from tests.supervise.helpers import ask


@pytest.mark.parametrize("given", [0, 1, 3])
def test_images_must_be_those_the_prompt_names(given: int) -> None:
    request = Request(1, (Message("user", (ImagePart(), ImagePart())),), images=(b"x",) * given)
    failure = refusal(request)
    assert failure == Failure(ErrorKind.INFER_REJECTED, f"the prompt names 2 image(s) but {given} came with it")
    assert refusal(ask(1, images=2)) is None


@pytest.mark.parametrize("text", ["", "  ", "\n\t", "\u3000", None])
def test_a_blank_text_is_no_answer(text: str | None) -> None:
    response = examined(Response(4, text=text, token_ids=(2,), finish_reason="stop"))
    assert response.text is None
    assert response.token_ids == (2,)
    assert response.failure is not None
    assert response.failure.kind is ErrorKind.INFER_EMPTY


def test_a_failure_carries_no_text() -> None:
    failure = Failure(ErrorKind.INFER_OOM, "out of memory")
    assert examined(Response(4, text="half an ans", failure=failure)) == Response(4, failure=failure)


def test_an_answer_passes_as_it_is() -> None:
    response = Response(4, text=" yes\n", finish_reason="length")
    assert examined(response) is response


@pytest.mark.parametrize("tokens", [-1, 2**31, 10**14])
def test_a_number_of_tokens_that_no_prompt_has_is_left_out(tokens: int) -> None:
    assert examined(Response(4, text="yes", prompt_tokens=tokens)) == Response(4, text="yes")
    failure = Failure(ErrorKind.INFER_OOM, "out of memory")
    assert examined(Response(4, failure=failure, prompt_tokens=tokens)) == Response(4, failure=failure)
