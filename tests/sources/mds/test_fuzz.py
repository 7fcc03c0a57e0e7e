"""Shards with seeded random damage. Whatever was done to the bytes, each id comes out once, and rows nobody touched are
as they were written."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pyroaring import BitMap64

from proctor.sources.mds.verify import verify
from proctor.storage.connect import StorageOptions
from tests.sources.mds.support import edit_file, edit_index, errors, read_rows, set_word, word, write

ROWS = 12
SHARD = "shard.00000.mds"
COLUMNS = {
    "a": "str",
    "b": "list[jpeg]",
    "c": "int",
    "d": "ndarray",
    "e": "jpegarray",
    "f": "ndarray:uint16",
    "g": "list[pil]",
    "h": "str_int",
    "i": "bytes",
    "j": "float32",
    "k": "ndarray:int8:2",
}
EXTREMES = [0, 1, 3, 255, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1]


def sample(row: int) -> dict[str, Any]:
    return {
        "a": f"row {row}" * (row % 4),
        "b": [b"frame" * 7, b"", b"f"][: row % 4],
        "c": row,
        "d": np.arange(row + 1, dtype=["uint8", "float32", "int64"][row % 3]),
        "e": [b"left", b"right"],
        "f": np.ones((2, row + 1), "uint16"),
        "g": [Image.new("RGB", (2, 1), (row, 0, 0))] * (row % 2),
        "h": row - 5,
        "i": bytes(row * 3),
        "j": row / 4,
        "k": np.array([1, -1], "int8"),
    }


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    path = write(tmp_path_factory.mktemp("fuzz") / "data", COLUMNS, [sample(row) for row in range(ROWS)])
    return path, read_rows(path)


def borders(data: bytes | bytearray) -> list[int]:
    return [word(bytearray(data), 4 + 4 * row) for row in range(ROWS + 1)]


def flip_bits(data: bytearray, chance: random.Random) -> set[int]:
    """Flips a bit here and there; returns the positions touched."""
    places = {chance.randrange(len(data)) for _ in range(chance.choice([1, 1, 2, 5]))}
    for place in places:
        data[place] ^= 1 << chance.randrange(8)
    return places


def set_extremes(data: bytearray, chance: random.Random) -> set[int]:
    places: set[int] = set()
    for _ in range(chance.choice([1, 2, 3])):
        place = chance.randrange(len(data) - 4)
        set_word(data, place, chance.choice(EXTREMES))
        places |= set(range(place, place + 4))
    return places


def shift_offset(data: bytearray, chance: random.Random) -> set[int]:
    place = 4 + 4 * chance.randrange(ROWS + 1)
    set_word(data, place, max(0, word(data, place) + chance.choice([-70, -4, -1, 1, 4, 70])))
    return set(range(place, place + 4))


def copy_stretch(data: bytearray, chance: random.Random) -> set[int]:
    length = chance.randrange(1, 200)
    source, target = chance.randrange(len(data) - length), chance.randrange(len(data) - length)
    data[target : target + length] = data[source : source + length]
    return set(range(target, target + length))


def cut(data: bytearray, chance: random.Random) -> set[int]:
    """Cuts the end off: everything behind it counts as touched."""
    length, end = chance.randrange(len(data)), len(data)
    del data[length:]
    return set(range(length, end))


def swap_offsets(data: bytearray, chance: random.Random) -> set[int]:
    first, second = (4 + 4 * chance.randrange(ROWS + 1) for _ in range(2))
    one, other = word(data, first), word(data, second)
    set_word(data, first, other)
    set_word(data, second, one)
    return {*range(first, first + 4), *range(second, second + 4)} if one != other else set()


def splice(data: bytearray, chance: random.Random) -> set[int]:
    """Goes on as another place of the same file does: everything behind it counts as touched."""
    begin, source, end = chance.randrange(len(data)), chance.randrange(len(data)), len(data)
    data[begin:] = bytes(data[source:])
    return set(range(begin, end))


MUTATIONS: list[Callable[[bytearray, random.Random], set[int]]] = [
    flip_bits,
    set_extremes,
    shift_offset,
    copy_stretch,
    cut,
    swap_offsets,
    splice,
]


def touched_rows(places: set[int], limits: list[int]) -> set[int]:
    """Rows whose bytes or offsets lie at one of the places."""
    rows = {row for row in range(ROWS) if any(place in places for place in range(limits[row], limits[row + 1]))}
    for number in range(ROWS + 1):
        if places & set(range(4 + 4 * number, 8 + 4 * number)):
            rows |= {number - 1, number}
    return rows & set(range(ROWS))


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(40, 400), marks=pytest.mark.slow)], ids=str)
def test_damage_stays_where_it_is(
    original: tuple[Path, list[dict[str, Any]]], tmp_path: Path, mutate: Any, seeds: range
) -> None:
    _, sound = original
    copy = write(tmp_path / "copy", COLUMNS, [sample(row) for row in range(ROWS)])
    pristine = (copy / SHARD).read_bytes()
    limits = borders(pristine)
    for seed in seeds:
        data = bytearray(pristine)
        places = mutate(data, random.Random(seed))
        (copy / SHARD).write_bytes(data)
        rows = read_rows(copy, max_rows=random.Random(seed).choice([2, 5, 100]))
        assert len(rows) == ROWS
        if len(data) >= limits[0] and not places & {0, 1, 2, 3}:
            spared = set(range(ROWS)) - touched_rows(places, limits)
            read = [{**row, "notice": None} for row in rows if row["row_id"] in spared]
            assert read == [sound[row] for row in sorted(spared)], seed


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_damage_costs_the_same_below_a_url(bucket: tuple[Path, str], storage: StorageOptions, mutate: Any) -> None:
    """Every row that comes by ranges is the one that is read from the file itself, and so is every error."""
    path = Path(tempfile.mkdtemp(dir=bucket[0]))
    write(path, COLUMNS, [sample(row) for row in range(ROWS)])
    pristine = (path / SHARD).read_bytes()
    for seed in range(15):
        chance, data = random.Random(seed), bytearray(pristine)
        mutate(data, chance)
        (path / SHARD).write_bytes(data)
        wanted = BitMap64(chance.sample(range(ROWS), chance.randrange(1, ROWS + 1)))
        below_url: Any = f"s3://bucket/{path.name}"
        assert read_rows(below_url, wanted, 5, storage=storage) == read_rows(path, wanted, 5), seed


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_digests_see_every_change(tmp_path: Path, mutate: Any) -> None:
    copy = write(tmp_path / "copy", COLUMNS, [sample(row) for row in range(ROWS)], hashes=["xxh64"])
    pristine = (copy / SHARD).read_bytes()
    for seed in range(40):
        data = bytearray(pristine)
        mutate(data, random.Random(seed))
        (copy / SHARD).write_bytes(data)
        hit = {} if data == pristine else dict.fromkeys(range(ROWS), "read.corrupt")
        assert errors(read_rows(copy)) == hit


def test_a_damaged_row_count_never_loses_rows(original: tuple[Path, list[dict[str, Any]]], tmp_path: Path) -> None:
    _, sound = original
    copy = write(tmp_path / "copy", COLUMNS, [sample(row) for row in range(ROWS)])
    chance = random.Random(1)
    for _ in range(100):
        edit_file(copy / SHARD, lambda data: set_word(data, 0, chance.choice([*EXTREMES, chance.randrange(40)])))
        assert [{**row, "notice": None} for row in read_rows(copy)] == sound


@pytest.mark.parametrize("compression", ["zstd", "gz", "br:1", "bz2", "snappy"])
def test_damaged_streams(compression: str, tmp_path: Path) -> None:
    """A stream that cannot be decompressed costs its shard; one that can be is checked like any other."""
    rows = [{"a": "text" * row, "c": row} for row in range(ROWS)]
    copy = write(tmp_path / "copy", {"a": "str", "c": "int"}, rows, compression=compression)
    stored = next(copy.glob("shard.*"))
    pristine = stored.read_bytes()
    for seed in range(80):
        data = bytearray(pristine)
        chance = random.Random(seed)
        mutate = chance.choice([flip_bits, cut, copy_stretch if len(data) > 220 else flip_bits])
        mutate(data, chance)
        stored.write_bytes(data)
        read = read_rows(copy)
        assert len(read) == ROWS
        assert set(errors(read).values()) <= {"read.corrupt"}


def test_verify_survives_every_damage(original: tuple[Path, list[dict[str, Any]]], tmp_path: Path) -> None:
    path, _ = original
    copy = write(tmp_path / "copy", COLUMNS, [sample(row) for row in range(ROWS)], hashes=["xxh64"])
    pristine = (copy / SHARD).read_bytes()
    for seed in range(40):
        data = bytearray(pristine)
        MUTATIONS[seed % len(MUTATIONS)](data, random.Random(seed))
        (copy / SHARD).write_bytes(data)
        assert bool(list(verify(copy))) == (data != pristine)
    assert list(verify(path)) == []


def test_random_bytes_are_no_shard(tmp_path: Path) -> None:
    copy = write(tmp_path / "copy", COLUMNS, [sample(row) for row in range(ROWS)])
    edit_index(copy, lambda index: index["shards"][0]["raw_data"].update(bytes=0))
    chance = random.Random(3)
    for _ in range(100):
        (copy / SHARD).write_bytes(chance.randbytes(chance.randrange(400)))
        assert errors(read_rows(copy)) == dict.fromkeys(range(ROWS), "read.corrupt")
