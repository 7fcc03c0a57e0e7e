"""Encoded image to RGB pixels, as a person would see them in a viewer.

* The EXIF (or XMP) orientation is applied and forgotten, so that nobody downstream applies it again.
* Transparent pixels are laid over white.
* 16-bit grey keeps its upper 8 bits; CMYK and palettes are converted; colour profiles are ignored.
* Of an animation or a many-page file the first picture is taken.

Pillow's draft mode (decoding JPEG at a smaller scale) is not used: it changes pixels, hence answers.
"""

from __future__ import annotations

import struct
import threading
import warnings
from io import BytesIO
from types import TracebackType

import numpy as np
from PIL import Image
from PIL.ImageFile import ImageFile

from proctor.images.formats import OPENERS, looks_like, sniff

MAX_PIXELS = 178_956_970
"""Most pixels an image may have (what Pillow and vLLM take for a decompression bomb begins above it)."""

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_ORIENTATION = 0x0112
_CUT_SHORT = ("truncated", "not enough", "unexpected end", "reached end", "end of file", "eof")


class DecodeError(ValueError):
    """Bytes that are not an image we can show; the message is a short reason."""


def decode(data: bytes) -> Image.Image:
    """Decodes an image wholly: upright, in mode ``RGB``, of size (width, height) as seen.

    Raises:
        DecodeError: `data` is empty, no image, of a format that is not supported, damaged, cut short, or has more
            than `MAX_PIXELS` pixels.
    """
    if not data:
        raise DecodeError("empty: 0 bytes")
    name = sniff(data)
    if name is None:
        raise DecodeError(f"not an image: {looks_like(data)}")
    if name not in OPENERS:
        raise DecodeError(f"unsupported: {name} ({', '.join(OPENERS)} are decoded)")
    with _SILENCE:
        try:
            return _upright(_to_rgb(_load(name, data)))
        except DecodeError:
            raise
        except Exception as error:  # hostile bytes make Pillow's plug-ins raise nearly every type there is
            raise DecodeError(_reason(name, data, error)) from error


def check(data: bytes) -> tuple[int, int]:
    """Width and height of an image as `decode` gives it; decodes every pixel, so that damage anywhere shows.

    Raises:
        DecodeError: as `decode`.
    """
    return decode(data).size


def _load(name: str, data: bytes) -> ImageFile:
    image = OPENERS[name](BytesIO(data))
    pixels = image.width * image.height
    if pixels > MAX_PIXELS:
        raise DecodeError(f"too large: {image.width} x {image.height} = {pixels:,} pixels, the limit is {MAX_PIXELS:,}")
    if pixels == 0:
        raise DecodeError(f"damaged {name}: {image.width} x {image.height} pixels")
    image.load()
    return image


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16"):
        # Pillow would clip every value above 255 to white.
        grey = (np.asarray(image) >> 8).astype(np.uint8)
        return _with_info_of(image, Image.fromarray(grey).convert("RGB"))
    if image.mode in ("I", "F"):
        raise DecodeError(f"unsupported: 32-bit pixels (mode {image.mode})")
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        white = Image.new("RGB", image.size, "white")
        white.paste(rgba, mask=rgba.getchannel("A"))
        return _with_info_of(image, white)
    return image if image.mode == "RGB" else image.convert("RGB")


def _with_info_of(source: Image.Image, image: Image.Image) -> Image.Image:
    image.info = dict(source.info)
    return image


def _upright(image: Image.Image) -> Image.Image:
    turn = _TURNS.get(_orientation(image))
    if turn is None:
        return image
    turned = image.transpose(turn)
    turned.info = {}
    return turned


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


class _Silence:
    """Keeps Pillow's warnings from leaving `decode`, also when several threads decode at once.

    `warnings.catch_warnings` alone would let overlapping threads restore each other's filters: only the first one
    in saves them and only the last one out restores them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._saved: warnings.catch_warnings[None] | None = None

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._saved = warnings.catch_warnings()
                self._saved.__enter__()
                warnings.simplefilter("ignore")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._saved is not None:
                self._saved.__exit__(kind, error, trace)
                self._saved = None


_SILENCE = _Silence()
