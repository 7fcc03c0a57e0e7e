"""Files that are compressed as a whole: what damage costs, and that they are unpacked once."""

from __future__ import annotations

import pickle
import random
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap64

import proctor.sources.streams as streams
from proctor.rows import UserError
from proctor.sources.files import DataFile, LocalFolder
from proctor.sources.jsonl import JsonlSource
from tests.sources.support import column, errors, read_rows, write_jsonl

CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


def packed(folder: Path, ending: str, rows: list[dict[str, Any]]) -> Path:
    plain = write_jsonl(folder / "a.jsonl", rows)
    with pa.output_stream(f"{plain}{ending}", compression=CODECS[ending]) as out:
        out.write(plain.read_bytes())
    plain.unlink()
    return folder / f"a.jsonl{ending}"


def numbered(count: int) -> list[dict[str, Any]]:
    texts = random.Random(0)
    return [{"n": n, "text": texts.randbytes(60).hex()} for n in range(count)]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[DataFile]:
    """The compressed files that are opened, in order."""
    found: list[DataFile] = []
    plain = streams._Inflated.__init__

    def counted(self: Any, file: DataFile, *rest: Any) -> None:
        found.append(file)
        plain(self, file, *rest)

    monkeypatch.setattr(streams._Inflated, "__init__", counted)
    return found


@pytest.mark.parametrize("ending", CODECS)
def test_groups_in_order_unpack_a_file_once(ending: str, tmp_path: Path, opened: list[DataFile]) -> None:
    source = JsonlSource(packed(tmp_path, ending, numbered(3000)))
    opened.clear()
    assert column(read_rows(source, max_rows=100), "n") == list(range(3000))
    assert len(opened) == 1
    again = pickle.loads(pickle.dumps(source))
    assert column(read_rows(again, BitMap64([2998, 2999]), max_rows=100), "n") == [2998, 2999]
    assert len(opened) == 2


def test_readers_in_turn_and_side_by_side_do_not_disturb_one_another(tmp_path: Path) -> None:
    source = JsonlSource(packed(tmp_path, ".gz", numbered(3000)))
    found: dict[int, list[Any]] = {}

    def read(first: int) -> None:
        found[first] = column(read_rows(source, BitMap64(range(first, 3000, 3)), max_rows=40), "n")

    threads = [threading.Thread(target=read, args=(first,)) for first in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {first: list(range(first, 3000, 3)) for first in range(3)}


def test_members_and_frames_may_follow_one_another(tmp_path: Path) -> None:
    for ending in CODECS:
        path = packed(tmp_path, ending, numbered(10))
        path.write_bytes(path.read_bytes() * 3)
        assert column(read_rows(JsonlSource(path)), "n") == list(range(10)) * 3


@pytest.mark.parametrize(
    ("damage", "ending"),
    [
        pytest.param("cut", ".bz2", marks=pytest.mark.slow),
        *((what, ending) for what in ("cut", "short", "followed") for ending in (".gz", ".zst")),
    ],
)
def test_damage_is_a_row_and_makes_the_run_incomplete(damage: str, ending: str, tmp_path: Path) -> None:
    count = 20_000 if ending == ".bz2" else 8000  # of bz2, a whole block of 900 kB is lost
    path = packed(tmp_path, ending, numbered(count))
    content = bytearray(path.read_bytes())
    if damage == "cut":
        del content[len(content) * 2 // 3 :]
    elif damage == "short":
        del content[-2:]
    else:
        content += b"<html>403 Forbidden</html>" * 3
    path.write_bytes(content)
    source = JsonlSource(path)
    rows = read_rows(source, max_rows=3000)
    left = len(rows) - 1
    assert left <= count
    assert left > 4000
    assert errors(rows)[left] == "read.corrupt"
    sound = [row for row in rows if row["error_kind"] is None]
    assert all(row["n"] == row["row_id"] for row in sound)
    assert len(sound) == left
    notices = {row["notice"] for row in rows}
    (notice,) = notices
    assert notice.startswith(f"a.jsonl{ending} is damaged behind line {left}, and what follows cannot be counted: ")
    assert rows[left]["error_message"] == notice


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_flipped_bytes_lose_no_row_and_are_noticed_where_there_are_checksums(ending: str, tmp_path: Path) -> None:
    path = packed(tmp_path, ending, numbered(8000))
    content = bytearray(path.read_bytes())
    for at in range(len(content) * 2 // 3, len(content) * 2 // 3 + 40):
        content[at] ^= 0xFF
    path.write_bytes(content)
    source = JsonlSource(path)
    rows = read_rows(source, max_rows=3000)
    assert [row["row_id"] for row in rows] == list(source.expected())
    assert column(rows, "n")[:2500] == list(range(2500))
    if ending != ".zst":
        assert all("is damaged behind line" in row["notice"] for row in rows)


@pytest.mark.parametrize("content", [b"<html>403 Forbidden</html>", b"\x1f\x8b\x08\x00"])
def test_what_is_not_compressed_at_all_is_the_users_mistake(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"a\.jsonl\.gz is damaged behind line 0, and what follows cannot be counted"):
        JsonlSource(path)


def test_a_file_that_is_replaced_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    path = packed(tmp_path, ".gz", numbered(100))
    assert column(read_rows(JsonlSource(path)), "n") == list(range(100))
    path.unlink()
    packed(tmp_path, ".gz", numbered(100)[::-1])
    assert column(read_rows(JsonlSource(path), BitMap64([99])), "n") == [0]


def test_few_streams_are_kept_open(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / str(number)).mkdir()
        path = packed(tmp_path / str(number), ".gz", numbered(50))
        read_rows(JsonlSource(path), BitMap64([3]))
        assert len(streams._kept) <= 2
    file = DataFile(LocalFolder(path.parent), path.name)
    with streams.reading(file, file.version(), 10) as stream:
        assert stream.tell() == 10
        assert streams.advance(stream, 100)
        assert stream.tell() == 100
        assert not streams.advance(stream, 1 << 30)
