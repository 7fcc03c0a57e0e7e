"""What is done to the images of a row before it travels to an engine, and one line on what was done."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from PIL import Image

from proctor.images.budget import PixelBudget, QwenVLBudget
from proctor.images.decoding import MAX_PIXELS, check, look


@dataclass(frozen=True, slots=True)
class ImageRules:
    """What is done to each image.

    Attributes:
        max_pixels: images with more pixels are refused.
        budget: images above it are resized; None leaves all as they are.
        scale_on_decode: JPEGs that are resized are decoded at the nearest scale above, which changes pixels.
    """

    max_pixels: int = MAX_PIXELS
    budget: PixelBudget | QwenVLBudget | None = None
    scale_on_decode: bool = False


@dataclass(frozen=True, slots=True)
class Treated:
    """An image as it travels: encoded bytes, and what was done, or will be when it is decoded, to its pixels."""

    data: bytes
    changes: tuple[str, ...]


def treat(data: bytes, rules: ImageRules) -> Treated:
    """Decodes an image wholly, so that damage shows, and resizes it if the rules ask for that.

    What is not resized keeps its bytes. What is resized travels as binary PPM: upright RGB pixels behind a header of 15
    bytes, which every engine decodes to the same pixels (the ``openai`` engine sends them on as PNG). On a resized
    photo PNG takes 35 ms to write and 10 ms to read, PPM 0.2 ms each; PNG is smaller by a sixth. JPEG would change the
    pixels once more.

    A model's own budget is kept by its processor in any case, so resizing for it ahead is done only where the image
    travels in fewer bytes for it. A budget in pixels is a promise, and kept always.

    Raises:
        DecodeError: the image cannot be decoded, or has more than `ImageRules.max_pixels` pixels.
    """
    budget = rules.budget
    if budget is None:
        return Treated(data, check(data, max_pixels=rules.max_pixels).changes)

    def wanted(width: int, height: int) -> tuple[int, int] | None:
        target = budget.target(width, height)
        costs_bytes = target is not None and 3 * target[0] * target[1] >= len(data)
        return None if costs_bytes and isinstance(budget, QwenVLBudget) else target

    picture = look(data, max_pixels=rules.max_pixels, wanted=wanted if rules.scale_on_decode else None)
    target = wanted(*picture.size)
    if target is None:
        return Treated(data, picture.changes)
    (width, height), (new_width, new_height) = picture.size, target
    resized = picture.image.resize(target, budget.resample)
    change = f"resized from {width} x {height} to {new_width} x {new_height}"
    return Treated(ppm(resized), (*picture.changes, change))


def ppm(image: Image.Image) -> bytes:
    """An RGB image as binary PPM (P6, 8 bits)."""
    return b"P6\n%d %d\n255\n" % image.size + image.tobytes()


def one_line(changes: Sequence[Iterable[str]]) -> str | None:
    """The changes of a row's images: ``image 2: EXIF orientation 6 applied``; None if there were none.

    Images with the same changes stand together (``images 1-3, 7``).
    """
    numbers: dict[str, list[int]] = {}
    for number, found in enumerate(changes, start=1):
        told = ", ".join(found)
        if told:
            numbers.setdefault(told, []).append(number)
    return "; ".join(f"{_images(found)}: {told}" for told, found in numbers.items()) or None


def _images(numbers: Sequence[int]) -> str:
    starts = [numbers[0], *(after for before, after in pairwise(numbers) if after != before + 1)]
    ends = [*(before for before, after in pairwise(numbers) if after != before + 1), numbers[-1]]
    spans = [f"{start}-{end}" if end > start else str(start) for start, end in zip(starts, ends, strict=True)]
    return ("images " if len(numbers) > 1 else "image ") + ", ".join(spans)
