"""Images of every kind that is decoded, and of every kind that is not and why."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable

import numpy as np
from PIL import Image

SIZE = (64, 48)  # width, height


def noise(mode: str = "RGB", size: tuple[int, int] = SIZE) -> Image.Image:
    channels = {"L": 1, "RGB": 3, "RGBA": 4, "CMYK": 4}[mode]
    values = np.random.default_rng(7).integers(0, 256, (size[1], size[0], channels), dtype=np.uint8)
    return Image.fromarray(values[..., 0] if channels == 1 else values, mode)


def encoded(image: Image.Image, format_: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, format_, **options)
    return out.getvalue()


def png_header(width: int, height: int) -> bytes:
    """A PNG that says it is huge and holds one empty data chunk."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def jpeg_saying(side: int) -> bytes:
    data = encoded(noise(), "JPEG")
    start = data.index(b"\xff\xc0") + 5
    return data[:start] + struct.pack(">HH", side, side) + data[start + 4 :]


def exif(orientation: int) -> bytes:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags.tobytes()


GOOD: dict[str, Callable[[], bytes]] = {
    "baseline JPEG": lambda: encoded(noise(), "JPEG"),
    "progressive JPEG": lambda: encoded(noise(), "JPEG", progressive=True),
    "grey JPEG": lambda: encoded(noise("L"), "JPEG"),
    "CMYK JPEG": lambda: encoded(noise("CMYK"), "JPEG"),
    "JPEG with trailing junk": lambda: encoded(noise(), "JPEG") + b"junk" * 100,
    "PNG": lambda: encoded(noise(), "PNG"),
    "16-bit grey PNG": lambda: encoded(Image.fromarray(np.full((48, 64), 40_000, np.uint16)), "PNG"),
    "palette PNG": lambda: encoded(noise().quantize(16), "PNG"),
    "palette PNG with tRNS": lambda: encoded(noise().quantize(16), "PNG", transparency=bytes([0, 128, 255])),
    "grey PNG with tRNS": lambda: encoded(noise("L"), "PNG", transparency=3),
    "RGBA PNG": lambda: encoded(noise("RGBA"), "PNG"),
    "1-bit PNG": lambda: encoded(noise("L").convert("1"), "PNG"),
    "grey-alpha PNG": lambda: encoded(noise("RGBA").convert("LA"), "PNG"),
    "WebP": lambda: encoded(noise(), "WEBP"),
    "WebP with alpha": lambda: encoded(noise("RGBA"), "WEBP"),
    "GIF": lambda: encoded(noise(), "GIF"),
    "BMP": lambda: encoded(noise(), "BMP"),
    "TIFF": lambda: encoded(noise(), "TIFF", compression="tiff_lzw"),
    "AVIF": lambda: encoded(noise(), "AVIF"),
    "JPEG 2000": lambda: encoded(noise(), "JPEG2000"),
    "PPM": lambda: encoded(noise(), "PPM"),
}

BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    "zero length": (lambda: b"", r"^empty"),
    "JPEG, 400 bytes cut": (lambda: encoded(noise(), "JPEG")[:-400], r"^truncated JPEG of [\d,]+ bytes"),
    "JPEG, first 200 bytes": (lambda: encoded(noise(), "JPEG")[:200], r"^truncated JPEG"),
    "PNG, second half gone": (lambda: encoded(noise(), "PNG")[:5000], r"^truncated PNG"),
    "HTML page": (lambda: b"<html><head><title>403 Forbidden</title>", r"^not an image: HTML: '<html><head>"),
    "plain text": (lambda: b"403 Forbidden", r"^not an image: text: '403 Forbidden'"),
    "JSON": (lambda: b'{"error": "denied"}', r"^not an image: JSON"),
    "base64 text": (lambda: b"/9j/4AAQSkZJRgABAQ", r"^not an image: base64 text"),
    "gzip": (lambda: b"\x1f\x8b\x08" + bytes(20), r"^not an image: gzip data"),
    "zeros": (lambda: bytes(5000), r"^not an image: zero bytes"),
    "noise": (lambda: bytes(range(255, 100, -1)), r"^not an image: unknown bytes"),
    "PDF": (lambda: b"%PDF-1.7\n%", r"^unsupported: PDF"),
    "HEIF": (lambda: b"\0\0\0\x18ftypheic" + bytes(40), r"^unsupported: HEIF"),
    "float TIFF": (lambda: encoded(Image.fromarray(np.zeros((4, 4), np.float32)), "TIFF"), r"^unsupported: 32-bit"),
    "PNG bomb 30000 x 30000": (lambda: png_header(30_000, 30_000), r"^too large: .*900,000,000 .*limit is 178,956,970"),
    "PNG bomb 12000 x 12000": (lambda: png_header(12_000, 12_000), r"^(truncated|damaged) PNG"),
    "JPEG header 65500 x 65500": (lambda: jpeg_saying(65_500), r"^too large: 65500 x 65500"),
    "PNG of width 0": (lambda: png_header(0, 10), r"^damaged PNG"),
}
