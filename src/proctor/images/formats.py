"""Which image format bytes have, by their first bytes; and what they look like if they are no image at all.

Pillow's own search is not used: it would try every plug-in it knows (one of them runs Ghostscript) and answers
"cannot identify image file <BytesIO object>" to everything else.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from io import BytesIO

from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    GifImagePlugin,
    Jpeg2KImagePlugin,
    JpegImagePlugin,
    PngImagePlugin,
    PpmImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)
from PIL.ImageFile import ImageFile

Opener = Callable[[BytesIO], ImageFile]

OPENERS: dict[str, Opener] = {
    "JPEG": JpegImagePlugin.JpegImageFile,
    "PNG": PngImagePlugin.PngImageFile,
    "WebP": WebPImagePlugin.WebPImageFile,
    "GIF": GifImagePlugin.GifImageFile,
    "BMP": BmpImagePlugin.BmpImageFile,
    "TIFF": TiffImagePlugin.TiffImageFile,
    "AVIF": AvifImagePlugin.AvifImageFile,
    "JPEG 2000": Jpeg2KImagePlugin.Jpeg2KImageFile,
    "PPM": PpmImagePlugin.PpmImageFile,
}
"""The formats that are decoded."""

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"BM", "BMP"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
    (b"\xff\x4f\xff\x51", "JPEG 2000"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"),
    *((f"P{digit}{space}".encode(), "PPM") for digit in range(1, 7) for space in (" ", "\n", "\t", "\r")),
    (b"8BPS", "PSD"),
    (b"%!PS", "PostScript"),
    (b"%PDF", "PDF"),
    (b"\0\0\1\0", "ICO"),
    (b"\xff\x0a", "JPEG XL"),
    (b"\0\0\0\x0cJXL ", "JPEG XL"),
    (b"qoif", "QOI"),
)
_BRANDS = {b"avif": "AVIF", b"avis": "AVIF", **dict.fromkeys((b"heic", b"heix", b"hevc", b"mif1", b"msf1"), "HEIF")}
_OTHER: tuple[tuple[bytes, str], ...] = (
    (b"\x1f\x8b", "gzip data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x80\x04\x95", "a pickle"),
    (b"\x80\x05\x95", "a pickle"),
    (b"\x93NUMPY", "a numpy array"),
)
_TEXT_STARTS: tuple[tuple[str, str], ...] = (
    ("<!doctype html", "HTML"),
    ("<html", "HTML"),
    ("<svg", "SVG"),
    ("<?xml", "XML"),
    ("{", "JSON"),
    ("[", "JSON"),
    ("data:", "a data URI"),
    ("/9j/", "base64 text"),
    ("ivborw0", "base64 text"),
    ("version https://git-lfs", "a Git LFS pointer"),
)


def sniff(data: bytes) -> str | None:
    """Name of the image format that `data` begins like (not always one of `OPENERS`), None if it is no image."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WebP"
    if data[4:8] == b"ftyp":
        return _BRANDS.get(data[8:12])
    return next((name for magic, name in _MAGIC if data.startswith(magic)), None)


def looks_like(data: bytes) -> str:
    """A few words on what `data` is instead of an image, with its first characters if it is text."""
    for magic, name in _OTHER:
        if data.startswith(magic):
            return name
    head = data[:64]
    if not any(head):
        return "zero bytes"
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head)  # bears a character cut in two at the end
    except UnicodeDecodeError:
        return "unknown bytes"
    if not all(character.isprintable() or character.isspace() for character in text):
        return "unknown bytes"
    start = text.lstrip("\ufeff \r\n\t")
    kind = next((name for prefix, name in _TEXT_STARTS if start.lower().startswith(prefix)), "text")
    return f"{kind}: {start[:40]!r}"
