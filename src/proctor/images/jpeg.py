"""JPEG at speed: the pixels that Pillow would give, from a faster decoder; and smaller scales on request."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray
from PIL import features
from PIL.JpegImagePlugin import JpegImageFile


@cache
def is_exact() -> bool:
    """Whether simplejpeg is installed and gives Pillow's pixels: both are then libjpeg-turbo, with the same settings.

    Other libjpegs, which Pillow may have been built with, upsample colours in another way.
    """
    return find_spec("simplejpeg") is not None and bool(features.check_feature("libjpeg_turbo"))


def exact_pixels(image: JpegImageFile, data: bytes) -> NDArray[np.uint8] | None:
    """The pixels (height, width, 3) of an opened image that is not loaded yet; None where Pillow is to decode it.

    That is for CMYK, which the two convert differently, and for data that libjpeg so much as warns about: how much of
    it is shown, and what is said about it, stays Pillow's word.
    """
    if image.mode not in ("RGB", "L") or not is_exact():
        return None
    import simplejpeg

    try:
        pixels: NDArray[np.uint8] = simplejpeg.decode_jpeg(data, "RGB", strict=True)
    except ValueError:
        return None
    return pixels if pixels.shape == (image.height, image.width, 3) else None


def scale_down(image: JpegImageFile, width: int, height: int) -> int:
    """Has an opened image decoded at 1/2, 1/4 or 1/8, the smallest with at least `width` x `height` pixels, if any.

    By Pillow alone: simplejpeg knows other scales, so pixels would depend on what is installed.

    Returns:
        The divisor, 1 if no scale is small enough.
    """
    full = image.width
    image.draft(None, (width, height))
    return round(full / image.width)
