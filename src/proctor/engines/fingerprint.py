"""What an engine answers to a fixed set of probes, bit by bit: the proof that it runs the checkpoint it should run.

After a swap the fingerprint must equal that of an engine that was started with the checkpoint, on the same hardware
with the same versions (`key`). Checksums of weights and version labels are no proof: both were right in cases where a
packed copy or a cache of the old weights still made the answers.

What it sees: weights that are stale, missing, in each other's place or half-loaded, as far as they take part in an
answer; packed copies of old weights (a tied head); caches of prompts, of processed images and of image embeddings that
outlived their weights, where the old checkpoint had been asked the same probes (so ask them of every engine that
starts, too).

What it cannot see: weights that no probe comes by (experts that no probe is routed to, embeddings of tokens that do
not occur, LoRA adapters, video and audio towers); stale caches of rows that are no probes, where only some entries of a
cache survive; anything that shows only in batches, beyond the fingerprint's few tokens, or in sampled answers; wrong
weights that both engines have, because they read the same wrong file; and, where an engine tells no log-probabilities,
differences that do not change a token or, with texts only, a text.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256

import msgspec

import proctor
from proctor.engines.base import Engine, EngineConfig, IterFeed, unheard
from proctor.engines.probes import PROBES_VERSION, probes
from proctor.rows import Request, Response

Ask = Callable[[Request], Response]
"""Has one request answered, alone."""


class ProbeAnswer(msgspec.Struct, frozen=True):
    """What came of one probe.

    Attributes:
        probe: its name.
        text: the answer; None if the probe failed.
        token_ids: as the engine told them.
        logprobs: natural log-probabilities of `token_ids`, the bits of each as float32 in a number; None if the engine
            tells none. An engine in float64 is rounded to float32 here.
        prompt_tokens: length of the prompt, if the engine tells it: tokenizer, template and image processor show in it.
        failure: kind of the failure: a probe that an engine refuses, because the model takes no images or so short a
            prompt only, has to be refused after the swap, too. Where the model has answered nevertheless, with blanks
            only, tokens and log-probabilities are there: checkpoints differ in those.
    """

    probe: str
    text: str | None = None
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[int, ...] | None = None
    prompt_tokens: int | None = None
    failure: str = ""


class Fingerprint(msgspec.Struct, frozen=True):
    """Answers to all probes, in their order."""

    answers: tuple[ProbeAnswer, ...]

    def to_json(self) -> bytes:
        """As it is stored."""
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, data: bytes) -> Fingerprint:
        """Reads one that was stored.

        Raises:
            ValueError: it is none.
        """
        return msgspec.json.decode(data, type=cls)


def asked_of(engine: Engine) -> Ask:
    """Asks an engine that runs in this process, without a supervisor."""

    def ask(request: Request) -> Response:
        (response,) = engine.stream(IterFeed(iter([request])), unheard)
        return response

    return ask


def fingerprint(ask: Ask) -> Fingerprint:
    """Has every probe answered, one after another, none together with another.

    Args:
        ask: `asked_of` an engine, or a supervisor's way to do the same.
    """
    return Fingerprint(tuple(_answer(name, ask(request)) for name, request in probes()))


def fingerprint_of(responses: Iterable[Response]) -> Fingerprint:
    """The same of responses that were got elsewhere.

    Args:
        responses: one for each of `probes`, which were asked one at a time; in any order.

    Raises:
        ValueError: there is not one for each.
    """
    by_id = {response.id: response for response in responses}
    asked = probes()
    if set(by_id) != {request.id for _, request in asked}:
        raise ValueError("a fingerprint needs one response for each probe")
    return Fingerprint(tuple(_answer(name, by_id[request.id]) for name, request in asked))


def differences(one: Fingerprint, other: Fingerprint) -> str:
    """What differs, in one line; empty if nothing does.

    Args:
        one: what is expected, such as that of an engine that was started with the checkpoint.
        other: what came.
    """
    if [answer.probe for answer in one.answers] != [answer.probe for answer in other.answers]:
        return "the probes are not the same"
    found = [
        f"{expected.probe}: {what}"
        for expected, answer in zip(one.answers, other.answers, strict=True)
        if (what := _difference(expected, answer))
    ]
    return f"{found[0]} ({len(found)} of {len(one.answers)} probes differ)" if found else ""


def key(
    config: EngineConfig,
    content_id: str,
    versions: Mapping[str, str],
    hardware: str,
    env: Mapping[str, str] | None = None,
) -> str:
    """Name of a fingerprint: where all of this is the same, the answers have to be the same to the last bit.

    Args:
        config: the engine's configuration; the path of its model and the planted faults play no part.
        content_id: of the checkpoint, from what its files hold.
        versions: of all that computes, by package.
        hardware: what it computes on, e.g. `proctor.engines.surroundings.hardware`.
        env: environment variables that may change what is computed.

    Returns:
        64 hexadecimal digits (SHA-256).
    """
    same = msgspec.structs.replace(config, model="", faults=(), fault_state="")
    parts = (PROBES_VERSION, proctor.__version__, same, content_id, dict(versions), hardware, dict(env or {}))
    return sha256(msgspec.msgpack.encode(parts, order="deterministic")).hexdigest()


def _answer(name: str, response: Response) -> ProbeAnswer:
    told = response.logprobs
    return ProbeAnswer(
        probe=name,
        text=response.text,
        token_ids=response.token_ids,
        logprobs=None if told is None else tuple(map(_bits, told)),
        prompt_tokens=response.prompt_tokens,
        failure="" if response.failure is None else response.failure.kind.value,
    )


def _bits(value: float) -> int:
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return int(bits)


def _number(bits: int) -> float:
    (value,) = struct.unpack("<f", struct.pack("<I", bits))
    return float(value)


def _difference(expected: ProbeAnswer, answer: ProbeAnswer) -> str:
    if expected.failure != answer.failure:
        return f"{answer.failure or 'answered'}, not {expected.failure or 'answered'}"
    if expected.prompt_tokens != answer.prompt_tokens:
        return f"the prompt has {answer.prompt_tokens} tokens, not {expected.prompt_tokens}"
    for place, (one, other) in enumerate(zip(expected.token_ids, answer.token_ids, strict=False)):
        if one != other:
            return f"token {place} is {other}, not {one}"
    if len(expected.token_ids) != len(answer.token_ids):
        return f"{len(answer.token_ids)} tokens, not {len(expected.token_ids)}"
    if expected.text != answer.text:
        return f"the text is {_short(answer.text)}, not {_short(expected.text)}"
    return _logprob_difference(expected.logprobs, answer.logprobs)


def _logprob_difference(expected: tuple[int, ...] | None, found: tuple[int, ...] | None) -> str:
    if expected is None or found is None:
        return "" if expected == found else "log-probabilities are told on one side only"
    if len(expected) != len(found):
        return f"{len(found)} log-probabilities, not {len(expected)}"
    for place, (one, other) in enumerate(zip(expected, found, strict=True)):
        if one != other:
            return f"log-probability {place} is {_number(other):.9g}, not {_number(one):.9g}"
    return ""


def _short(text: str | None) -> str:
    shown = repr(text)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
