"""Encoded image to RGB pixels, as a person would see them in a viewer.

* The EXIF (or XMP) orientation is applied and forgotten, so that nobody downstream applies it again.
* Transparent pixels are laid over white.
* 16-bit channels keep their upper 8 bits; CMYK and palettes are converted; colour profiles are ignored.
* Of an animation or a many-page file the first picture is taken.

Each of these that changes what the model sees is named beside the pixels. A JPEG is decoded at a smaller scale only for
a caller that asks: it changes pixels, hence answers.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile

from proctor.images.formats import OPENERS, looks_like, sniff
from proctor.images.jpeg import exact_pixels, scale_down
from proctor.images.silence import SILENCE

MAX_PIXELS = 178_956_970
"""Most pixels an image may have (what Pillow and vLLM take for a decompression bomb begins above it)."""

T = TypeVar("T")

Wanted = Callable[[int, int], tuple[int, int] | None]
"""From the (width, height) of an upright image to those that are wanted of it; None for all it has."""

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_ON_ITS_SIDE = (5, 6, 7, 8)
_ORIENTATION = 0x0112
_CUT_SHORT = ("truncated", "not enough", "unexpected end", "reached end", "end of file", "eof")
_DEEP = re.compile(r"\b(I|L|LA|RGB|RGBA|RGBX|CMYK);16")
"""Pillow's names of 16-bit channels; ``BGR;16`` is a whole pixel in 16 bits."""
_PLAIN_MODES = ("1", "L", "P", "RGB", "RGBX")


class DecodeError(ValueError):
    """Bytes that are not an image we can show; the message is a short reason."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A decoded image.

    Attributes:
        image: upright, in mode ``RGB``.
        size: (width, height) of the whole image, upright; that of `image` unless it was decoded at a smaller scale.
        changes: what else was done that a model's input depends on, e.g. ``EXIF orientation 6 applied``.
    """

    image: Image.Image
    size: tuple[int, int]
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    """What `check` saw: (width, height) of the upright image, and the `changes` that `look` would make."""

    size: tuple[int, int]
    changes: tuple[str, ...]


def decode(data: bytes) -> Image.Image:
    """Decodes an image wholly: upright, in mode ``RGB``, of size (width, height) as seen.

    Raises:
        DecodeError: `data` is empty, no image, of a format that is not supported, damaged, cut short, or has more
            than `MAX_PIXELS` pixels.
    """
    return look(data).image


def look(data: bytes, *, max_pixels: int = MAX_PIXELS, wanted: Wanted | None = None) -> Picture:
    """Decodes an image as `decode` does, and says what was done to it.

    Args:
        max_pixels: most pixels that it may have; above `MAX_PIXELS` has no effect.
        wanted: allows a JPEG to be decoded at 1/2, 1/4 or 1/8 of its size, the smallest that is not below this.

    Raises:
        DecodeError: as `decode`.
    """
    return _opened(data, max_pixels, lambda name, image: _shown(_load(name, image, data, wanted)))


def pixels(data: bytes) -> NDArray[np.uint8]:
    """The pixels of an upright image, (height, width, 3), not to be written to: ``np.asarray(decode(data))``.

    With simplejpeg this takes a JPEG half the time, and the pixels are the same to the bit.

    Raises:
        DecodeError: as `decode`.
    """

    def array(name: str, image: ImageFile) -> NDArray[np.uint8]:
        if isinstance(image, JpegImageFile) and _orientation(image) not in _TURNS:
            exact = exact_pixels(image, data)
            if exact is not None:
                return exact
        return np.asarray(_shown(_load(name, image, data, None)).image)

    return _opened(data, MAX_PIXELS, array)


def check(data: bytes, *, max_pixels: int = MAX_PIXELS) -> Checked:
    """Decodes all that an image's bytes hold, so that damage anywhere shows, and throws it away.

    A JPEG is unpacked to its last coefficient, but only the eighth part of its width and height is made into pixels: no
    damage can be seen later than that, and it takes half the time and a tenth of the memory.

    Raises:
        DecodeError: as `decode`.
    """
    loaded = _opened(data, max_pixels, lambda name, image: _load(name, image, data, _hardly_any))
    return Checked(loaded.size, loaded.changes)


def _hardly_any(*_size: int) -> tuple[int, int]:
    return 1, 1


@dataclass(frozen=True, slots=True)
class _Loaded:
    """An RGB image before it is turned, at 1/`scale` of its own size; `size` and `changes` as in `Picture`."""

    image: Image.Image
    orientation: int
    size: tuple[int, int]
    scale: int
    changes: tuple[str, ...]


def _opened(data: bytes, max_pixels: int, work: Callable[[str, ImageFile], T]) -> T:
    """Does `work` with the format's name and the image, not loaded yet; what is wrong becomes a `DecodeError`."""
    if not data:
        raise DecodeError("empty: 0 bytes")
    name = sniff(data)
    if name is None:
        raise DecodeError(f"not an image: {looks_like(data)}")
    if name not in OPENERS:
        raise DecodeError(f"unsupported: {name} ({', '.join(OPENERS)} are decoded)")
    with SILENCE:
        try:
            image = OPENERS[name](BytesIO(data))
            _check_size(name, image, min(max_pixels, MAX_PIXELS))
            return work(name, image)
        except DecodeError:
            raise
        except Exception as error:  # hostile bytes make Pillow's plug-ins raise nearly every type there is
            raise DecodeError(_reason(name, data, error)) from error


def _load(name: str, image: ImageFile, data: bytes, wanted: Wanted | None) -> _Loaded:
    size, scale, changes = image.size, 1, list[str]()
    if isinstance(image, JpegImageFile):
        scale = _scale(image, wanted)
    else:
        changes = _seen_before_loading(name, image, data)
    image.load()
    orientation = _orientation(image)  # some formats hold it behind the pixels
    if orientation in _TURNS:
        changes.append(f"EXIF orientation {orientation} applied")
    return _Loaded(_to_rgb(image, changes), orientation, _upright_size(size, orientation), scale, tuple(changes))


def _scale(image: JpegImageFile, wanted: Wanted | None) -> int:
    orientation = _orientation(image)
    target = wanted(*_upright_size(image.size, orientation)) if wanted is not None else None
    return 1 if target is None else scale_down(image, *_upright_size(target, orientation))


def _upright_size(size: tuple[int, int], orientation: int) -> tuple[int, int]:
    """From (width, height) as stored to as seen, and back."""
    return (size[1], size[0]) if orientation in _ON_ITS_SIDE else size


def _check_size(name: str, image: ImageFile, limit: int) -> None:
    pixels = image.width * image.height
    if pixels > limit:
        raise DecodeError(f"too large: {image.width} x {image.height} = {pixels:,} pixels, the limit is {limit:,}")
    if pixels == 0:
        raise DecodeError(f"damaged {name}: {image.width} x {image.height} pixels")


def _seen_before_loading(name: str, image: ImageFile, data: bytes) -> list[str]:
    """Changes that the decoder makes by itself, and of which it tells nothing afterwards."""
    changes = []
    turned = _orientation(image) if name == "TIFF" else 1  # Pillow turns TIFF, and only TIFF, while it loads
    if turned in _TURNS:
        changes.append(f"EXIF orientation {turned} applied")
    if image.mode.startswith("I;16") or any(_DEEP.search(str(tile.args)) for tile in image.tile):
        changes.append("16-bit channels cut to 8 bits")
    if _is_first_of_several(name, data):
        changes.append("first picture of several")
    return changes


def _is_first_of_several(name: str, data: bytes) -> bool:
    # Of a copy: to find out, Pillow leaves the first picture of a GIF.
    try:
        return bool(getattr(OPENERS[name](BytesIO(data)), "is_animated", False))
    except Exception:  # damage behind the first picture
        return False


def _to_rgb(image: Image.Image, changes: list[str]) -> Image.Image:
    """Converts a loaded image; notes in `changes` what is lost."""
    if image.mode.startswith("I;16"):
        # Pillow would clip every value above 255 to white.
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        raise DecodeError(f"unsupported: 32-bit pixels (mode {image.mode})")
    if image.has_transparency_data:
        return _over_white(image.convert("RGBA"), changes)
    if image.mode not in _PLAIN_MODES:
        changes.append(f"{image.mode} converted to RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def _over_white(image: Image.Image, changes: list[str]) -> Image.Image:
    alpha = image.getchannel("A")
    least = alpha.getextrema()[0]
    if least == 255:
        return image.convert("RGB")
    changes.append("transparency laid over white")
    white = Image.new("RGB", image.size, "white")
    white.paste(image, mask=alpha)
    return white


def _shown(loaded: _Loaded) -> Picture:
    turn = _TURNS.get(loaded.orientation)
    image = loaded.image if turn is None else loaded.image.transpose(turn)
    image.info = {}  # the orientation stood there
    scaled = [f"decoded at 1/{loaded.scale} scale"] if loaded.scale > 1 else []
    return Picture(image, loaded.size, (*loaded.changes, *scaled))


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # damaged EXIF leaves the picture as it is, as viewers do
        return 1


def _reason(name: str, data: bytes, error: Exception) -> str:
    if isinstance(error, Image.DecompressionBombError):
        return f"too large: {error}"
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, (EOFError, struct.error, IndexError)) or any(hint in text.lower() for hint in _CUT_SHORT):
        return f"truncated {name} of {len(data):,} bytes: {text}"
    return f"damaged {name}: {text}"
