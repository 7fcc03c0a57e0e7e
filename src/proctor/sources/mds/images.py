"""Decodes cells that hold several image files, or images as raw pixels. Image files themselves stay as they are."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from proctor.sources.mds.cells import Cells, Faults, Ints, binary_array, read_numbers
from proctor.sources.mds.encodings import Encoding

_PNG_MODES = frozenset({"1", "L", "LA", "I;16", "RGB", "RGBA"})
_PIXEL_BITS = {
    "1": 1, "L": 8, "LA": 16, "I;16": 16, "RGB": 24, "LAB": 24,
    "RGBA": 32, "CMYK": 32, "I": 32, "F": 32,
}  # fmt: skip
"""Bits a pixel of every mode that PNG or TIFF keeps without loss; each line of an image starts at a whole byte.

Not among them: P and PA, since a cell holds no palette; YCbCr and RGBX, which not every Pillow reads back as they were.
"""


def decode_image_list(encoding: Encoding, cells: Cells, faults: Faults) -> pa.Array:
    """``list[...]`` and ``jpegarray`` cells: [placeholder word, not in jpegarray] [count] [sizes] [files]."""
    items, offsets = _items(cells, 0 if encoding.name.startswith("jpeg") else 4, faults)
    files = _png_files(items, offsets, faults) if encoding.name == "list[pil]" else binary_array(items)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), files)


def decode_pil(_encoding: Encoding, cells: Cells, faults: Faults) -> pa.Array:
    """Raw pixels, encoded again without loss (PNG, or TIFF for modes that PNG lacks)."""
    return _png_files(cells, np.arange(len(cells) + 1), faults)


def _items(cells: Cells, skip: int, faults: Faults) -> tuple[Cells, Ints]:
    """The files inside the cells, and where each cell's begin among them. A damaged cell has none."""
    head = skip + 4
    counts = np.zeros(len(cells), np.int64)
    sound = cells.sizes >= head
    counts[sound] = read_numbers(cells.window, cells.starts[sound] + skip, "<u4")
    sound &= head + 4 * counts <= cells.sizes
    _mark(~sound, "ends inside its list of image sizes", faults)
    offsets, sizes = _item_sizes(cells, np.where(sound, counts, 0), head)
    totals = np.add.reduceat(np.append(sizes, 0), offsets[:-1]) if len(cells) else np.zeros(0, np.int64)
    totals[np.diff(offsets) == 0] = 0  # reduceat gives an empty stretch the value at its start
    fits = head + 4 * np.diff(offsets) + totals == cells.sizes
    _mark(sound & ~fits, "its images do not fill the cell as their sizes say", faults)
    if not fits.all():
        offsets, sizes = _item_sizes(cells, np.where(sound & fits, counts, 0), head)
    kept = np.diff(offsets)
    ends_before = np.concatenate([[0], np.cumsum(sizes)])
    first = cells.starts + head + 4 * kept - ends_before[offsets[:-1]]
    return Cells(cells.window, np.repeat(first, kept) + ends_before[:-1], sizes), offsets


def _item_sizes(cells: Cells, counts: Ints, head: int) -> tuple[Ints, Ints]:
    offsets = np.concatenate([[0], np.cumsum(counts)])
    within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
    positions = np.repeat(cells.starts + head, counts) + 4 * within
    return offsets, read_numbers(cells.window, positions, "<u4").astype(np.int64)


def _mark(rows: np.ndarray[tuple[int], np.dtype[np.bool_]], what: str, faults: Faults) -> None:
    faults.update(dict.fromkeys(map(int, np.flatnonzero(rows)), what))


def _png_files(items: Cells, offsets: Ints, faults: Faults) -> pa.Array:
    return pa.array(_encode_all(items, offsets, faults), pa.large_binary())


def _encode_all(items: Cells, offsets: Ints, faults: Faults) -> Iterator[bytes]:
    for row in range(len(offsets) - 1):
        for item in range(int(offsets[row]), int(offsets[row + 1])):
            try:
                yield image_file_of_pixels(items.raw(item))
            except ValueError as error:
                faults[row] = str(error)
                yield b""


def image_file_of_pixels(cell: bytes) -> bytes:
    """A PNG (or TIFF) file of a ``pil`` cell: [width] [height] [length of mode] [mode] [pixels].

    Raises:
        ValueError: the cell is damaged or holds a mode that no file format keeps without loss; says which.
    """
    from PIL import Image  # imported here: most datasets hold no raw pixels

    if len(cell) < 12:
        raise ValueError("ends inside the header of its raw image")
    width, height, mode_size = struct.unpack_from("<3I", cell)
    mode, pixels = cell[12 : 12 + mode_size].decode("latin-1"), cell[12 + mode_size :]
    if mode not in _PIXEL_BITS:
        raise ValueError(f"a raw image of mode {mode[:16]!r} cannot be kept as an image file without loss")
    if width * height == 0 or (width * _PIXEL_BITS[mode] + 7) // 8 * height != len(pixels):
        raise ValueError(f"a raw {mode} image of {width} x {height} pixels in {len(pixels)} bytes")
    out = io.BytesIO()
    options = {"format": "PNG", "compress_level": 1} if mode in _PNG_MODES else {"format": "TIFF"}
    Image.frombytes(mode, (width, height), pixels).save(out, **options)
    return out.getvalue()
