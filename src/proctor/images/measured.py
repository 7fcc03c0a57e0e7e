"""What any model's image processor makes of an image, found by running it. For the Qwen-VL family see `expansion`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proctor.images.decoding import decode
from proctor.rows import UserError


@dataclass(frozen=True, slots=True)
class MeasuredExpansion:
    """One image through a processor.

    Attributes:
        size: (width, height) in pixels of the decoded image.
        encoded_bytes: as it lies in the source.
        decoded_bytes: as upright RGB pixels.
        model_bytes: of all that the processor returns for it, in the processor's own type (float32 as a rule).
    """

    size: tuple[int, int]
    encoded_bytes: int
    decoded_bytes: int
    model_bytes: int


def measured_expansion(
    directory: str | Path, images: Sequence[bytes], *, trust_remote_code: bool = False
) -> list[MeasuredExpansion]:
    """Runs the image processor of the checkpoint in `directory` over encoded `images`, one at a time.

    Imports transformers and torch: call it in a process of its own where memory is measured.

    Raises:
        UserError: the checkpoint has no image processor that can be loaded, or it does not take an image.
        DecodeError: an image cannot be decoded.
    """
    from transformers import AutoImageProcessor

    try:
        processor = AutoImageProcessor.from_pretrained(Path(directory), trust_remote_code=trust_remote_code)
    except (OSError, ValueError, ImportError) as error:
        what = f"{directory}: its image processor cannot be loaded: {' '.join(str(error).split())[:200]}"
        raise UserError(what, where="engine.checkpoints") from error
    return [_measured(processor, data) for data in images]


def _measured(processor: Any, data: bytes) -> MeasuredExpansion:
    image = decode(data)
    width, height = image.size
    try:
        returned = processor(images=[image], return_tensors="pt")
    except Exception as error:  # processors of models raise what they like
        what = f"its image processor does not take an image of {width} x {height} pixels: {error}"
        raise UserError(what, where="engine.checkpoints") from error
    return MeasuredExpansion(image.size, len(data), 3 * width * height, _bytes(returned))


def _bytes(value: Any) -> int:
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    if isinstance(value, Mapping):
        return sum(_bytes(part) for part in value.values())
    return sum(_bytes(part) for part in value) if isinstance(value, (list, tuple)) else 0
