"""Damaged shards: what is hit becomes an error, what is not hit is read, and nothing goes missing without a word."""

from __future__ import annotations

import io
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.sources.mds.support import (
    FACTS,
    edit_file,
    edit_index,
    errors,
    messages,
    read_rows,
    set_word,
    word,
    write,
)

COLUMNS = {"id": "int", "text": "str", "views": "list[jpeg]"}
SHARD = "shard.00000.mds"
CORRUPT = "read.corrupt"


def sample(row: int) -> dict[str, Any]:
    return {"id": row, "text": f"row {row}, longer than a view" * (row % 2), "views": [b"jpeg" * 9, b"jp"][: row % 3]}


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Seven sound rows in one shard."""
    return write(tmp_path / "data", COLUMNS, [sample(row) for row in range(7)])


def assert_sound(rows: list[dict[str, Any]], ids: set[int]) -> None:
    """The rows with `ids` came out as they were written."""
    for row in rows:
        if row["row_id"] in ids:
            assert {name: value for name, value in row.items() if name not in FACTS} == sample(row["row_id"])


def offset(data: bytearray, row: int) -> int:
    return word(data, 4 + 4 * row)


def set_offset(data: bytearray, row: int, value: int) -> None:
    set_word(data, 4 + 4 * row, value)


def check(dataset: Path, hit: set[int]) -> list[dict[str, Any]]:
    """Exactly the rows of `hit` are corrupt, the others are as they were written."""
    rows = read_rows(dataset)
    assert errors(rows) == dict.fromkeys(sorted(hit), CORRUPT)
    assert_sound(rows, set(range(7)) - hit)
    return rows


def test_a_truncated_file_costs_the_rows_that_are_cut(dataset: Path) -> None:
    edit_file(dataset / SHARD, lambda data: data[:-1])
    check(dataset, {6})
    edit_file(dataset / SHARD, lambda data: data[: offset(data, 4) + 3])
    check(dataset, {4, 5, 6})


@pytest.mark.parametrize("length", [0, 1, 4, 7, 8, 20, 35])
def test_a_file_cut_inside_its_head_costs_all_rows(dataset: Path, length: int) -> None:
    edit_file(dataset / SHARD, lambda data: data[:length])
    assert SHARD in messages(check(dataset, set(range(7))))


def test_fewer_rows_than_the_index_says(dataset: Path) -> None:
    edit_index(dataset, lambda index: index["shards"][0].update(samples=9))
    rows = read_rows(dataset)
    assert errors(rows) == {7: CORRUPT, 8: CORRUPT}
    assert "holds only 7 rows" in messages(rows)
    assert_sound(rows, set(range(7)))


def test_more_rows_than_the_index_says_leave_a_notice(dataset: Path) -> None:
    edit_index(dataset, lambda index: index["shards"][0].update(samples=3))
    rows = read_rows(dataset)
    assert errors(rows) == {}
    assert {row["notice"] for row in rows} == {
        f"{SHARD}: the shard holds 7 rows, its index says 3: the others are not read"
    }
    assert_sound(rows, {0, 1, 2})


def test_sound_rows_have_no_notice(dataset: Path) -> None:
    assert {row["notice"] for row in check(dataset, set())} == {None}


def test_bytes_behind_the_last_row_leave_a_notice(dataset: Path) -> None:
    edit_file(dataset / SHARD, lambda data: data + b"junk")
    rows = check(dataset, set())
    assert {row["notice"] for row in rows} == {f"{SHARD}: 4 bytes behind the shard's last row belong to no row"}


@pytest.mark.parametrize("count", [0, 1, 6, 8, 1 << 16, (1 << 32) - 1])
def test_a_damaged_row_count_leaves_a_notice(dataset: Path, count: int) -> None:
    edit_file(dataset / SHARD, lambda data: set_word(data, 0, count))
    rows = check(dataset, set())
    assert all("the shard's head says" in row["notice"] for row in rows)


@pytest.mark.parametrize("value", [0, 3, 40, 200, 1 << 20, (1 << 32) - 1])
@pytest.mark.parametrize("number", range(8))
def test_one_damaged_offset_costs_the_rows_on_both_sides(dataset: Path, number: int, value: int) -> None:
    edit_file(dataset / SHARD, lambda data: set_offset(data, number, value))
    check(dataset, {number - 1, number} & set(range(7)))


def test_swapped_offsets_cost_the_three_rows_that_they_bound(dataset: Path) -> None:
    def swap(data: bytearray) -> None:
        third, fourth = offset(data, 3), offset(data, 4)
        set_offset(data, 3, fourth)
        set_offset(data, 4, third)

    edit_file(dataset / SHARD, swap)
    check(dataset, {2, 3, 4})


def test_a_row_that_points_into_others_is_not_read_twice(dataset: Path) -> None:
    """Offsets 1 and 2 copied from row 5: row 1 would look sound, with the bytes of row 5."""

    def copy(data: bytearray) -> None:
        set_offset(data, 1, offset(data, 5))
        set_offset(data, 2, offset(data, 6))

    edit_file(dataset / SHARD, copy)
    check(dataset, {0, 1, 2})


def test_offsets_that_wrap_beyond_four_gib(tmp_path: Path) -> None:
    """A shard of more than 4 GiB has offsets that start again at 0 (a known fault of writers without a size limit)."""
    path = write(tmp_path, {"data": "bytes"}, [{"data": bytes([row]) * 100} for row in range(7)])

    def wrap(data: bytearray) -> None:
        border = offset(data, 4)
        for row in (4, 5, 6, 7):
            set_offset(data, row, offset(data, row) - border)

    edit_file(path / SHARD, wrap)
    rows = read_rows(path)
    assert errors(rows) == dict.fromkeys([3, 4, 5, 6], CORRUPT)
    assert [row["data"] for row in rows[:3]] == [bytes([row]) * 100 for row in range(3)]


@pytest.mark.parametrize("change", [1, 1 << 8, 1 << 31])
def test_a_damaged_cell_size_costs_its_row(dataset: Path, change: int) -> None:
    edit_file(dataset / SHARD, lambda data: set_word(data, offset(data, 3), word(data, offset(data, 3)) ^ change))
    assert "its cells take" in messages(check(dataset, {3}))


def test_bad_text_costs_its_row_and_not_its_column(dataset: Path) -> None:
    edit_file(dataset / SHARD, lambda data: data.replace(b"row 3,", b"row \xff,"))
    assert "column 'text': is not UTF-8 text" in messages(check(dataset, {3}))


@pytest.mark.parametrize(
    ("encoding", "cell", "message"),
    [
        ("list[jpeg]", b"", "ends inside its list of image sizes"),
        ("list[jpeg]", struct.pack("<3I", 0, 2, 5), "ends inside its list of image sizes"),
        ("list[png]", struct.pack("<3I", 0, 1, 9) + b"short", "do not fill the cell"),
        ("list[png]", struct.pack("<3I", 0, 1, 2) + b"long", "do not fill the cell"),
        ("list[jpeg]", struct.pack("<2I", 0, (1 << 32) - 1), "ends inside its list of image sizes"),
        ("jpegarray", struct.pack("<2I", 1, (1 << 32) - 1) + b"x", "do not fill the cell"),
        ("jpeg_array", b"\1\0", "ends inside its list of image sizes"),
        ("str_int", b"1.5", "is not a number"),
        ("str_int", b"9223372036854775808", "is not a number that str_int can hold"),
        ("str_float", b"one", "is not a number"),
        ("str_decimal", b"1,5", "is not a number"),
        ("str_int", b"\xff", "is not UTF-8 text"),
        ("ndarray", b"", "is empty"),
        ("ndarray", b"\7\4\1x", "byte 7 is no dtype"),
        ("ndarray", b"\x08", "ends inside its shape"),
        ("ndarray", b"\x08\x0b", "ends inside its shape"),
        ("ndarray", b"\x10\x04\x02abc", "takes 4 bytes of values, there are 3"),
        ("ndarray:uint16", b"", "ends inside its shape"),
        ("ndarray:uint16", b"\x08\2\2" + bytes(7), "takes 8 bytes of values, there are 7"),
        ("ndarray:uint8", b"\xff" + b"\xff" * 504, "bytes of values, there are 0"),
        ("pil", b"\1\0\0\0", "ends inside the header"),
        ("pil", struct.pack("<3I", 1 << 31, 1 << 31, 1) + b"L", "a raw L image of"),
        ("pil", struct.pack("<3I", 1, 1, 3) + b"HSVabc", "cannot be kept as an image file without loss"),
        ("pil", struct.pack("<3I", 1, 1, 4) + b"RGBXabcd", "cannot be kept as an image file without loss"),
        ("pil", struct.pack("<3I", 1, 1, 1) + b"Px", "cannot be kept as an image file without loss"),
        ("pil", struct.pack("<3I", 0, 4, 1) + b"L", "a raw L image of 0 x 4"),
        ("list[pil]", struct.pack("<3I", 0, 1, 2) + b"ab", "ends inside the header"),
    ],
)
def test_cells_that_cannot_be_decoded(tmp_path: Path, encoding: str, cell: bytes, message: str) -> None:
    good = good_cell(encoding)
    path = write(tmp_path, {"cell": encoding}, [{"cell": good}, {"cell": cell}, {"cell": good}])
    rows = read_rows(path)
    assert errors(rows) == {1: CORRUPT}
    assert message in messages(rows)
    assert rows[0]["cell"] is not None
    assert rows[0]["cell"] == rows[2]["cell"]


def good_cell(encoding: str) -> bytes:
    raw_image = struct.pack("<3I", 2, 1, 1) + b"Lab"
    cells = {
        "pil": raw_image,
        "list[pil]": struct.pack("<3I", 0, 1, len(raw_image)) + raw_image,
        "ndarray": b"\x08\4\2ab",
        "ndarray:uint16": b"\4\1ab",
        "ndarray:uint8": b"\4\2ab",
        "jpegarray": struct.pack("<2I", 1, 2) + b"ab",
        "jpeg_array": struct.pack("<2I", 1, 2) + b"ab",
    }
    return cells.get(encoding, struct.pack("<3I", 0, 1, 2) + b"ab" if encoding.startswith("list") else b"12")


PIXEL_BYTES = {"L": 1, "LA": 2, "I;16": 2, "RGB": 3, "RGBA": 4, "CMYK": 4, "I": 4, "F": 4, "LAB": 3}


@pytest.mark.parametrize("mode", PIXEL_BYTES)
def test_raw_images_are_kept_without_loss(tmp_path: Path, mode: str) -> None:
    pixels = random.Random(1).randbytes(3 * 2 * PIXEL_BYTES[mode])
    image = Image.frombytes(mode, (3, 2), pixels)
    rows = read_rows(write(tmp_path, {"image": "pil"}, [{"image": image}]))
    assert errors(rows) == {}
    kept = Image.open(io.BytesIO(rows[0]["image"]))
    assert (kept.mode, kept.size, kept.tobytes()) == (mode, (3, 2), pixels)
    assert kept.format == ("TIFF" if mode in {"CMYK", "I", "F", "LAB"} else "PNG")


def test_fixed_cells_whose_index_calls_them_variable(dataset: Path) -> None:
    """An index may say null for the size of an int: each cell then has a size word of its own, and it must be 8."""
    cells = [struct.pack("<Iq", 8, 5), struct.pack("<I4s", 4, b"four")]
    starts = [16, 16 + len(cells[0]), 16 + len(cells[0]) + len(cells[1])]
    (dataset / SHARD).write_bytes(struct.pack("<4I", 2, *starts) + b"".join(cells))
    settings = {"samples": 2, "column_names": ["n"], "column_encodings": ["int"], "column_sizes": [None]}
    edit_index(dataset, lambda index: index["shards"][0].update(settings))
    rows = read_rows(dataset)
    assert (rows[0]["n"], errors(rows)) == (5, {1: CORRUPT})
    assert "int takes 8 bytes, this has 4" in messages(rows)
