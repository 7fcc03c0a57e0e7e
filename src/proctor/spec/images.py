"""What is done to images before an engine gets them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from proctor.spec.model import SpecModel

_BOMB = 178_956_970
"""`proctor.images.MAX_PIXELS`, which lies on a floor above."""


class ImagesSpec(SpecModel):
    """What is done to images before an engine gets them. By default nothing: the engine gets the source's bytes."""

    max_pixels: int = Field(default=_BOMB, ge=1, le=_BOMB)
    """Most pixels an image may have. Above it, a row ends as `prepare.decode` before its pixels are decoded."""
    resize: Literal["model"] | Annotated[int, Field(ge=1024, le=_BOMB)] | None = None
    """Resize images early, so that fewer bytes travel: ``model`` to what the checkpoint's own processor would resize
    them to (Qwen-VL family; images that would travel in more bytes are left to it), or a number of pixels, which larger
    images are reduced to in their own proportions. Default: the engine gets images as they are."""
    scale_on_decode: bool = False
    """Decode a JPEG that is to be resized at 1/2, 1/4 or 1/8 of its size: several times faster for large ones, with
    slightly other pixels, hence other answers."""
