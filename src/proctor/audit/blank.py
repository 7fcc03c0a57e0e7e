"""Blank images in the place of a row's own: a model that looks must then answer otherwise."""

from __future__ import annotations

import io

IMAGES = "images"
"""The knob that puts blank images in the place of a row's own; answers must change."""
BLANK = "blank"
_GREY = (128, 128, 128)


def blank(image: bytes) -> bytes:
    """A grey PNG of the same size, so that as many tokens stand for it; what is no image stays as it is."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(image)) as picture:
            size = picture.size
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, ValueError):
        return image
    grey = io.BytesIO()
    Image.new("RGB", size, _GREY).save(grey, "PNG")
    return grey.getvalue()
