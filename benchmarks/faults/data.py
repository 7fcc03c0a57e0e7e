"""The rows of the matrix: an MDS data set of 2,000 rows in 20 shards, and copies of it with one thing damaged."""

from __future__ import annotations

import io
import json
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from proctor.sources.mds import MDSWriter

ROWS = 2000
SHARD_ROWS = 100
COLUMNS = {"id": "int", "image": "bytes", "question": "str"}
HIT = 777
"""The row that a fault of a single row strikes; shard 7 holds it."""


def answer_of(row: int) -> str:
    """The right answer of a row: the scripted engine repeats the question."""
    return f"answer {row:05d}"


def truth() -> dict[int, str]:
    """The right answer of every row."""
    return {row: answer_of(row) for row in range(ROWS)}


def write_rows(path: Path, pixels: int = 8) -> Path:
    """Writes the data set, with hashes in its index. Images are noise of `pixels` x `pixels`, the same in every row.

    All rows are equally long, so that a size limit of one shard's size makes shards of equal numbers of rows.
    """
    image = _image(pixels)
    trial = path.with_name(path.name + "-trial")
    with MDSWriter(trial, COLUMNS, hashes=["xxh64"], size_limit=None) as writer:
        for row in range(SHARD_ROWS):
            writer.write(_row(row, image))
    size = (trial / "shard.00000.mds").stat().st_size + 32  # its head also holds the limit, as text
    shutil.rmtree(trial)
    with MDSWriter(path, COLUMNS, hashes=["xxh64"], size_limit=size) as writer:
        for row in range(ROWS):
            writer.write(_row(row, image))
    return path


def damaged(clean: Path, path: Path, damage: Callable[[Path], None]) -> Path:
    """A copy of `clean` at `path` after `damage`."""
    shutil.copytree(clean, path)
    damage(path)
    return path


def break_image(path: Path) -> None:
    """Row `HIT` has text for an image; the index has no hashes, as most do."""
    _drop_hashes(path)
    image = _image(8)
    junk = b"this is no image".ljust(len(image), b".")
    _edit_row(path, lambda data: data.replace(image, junk))


def break_text(path: Path) -> None:
    """The question of row `HIT` is not UTF-8."""
    _drop_hashes(path)
    _edit_row(path, lambda data: data.replace(b"answer ", b"answer\xff"))


def flip_byte(path: Path) -> None:
    """One digit in the question of row `HIT` is another one; the index has the shard's hash."""
    _edit_row(path, lambda data: data.replace(b"00777", b"00779"))


def cut_shard(path: Path) -> None:
    """The shard of row `HIT` ends in the middle of it."""
    _drop_hashes(path)
    shard, begin, end = _place(path)
    shard.write_bytes(shard.read_bytes()[: (begin + end) // 2])


def remove_shard(path: Path) -> None:
    """The shard of row `HIT` is gone."""
    _place(path)[0].unlink()


def break_offset(path: Path) -> None:
    """The offset at which row `HIT` begins points far behind the file."""
    _drop_hashes(path)
    shard, _, _ = _place(path)
    data = bytearray(shard.read_bytes())
    struct.pack_into("<I", data, 4 * (1 + HIT % SHARD_ROWS), 1 << 30)
    shard.write_bytes(data)


def _row(row: int, image: bytes) -> dict[str, object]:
    return {"id": row, "image": image, "question": answer_of(row)}


def _image(pixels: int) -> bytes:
    noise = Image.frombytes("RGB", (pixels, pixels), random.Random(1).randbytes(3 * pixels * pixels))
    file = io.BytesIO()
    noise.save(file, "png")
    return file.getvalue()


def _place(path: Path) -> tuple[Path, int, int]:
    """Shard file of row `HIT`, and where in it the row begins and ends."""
    shard = path / f"shard.{HIT // SHARD_ROWS:05d}.mds"
    begin, end = struct.unpack_from("<2I", shard.read_bytes(), 4 * (1 + HIT % SHARD_ROWS))
    return shard, begin, end


def _edit_row(path: Path, edit: Callable[[bytes], bytes]) -> None:
    shard, begin, end = _place(path)
    data = shard.read_bytes()
    row = edit(data[begin:end])
    assert len(row) == end - begin
    assert row != data[begin:end]
    shard.write_bytes(data[:begin] + row + data[end:])


def _drop_hashes(path: Path) -> None:
    index = path / "index.json"
    document = json.loads(index.read_text())
    for shard in document["shards"]:
        shard["hashes"] = []
        shard["raw_data"]["hashes"] = {}
    index.write_text(json.dumps(document))
