"""What an image becomes in a model's processor, exactly and without loading it: resized pixels, patches, tokens, bytes.

The formulas are those of the Qwen-VL family (Qwen2-VL, Qwen2.5-VL, Qwen3-VL): ``smart_resize`` and ``patchify`` of
``Qwen2VLImageProcessor`` and of ``Qwen2VLVideoProcessor`` / ``Qwen3VLVideoProcessor`` in transformers 5.19. Any other
processor is measured instead (`proctor.images.measured`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

FLOAT32_BYTES = 4
BFLOAT16_BYTES = 2

MAX_ASPECT_RATIO = 200
"""Qwen's processors refuse an image whose longer side is more than so many times its shorter one."""

_CHANNELS = 3


@dataclass(frozen=True, slots=True)
class Expansion:
    """What one image, or one video, becomes.

    Attributes:
        resized: (height, width) in pixels after the processor's resize.
        patches: rows of ``pixel_values``.
        tokens: places that it takes in the prompt (without the markers around it).
        pixel_values_bytes: bytes of ``pixel_values``: patches x channels x temporal patch x patch x patch values.
    """

    resized: tuple[int, int]
    patches: int
    tokens: int
    pixel_values_bytes: int


def qwen_vl_resized(
    height: int, width: int, *, patch: int = 16, merge: int = 2, min_pixels: int = 65_536, max_pixels: int = 16_777_216
) -> tuple[int, int]:
    """Height and width in pixels that the processor resizes a still image to: multiples of ``patch * merge``.

    The defaults are Qwen3-VL's; Qwen2-VL and Qwen2.5-VL have ``patch=14``, and their own pixel limits.

    Raises:
        ValueError: a side is no positive number, or the aspect ratio is above `MAX_ASPECT_RATIO`.
    """
    _check_sides(height, width)
    return _fitted(1, 1, height, width, patch * merge, min_pixels, max_pixels)


def qwen_vl_expansion(
    height: int,
    width: int,
    *,
    patch: int = 16,
    merge: int = 2,
    temporal: int = 2,
    min_pixels: int = 65_536,
    max_pixels: int = 16_777_216,
    value_bytes: int = FLOAT32_BYTES,
) -> Expansion:
    """What the processor makes of a still image of `height` x `width` pixels.

    A still image is repeated to fill a temporal patch, so ``pixel_values`` has 3 x `temporal` values for each pixel: 24
    bytes for each resized pixel in float32, 12 in bfloat16.

    Args:
        temporal: frames in a patch.
        value_bytes: `FLOAT32_BYTES` (what the processor returns) or `BFLOAT16_BYTES`.

    Raises:
        ValueError: as `qwen_vl_resized`.
    """
    resized = qwen_vl_resized(height, width, patch=patch, merge=merge, min_pixels=min_pixels, max_pixels=max_pixels)
    return _expansion(resized, 1, patch, merge, temporal, value_bytes)


def qwen_vl_video_expansion(
    frames: int,
    height: int,
    width: int,
    *,
    patch: int = 16,
    merge: int = 2,
    temporal: int = 2,
    min_pixels: int = 131_072,
    max_pixels: int = 786_432,
    budget_per_frame: bool = False,
    value_bytes: int = FLOAT32_BYTES,
) -> Expansion:
    """What the processor makes of a video of `frames` sampled frames, which are taken in groups of `temporal`.

    Args:
        budget_per_frame: the pixel limits are for each frame, as in Qwen2-VL and Qwen2.5-VL; in Qwen3-VL they are for
            all frames together.

    Raises:
        ValueError: as `qwen_vl_resized`; or there are fewer than `temporal` frames and the budget is for all of them.
    """
    _check_sides(height, width)
    factor = patch * merge
    if budget_per_frame:
        resized = _fitted(1, 1, height, width, factor, min_pixels, max_pixels)
    else:
        if frames < temporal:
            raise ValueError(f"{frames} frames are fewer than the {temporal} of a temporal patch")
        if min(height, width) < factor:
            scale = max(factor / height, factor / width)
            height, width = int(height * scale), int(width * scale)
        rounded = round(frames / temporal) * temporal
        resized = _fitted(frames, rounded, height, width, factor, min_pixels, max_pixels)
    return _expansion(resized, math.ceil(frames / temporal), patch, merge, temporal, value_bytes)


def _check_sides(height: int, width: int) -> None:
    if height < 1 or width < 1:
        raise ValueError(f"an image of {width} x {height} pixels")


def _fitted(
    frames: int, rounded_frames: int, height: int, width: int, factor: int, min_pixels: int, max_pixels: int
) -> tuple[int, int]:
    """``smart_resize``. The order of the operations is the original's: another one rounds differently."""
    ratio = max(height, width) / min(height, width)
    if ratio > MAX_ASPECT_RATIO:
        raise ValueError(f"{width} x {height} pixels: an aspect ratio of {ratio:.0f}, Qwen-VL takes at most 200")
    rows, columns = round(height / factor) * factor, round(width / factor) * factor
    pixels = rounded_frames * rows * columns
    if pixels > max_pixels:
        beta = math.sqrt((frames * height * width) / max_pixels)
        rows = max(factor, math.floor(height / beta / factor) * factor)
        columns = max(factor, math.floor(width / beta / factor) * factor)
    elif pixels < min_pixels:
        beta = math.sqrt(min_pixels / (frames * height * width))
        rows, columns = math.ceil(height * beta / factor) * factor, math.ceil(width * beta / factor) * factor
    return rows, columns


def _expansion(
    resized: tuple[int, int], groups: int, patch: int, merge: int, temporal: int, value_bytes: int
) -> Expansion:
    patches = groups * (resized[0] // patch) * (resized[1] // patch)
    values = patches * _CHANNELS * temporal * patch * patch
    return Expansion(resized, patches, patches // (merge * merge), values * value_bytes)
