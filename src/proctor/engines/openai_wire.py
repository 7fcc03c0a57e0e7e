"""A request as the body of a chat completion, and the reply as a response."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import msgspec
from PIL import Image

from proctor.engines.chat import check_image_count, joined_text
from proctor.engines.openai_tokens import TokenLogprob, chosen_ids, top_of
from proctor.engines.prepare import decode_images
from proctor.engines.refusal import rejected
from proctor.engines.sampling import row_seed
from proctor.rows import ImagePart, Message, Request, Response
from proctor.rows.exchange import FinishReason

_SENT_AS_IS = {"JPEG": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp"}
_ORIENTATION = 0x0112


class _Logprobs(msgspec.Struct):
    content: list[TokenLogprob] | None = None


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None
    token_ids: list[int] | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Completion(msgspec.Struct):
    """The parts of a chat completion that matter here."""

    choices: list[_Choice]
    usage: _Usage = msgspec.field(default_factory=_Usage)

    @property
    def tokens(self) -> int:
        """Tokens of the answer, as far as the server counts them."""
        return self.usage.completion_tokens or 0


class MalformedError(ValueError):
    """A reply that is not a chat completion."""


def completion_body(request: Request, model: str, *, token_ids: bool = False) -> dict[str, Any]:
    """The body of ``POST /chat/completions``.

    Args:
        request: the row.
        model: its name on the server.
        token_ids: ask for token ids, by the names that vLLM's server has for it.

    Raises:
        Refused: an image cannot be decoded, the prompt names another number of images than there are, or tokens are
            to be forced, for which the protocol has no way.
    """
    if request.sampling.forced:
        raise rejected("an OpenAI-compatible server cannot be made to choose given tokens")
    check_image_count(request)
    uris = iter([_data_uri(*pair) for pair in zip(request.images, decode_images(request), strict=True)])
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": message.role, "content": _content(message, uris)} for message in request.prompt],
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
    }
    if sampling.temperature > 0:
        body |= {"top_p": sampling.top_p, "seed": row_seed(request)}
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if sampling.logprobs or sampling.top_logprobs:
        body["logprobs"] = True
    if sampling.top_logprobs:
        body["top_logprobs"] = sampling.top_logprobs
    if token_ids:
        body |= {"return_token_ids": True, "return_tokens_as_token_ids": True}
    return body


def parse_completion(body: bytes) -> Completion:
    """The reply of ``POST /chat/completions``.

    Raises:
        MalformedError: it is no JSON, or has no choices.
    """
    try:
        completion = msgspec.json.decode(body, type=Completion)
    except msgspec.MsgspecError as error:
        raise MalformedError(f"not a chat completion: {error}") from error
    if not completion.choices:
        raise MalformedError("a chat completion without choices")
    return completion


def response_of(request: Request, completion: Completion) -> Response:
    """The first choice as a response.

    Token ids are the server's own where it gives them; else, and only where the most likely tokens were asked for,
    they are made of the tokens' bytes (see `proctor.engines.openai_tokens`).

    Raises:
        Refused: the server's content filter cut the answer.
    """
    choice = completion.choices[0]
    if choice.finish_reason == "content_filter":
        raise rejected("the server's content filter ended the answer")
    reasons: dict[str | None, FinishReason] = {"stop": "stop", "length": "length"}
    sampling = request.sampling
    told = choice.logprobs.content if choice.logprobs else None
    return Response(
        id=request.id,
        text=choice.message.content or choice.message.refusal or "",
        token_ids=chosen_ids(choice.token_ids, told if sampling.top_logprobs else None),
        logprobs=tuple(token.logprob for token in told) if told is not None and sampling.logprobs else None,
        top_logprobs=top_of(told, sampling.top_logprobs) if told is not None and sampling.top_logprobs else None,
        finish_reason=reasons.get(choice.finish_reason),
        prompt_tokens=completion.usage.prompt_tokens,
    )


def _content(message: Message, uris: Iterator[str]) -> str | list[dict[str, Any]]:
    if not any(isinstance(part, ImagePart) for part in message.parts):
        return joined_text(message)
    return [
        {"type": "image_url", "image_url": {"url": next(uris)}}
        if isinstance(part, ImagePart)
        else {"type": "text", "text": part.text}
        for part in message.parts
    ]


def _data_uri(data: bytes, pixels: Image.Image) -> str:
    """The image as it came where every server sees the same pixels in it, else as PNG of the decoded pixels."""
    kind = _plain_kind(data)
    if kind is None:
        buffer = BytesIO()
        pixels.save(buffer, "PNG")
        kind, data = "image/png", buffer.getvalue()
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"


def _plain_kind(data: bytes) -> str | None:
    # Servers differ in what they make of transparency, rotation marks and animations.
    try:
        with Image.open(BytesIO(data), formats=list(_SENT_AS_IS)) as image:
            plain = image.mode in ("RGB", "L") and not image.has_transparency_data
            plain = plain and getattr(image, "n_frames", 1) == 1 and image.getexif().get(_ORIENTATION, 1) == 1
            return _SENT_AS_IS[image.format or ""] if plain else None
    except Exception:  # a format that is not sent as it is
        return None
