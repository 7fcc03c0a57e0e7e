"""The fixed questions of a fingerprint: the same bytes in every process, whatever the model."""

from __future__ import annotations

import io
from functools import lru_cache

from proctor.rows import ImagePart, Message, Request, Sampling, TextPart
from proctor.rows.exchange import Part

PROBES_VERSION = 1
"""Another set of probes has another version: fingerprints of different versions are never compared."""
TOKENS = 8
_SHORT = "Describe the road and plan the path."
_SIDES = ((128, 96), (96, 128))
"""Pixels. Multiples of 32, so that the common image processors do not resize them."""


@lru_cache(maxsize=1)
def probes() -> tuple[tuple[str, Request], ...]:
    """Name and request of each, in the order in which they are asked, one at a time.

    The long text has more than 256 tokens with any tokenizer, which is two blocks of vLLM's key-value cache on a CPU,
    and at most 650: a stale block would show when it is asked again. Ids are negative: probes are no rows.
    """
    one, other = _picture(0), _picture(1)
    asked = (
        ("short text", _SHORT, ()),
        ("long text", _long_text(), ()),
        ("long text again", _long_text(), ()),
        ("image", _SHORT, (one,)),
        ("two images", "What is the difference?", (one, other)),
        ("image again", _SHORT, (one,)),
    )
    return tuple((name, _request(-1 - number, text, images)) for number, (name, text, images) in enumerate(asked))


def _request(id_: int, text: str, images: tuple[bytes, ...]) -> Request:
    parts: tuple[Part, ...] = (*(ImagePart() for _ in images), TextPart(text))
    return Request(id_, (Message("user", parts),), images, Sampling(max_tokens=TOKENS, logprobs=True))


def _long_text() -> str:
    """300 single digits, which no tokenizer joins across the spaces: 300 tokens at least, 599 bytes."""
    digits, state = [], 1
    for _ in range(300):
        state = state * 1103515245 + 12345 & 0x7FFFFFFF
        digits.append(str(state >> 16 & 7))
    return " ".join(digits)


def _picture(number: int) -> bytes:
    """A PNG (RGB): gradients, and a block with edges. Only arithmetic on whole numbers, so always the same pixels."""
    from PIL import Image

    width, height = _SIDES[number]
    pixels = bytearray()
    for y in range(height):
        for x in range(width):
            inside = 20 <= x - 20 * number < 70 and 15 <= y < 60
            pixels += bytes((200, 40 + 90 * number, 30)) if inside else bytes((x, y, (x * y) >> 6 & 255))
    buffer = io.BytesIO()
    Image.frombytes("RGB", (width, height), bytes(pixels)).save(buffer, "PNG")
    return buffer.getvalue()
