"""What an engine takes and gives: requests and responses, as small typed structs that travel as MessagePack."""

from __future__ import annotations

from typing import Literal

import msgspec

from proctor.rows.errors import Failure

FinishReason = Literal["stop", "length"]
TopLogprobs = tuple[tuple[tuple[int, float], ...], ...]
"""By position, then by rank: token id and natural log-probability."""


class TextPart(msgspec.Struct, frozen=True, tag="text"):
    """A piece of text inside a message."""

    text: str


class ImagePart(msgspec.Struct, frozen=True, tag="image"):
    """The place of the next image of the request inside a message."""


Part = TextPart | ImagePart


class Message(msgspec.Struct, frozen=True):
    """One chat message; images are placeholders that refer to the request's images in order."""

    role: Literal["system", "user", "assistant"]
    parts: tuple[Part, ...]


Prompt = tuple[Message, ...]


class Sampling(msgspec.Struct, frozen=True):
    """How tokens are chosen.

    Attributes:
        max_tokens: most tokens an answer may have.
        temperature: 0 is greedy.
        top_p: nucleus share, 1 keeps every token.
        seed: seed for sampling; combined with the row id so that a row's draw does not depend on its neighbours.
        stop: texts that end an answer (not part of it).
        logprobs: whether the log-probabilities (nats) of the chosen tokens are wanted.
        top_logprobs: how many of the most likely tokens are wanted at each position, with log-probabilities.
        forced: ids of the tokens that an engine has to choose, one after another, whatever it would choose itself: the
            answer has these tokens and no others, and its log-probabilities are the model's own. No stop text and no
            other limit applies. Engines that cannot do it refuse the row.
    """

    max_tokens: int = 64
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    logprobs: bool = False
    top_logprobs: int = 0
    forced: tuple[int, ...] = ()

    @property
    def limit(self) -> int:
        """Most tokens that the answer may have."""
        return len(self.forced) or self.max_tokens


class Request(msgspec.Struct, frozen=True):
    """One row as the engine sees it: prompt, encoded images (JPEG, PNG ...) in prompt order, sampling."""

    id: int
    prompt: Prompt
    images: tuple[bytes, ...] = ()
    sampling: Sampling = Sampling()

    @property
    def image_slots(self) -> int:
        """How many images the prompt names."""
        return sum(isinstance(part, ImagePart) for message in self.prompt for part in message.parts)


class Response(msgspec.Struct, frozen=True):
    """What came of one request: a text or a failure, never both.

    Attributes:
        text: the answer, without special tokens; None when `failure` is set.
        token_ids: chosen tokens, end-of-sequence included where the engine reports it.
        logprobs: natural log-probabilities of `token_ids`, if asked for.
        top_logprobs: for each position of the answer the most likely tokens, most likely first, each as its id and its
            natural log-probability; None if not asked for or if the engine does not say.
        finish_reason: ``stop`` or ``length``.
        prompt_tokens: length of the prompt in tokens, image tokens included.
        latency_s: seconds from hand-over to answer, set by the supervisor.
        attempts: how often the request was handed to an engine, set by the supervisor.
    """

    id: int
    text: str | None = None
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] | None = None
    top_logprobs: TopLogprobs | None = None
    finish_reason: FinishReason | None = None
    prompt_tokens: int | None = None
    failure: Failure | None = None
    latency_s: float | None = None
    attempts: int = 1

    @classmethod
    def failed(cls, request_id: int, failure: Failure, attempts: int = 1) -> Response:
        """A response that carries a failure instead of an answer."""
        return cls(id=request_id, failure=failure, attempts=attempts)
