"""The images of a few rows, read back from the source, small enough to stand inside a page."""

from __future__ import annotations

import base64
from collections.abc import Collection
from io import BytesIO

from PIL import Image
from pyroaring import BitMap64

from proctor.images import DecodeError, decode
from proctor.rows import Sample
from proctor.sources.registry import source_of
from proctor.sources.samples import to_samples
from proctor.spec import RunSpec

_LONGEST_SIDE = 480  # pixels
_QUALITY = 88


def read_images(spec: RunSpec, row_ids: Collection[int]) -> dict[int, tuple[bytes, ...]]:
    """Encoded images by row id; rows that cannot be read are left out.

    Raises:
        ProctorError, OSError, ValueError: the source is not there any more, or not as it was.
    """
    source = source_of(spec)
    wanted = BitMap64(row_ids) & source.expected()
    images: dict[int, tuple[bytes, ...]] = {}
    for group in source.groups(wanted, max(1, len(wanted))):
        for block in source.read(group):
            for sample in to_samples(block, spec.source.columns):
                if isinstance(sample, Sample):
                    images[sample.row_id] = sample.images
    return images


def data_uri(image: bytes) -> str | None:
    """`image` as a JPEG data URI of at most 480 pixels a side; None when it cannot be decoded.

    It is always encoded anew, so that nothing but pixels (no position, no hidden content) leaves with the report.
    """
    try:
        clean = redrawn(image, _LONGEST_SIDE, _QUALITY)
    except DecodeError:
        return None
    return f"data:image/jpeg;base64,{base64.b64encode(clean).decode('ascii')}"


def redrawn(image: bytes, longest_side: int, quality: int) -> bytes:
    """`image`, upright, as a JPEG of at most `longest_side` pixels a side that holds nothing but pixels.

    Raises:
        DecodeError: it is no image.
    """
    picture = decode(image)
    picture.thumbnail((longest_side, longest_side), Image.Resampling.LANCZOS)
    clean, out = Image.new("RGB", picture.size), BytesIO()
    clean.paste(picture)
    clean.save(out, format="JPEG", quality=quality, optimize=True)
    return out.getvalue()
