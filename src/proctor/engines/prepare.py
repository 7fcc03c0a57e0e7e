"""From a request to prompt text and pixels, with every check that keeps one bad row from its neighbours."""

from __future__ import annotations

from dataclasses import dataclass

from PIL import Image

from proctor.engines.chat import Chat
from proctor.engines.refusal import Refused, rejected
from proctor.images import DecodeError, decode
from proctor.rows import ErrorKind, Request

MIN_SIDE = 4
"""Shortest side of an image, in pixels: image processors take one of 1 or 3 pixels for the colour axis."""
MAX_ASPECT = 200
"""Largest ratio of the sides: beyond it Qwen's processors fail, and with them the whole batch."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request with its rendered prompt (one placeholder an image) and its decoded images (RGB)."""

    request: Request
    text: str
    images: list[Image.Image]


def prepare(request: Request, chat: Chat) -> Prepared:
    """Renders the prompt and decodes the images.

    Raises:
        Refused: ``infer.rejected`` (see `Chat.render`; a degenerate image) or ``prepare.decode``.
    """
    text = chat.render(request)
    return Prepared(request, text, decode_images(request))


def decode_images(request: Request) -> list[Image.Image]:
    """The request's images as RGB pixels.

    Raises:
        Refused: ``prepare.decode``, or ``infer.rejected`` for an image too thin for any model.
    """
    images = []
    for number, data in enumerate(request.images, start=1):
        try:
            image = decode(data)
        except DecodeError as error:
            raise Refused(ErrorKind.PREPARE_DECODE, f"image {number} of {len(request.images)}: {error}") from error
        _check_sides(image, number)
        images.append(image)
    return images


def _check_sides(image: Image.Image, number: int) -> None:
    short, long = sorted(image.size)
    if short < MIN_SIDE or long > MAX_ASPECT * short:
        raise rejected(
            f"image {number} has {image.width} x {image.height} pixels; "
            f"sides of at least {MIN_SIDE} and a ratio of at most {MAX_ASPECT} are needed"
        )
