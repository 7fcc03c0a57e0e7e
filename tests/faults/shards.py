"""An MDS dataset of many small shards, each damaged in its own way, and what each damage should cost."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proctor.sources.mds import MDSWriter
from tests.images.corpus import encoded, noise
from tests.sources.mds.support import edit_file, set_word, word

COLUMNS = {"key": "str", "pair": "jpegarray", "question": "str", "views": "list[jpeg]"}
ROWS = 7
PLAIN = "shard.00000.mds"
CORRUPT = "read.corrupt"

Change = Callable[[Path, dict[str, Any]], object]
"""Damages a shard: gets the directory of its file and its entry in the index, and edits both in place."""


@dataclass(frozen=True)
class Shard:
    """A shard of `ROWS` rows, or as many as the index says after the damage.

    Attributes:
        name: says what is wrong with it.
        change: the damage.
        hit: error kind of the rows that it costs, by position in the shard.
        rows: how many rows the index says it has, once damaged.
        notice: what the run must say of it beyond its rows.
        options: how it is written (compression, hashes).
    """

    name: str
    change: Change
    hit: Mapping[int, str] = field(default_factory=dict)
    rows: int = ROWS
    notice: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


def all_rows(kind: str, rows: int = ROWS) -> dict[int, str]:
    return dict.fromkeys(range(rows), kind)


def sample(shard: str, row: int) -> dict[str, Any]:
    """A row that says where it belongs; its images are real."""
    image = encoded(noise(size=(8, 6)), "JPEG")
    return {
        "key": f"{shard} {row}",
        "question": f"{shard}: what is {row}?",
        "pair": [image] * (row % 2),
        "views": [image] * (row % 3),
    }


def in_file(change: Callable[[bytearray], bytes | bytearray | None]) -> Change:
    return lambda folder, entry: edit_file(folder / PLAIN, change)


def in_index(**settings: Any) -> Change:
    return lambda folder, entry: entry.update(settings)


def offset(data: bytearray, row: int) -> int:
    return word(data, 4 + 4 * row)


def set_offsets(values: Callable[[bytearray], Mapping[int, int]]) -> Change:
    def change(data: bytearray) -> None:
        for row, value in values(data).items():
            set_word(data, 4 + 4 * row, value)

    return in_file(change)


def flip(place: bytes, by: int = 1) -> Change:
    """Flips a bit of the last byte of `place` in the file."""

    def change(data: bytearray) -> None:
        data[data.index(place) + len(place) - 1] ^= by

    return in_file(change)


def cell_of(data: bytearray, row: int, number: int) -> int:
    """Where the cell of a column (by number, in name order) of a row begins."""
    start = offset(data, row)
    sizes = [word(data, start + 4 * column) for column in range(len(COLUMNS))]
    return start + 4 * len(sizes) + sum(sizes[:number])


def set_cell_word(row: int, column: str, at: int, value: int) -> Change:
    number = sorted(COLUMNS).index(column)
    return in_file(lambda data: set_word(data, cell_of(data, row, number) + at, value))


def linked_outside(folder: Path, entry: dict[str, Any]) -> None:
    outside = folder.parent.parent / "outside.mds"
    (folder / PLAIN).rename(outside)
    (folder / PLAIN).symlink_to(outside)


def stored(change: Callable[[bytearray], bytes | bytearray | None], name: str = f"{PLAIN}.zstd") -> Change:
    return lambda folder, entry: edit_file(folder / name, change)


def nothing(folder: Path, entry: dict[str, Any]) -> None:
    pass


def two_swapped(data: bytearray) -> dict[int, int]:
    return {3: offset(data, 4), 4: offset(data, 3)}


def wrapped(data: bytearray) -> dict[int, int]:
    """Offsets that start again at 0 behind row 4, as those of a file beyond 4 GiB do."""
    return {row: offset(data, row) - offset(data, 4) for row in (4, 5, 6, 7)}


def forget_sizes(folder: Path, entry: dict[str, Any]) -> None:
    entry["raw_data"].update(bytes=0, hashes=None)


SHARDS = [
    # Nothing is wrong with these, however odd they are.
    Shard("sound", nothing),
    Shard("hashed", nothing, options={"hashes": ["sha1", "xxh64"]}),
    Shard("only the compressed file", nothing, options={"compression": "zstd", "hashes": ["sha1"]}),
    Shard("sizes unknown", forget_sizes),
    # Damage that can be told row by row.
    Shard("cut at its last row", in_file(lambda data: data[:-9]), {6: CORRUPT}),
    Shard("cut after row 2", in_file(lambda data: data[: offset(data, 3)]), dict.fromkeys([3, 4, 5, 6], CORRUPT)),
    Shard("one row fewer than indexed", in_index(samples=8), {7: CORRUPT}, rows=8),
    Shard("two rows fewer than indexed", in_index(samples=9), {7: CORRUPT, 8: CORRUPT}, rows=9),
    Shard("offset 0 beyond the end", set_offsets(lambda data: {0: len(data) + 99}), {0: CORRUPT}),
    Shard("offset 3 beyond the end", set_offsets(lambda data: {3: 1 << 31}), {2: CORRUPT, 3: CORRUPT}),
    Shard("two offsets swapped", set_offsets(two_swapped), dict.fromkeys([2, 3, 4], CORRUPT)),
    Shard("offsets that wrap at 4 GiB", set_offsets(wrapped), dict.fromkeys([3, 4, 5, 6], CORRUPT)),
    Shard("a cell size flipped", in_file(lambda data: set_word(data, offset(data, 3), 1 << 20)), {3: CORRUPT}),
    Shard("list sizes beyond the cell", set_cell_word(4, "views", 8, 1 << 24), {4: CORRUPT}),
    Shard("a list count beyond the cell", set_cell_word(4, "views", 4, 1 << 24), {4: CORRUPT}),
    Shard("an array count beyond the cell", set_cell_word(3, "pair", 0, 1 << 24), {3: CORRUPT}),
    Shard("text that is not UTF-8", flip(b"UTF-8: what is 5", by=0x80), {5: CORRUPT}),
    Shard("an image damaged in place", in_file(lambda d: set_word(d, cell_of(d, 4, 3) + 12, 0)), {4: "prepare.decode"}),
    # Damage that costs the shard.
    Shard("empty file", in_file(lambda data: b""), all_rows(CORRUPT)),
    Shard("an error page", in_file(lambda data: b"<html>403 Forbidden</html>"), all_rows(CORRUPT)),
    Shard("cut inside its offsets", in_file(lambda data: data[:20]), all_rows(CORRUPT)),
    Shard("flipped byte, hashed", flip(b"hashed: what is 2"), all_rows(CORRUPT), options={"hashes": ["sha1"]}),
    Shard("cut, hashed", in_file(lambda data: data[:-1]), all_rows(CORRUPT), options={"hashes": ["xxh64"]}),
    Shard("a stream cut", stored(lambda data: data[:-30]), all_rows(CORRUPT), options={"compression": "zstd"}),
    Shard("a stream that is none", stored(lambda data: b"<html>"), all_rows(CORRUPT), options={"compression": "zstd"}),
    Shard("a link out of the data", linked_outside, all_rows(CORRUPT)),
    Shard("missing", lambda folder, entry: (folder / PLAIN).unlink(), all_rows("read.missing")),
]

NOTICED = [
    Shard("sound", nothing),
    Shard(
        "four rows more than indexed",
        in_index(samples=3),
        rows=3,
        notice="the shard holds 7 rows, its index says 3: the others are not read",
    ),
    Shard(
        "bytes behind the last row",
        in_file(lambda data: data + b"junk"),
        notice="4 bytes behind the shard's last row belong to no row",
    ),
    Shard(
        "a row count that cannot be",
        in_file(lambda data: set_word(data, 0, 6)),
        notice="the shard's head says 6 rows, its offsets are those of the index's 7",
    ),
]


def write_dataset(path: Path, shards: list[Shard]) -> Path:
    """Writes the shards, each in a folder of its own, and one index over all, as the public library merges them."""
    entries = []
    for number, shard in enumerate(shards):
        folder = path / f"{number:02}"
        with MDSWriter(folder, COLUMNS, **shard.options) as writer:
            for row in range(ROWS):
                writer.write(sample(shard.name, row))
        (entry,) = json.loads((folder / "index.json").read_text())["shards"]
        (folder / "index.json").unlink()
        shard.change(folder, entry)
        for file in filter(None, (entry["raw_data"], entry["zip_data"])):
            file["basename"] = f"{folder.name}/{file['basename']}"
        entries.append(entry)
    (path / "index.json").write_text(json.dumps({"version": 2, "shards": entries}))
    return path


def expected(shards: list[Shard]) -> list[tuple[str | None, str | None, str | None]]:
    """Error kind, sample id and question of every row that a reader of the dataset must come up with, in order."""
    rows: list[tuple[str | None, str | None, str | None]] = []
    for shard in shards:
        for row in range(shard.rows):
            kind, known = shard.hit.get(row), sample(shard.name, row)
            if kind is None:
                rows.append((None, known["key"], known["question"]))
            else:
                rows.append((kind, known["key"] if kind.startswith("prepare") else None, None))
    return rows
