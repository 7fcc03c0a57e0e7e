"""Files of object storage that read like files on disk."""

from __future__ import annotations

import io
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.rows import ErrorKind
from proctor.sources.faults import FileError
from proctor.sources.files import DataFile, RemoteFolder, Version
from proctor.sources.ranged import FIRST_BYTES, MOST_BYTES, RangedFile
from proctor.storage.remote import Remote
from tests.storage.bucket import Bucket, served

CONTENT = random.Random(0).randbytes(3_000_000)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    with served(tmp_path_factory.mktemp("server")) as bucket:
        (bucket.root / "a.bin").write_bytes(CONTENT)
        yield bucket


class Counted(RemoteFolder):
    """A folder that notes what is fetched."""

    def fetch(self, name: str, start: int, end: int, tag: str) -> bytes:
        asked.append((start, end))
        return super().fetch(name, start, end, tag)


asked: list[tuple[int, int]] = []


@pytest.fixture
def folder(bucket: Bucket) -> Counted:
    asked.clear()
    return Counted(Remote(f"s3://{bucket.root.name}", bucket.options))


def opened(folder: Counted, windows: int = 1) -> RangedFile:
    return RangedFile(folder, "a.bin", folder.version("a.bin"), windows=windows)


def test_what_is_read_on_grows_and_a_jump_begins_small(folder: Counted) -> None:
    file = opened(folder)
    assert b"".join(iter(lambda: file.read(10_000), b"")) == CONTENT
    sizes = [end - start for start, end in asked]
    assert sizes[:4] == [FIRST_BYTES, 2 * FIRST_BYTES, 4 * FIRST_BYTES, 8 * FIRST_BYTES]
    assert [start for start, _ in asked][1:] == [end for _, end in asked][:-1]
    asked.clear()
    file.seek(1_000_000)
    assert file.read(4) == CONTENT[1_000_000:1_000_004]
    assert asked == [(1_000_000, 1_000_000 + FIRST_BYTES)]


def test_places_that_are_read_in_turn_are_fetched_once(folder: Counted) -> None:
    file = opened(folder, windows=3)
    got = {0: b"", 1_000_000: b"", 2_000_000: b""}
    for _ in range(90):
        for start in got:
            file.seek(start + len(got[start]))
            got[start] += file.read(10_000)
    assert all(data == CONTENT[start : start + 900_000] for start, data in got.items())
    assert sum(end - start for start, end in asked) < len(CONTENT) + 3 * MOST_BYTES // 3
    assert len(asked) < 20


def test_it_is_a_file(folder: Counted) -> None:
    file = io.BufferedReader(opened(folder), 1000)
    reference = io.BytesIO(CONTENT)
    choose = random.Random(1)
    for _ in range(60):
        place, whence = choose.choice([(choose.randrange(3_100_000), 0), (choose.randrange(500), 1), (-500, 2)])
        assert file.seek(place, whence) == reference.seek(place, whence)
        size = choose.choice([1, 100, 5000, 200_000])
        assert file.read(size) == reference.read(size)
        assert file.tell() == reference.tell()
    file.seek(-3, os.SEEK_END)
    assert file.read() == CONTENT[-3:]
    assert file.read(1) == b""


def test_a_file_is_refused_when_another_one_takes_its_place(bucket: Bucket, folder: Counted, tmp_path: Path) -> None:
    (bucket.root / "b.bin").write_bytes(b"first")
    file = DataFile(folder, "b.bin")
    version = file.version()
    assert file.same(version) == version
    (bucket.root / "b.bin").write_bytes(b"other")
    with file.open(version) as stream, pytest.raises(FileError, match="was replaced while it was read") as caught:
        stream.read()
    assert caught.value.kind is ErrorKind.READ_FAILED
    assert caught.value.errno is None
    with pytest.raises(FileError, match="not there"):
        folder.open("gone.bin", Version(10, '"tag"')).read(1)
