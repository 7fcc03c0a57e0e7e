"""Shards that have to be whole here: fetched and unpacked once a machine, and never taken for what they are not."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from proctor.sources.mds import shard
from proctor.sources.mds.compression import deflate
from proctor.storage.cache import DiskCache
from proctor.storage.connect import StorageOptions
from tests.faults.proxy import Fault, FaultProxy
from tests.sources.mds.support import edit_file, edit_index, errors, messages, read_rows, write

COLUMNS = {"id": "int", "data": "bytes"}
SHARD = "shard.00000.mds"


def make(path: Path, shift: int = 0, **options: Any) -> Path:
    """Thirty rows in one shard."""
    rows = [{"id": row + shift, "data": bytes([row]) * 1000} for row in range(30)]
    return write(path, COLUMNS, rows, **options)


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache(100_000, tmp_path / "cache")


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Makes every temporary file an error."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))


def url(dataset: Path) -> str:
    return f"s3://bucket/{dataset.name}"


def read_anew(path: Path | str, **options: Any) -> list[dict[str, Any]]:
    """Reads as another process would, which has no shard open."""
    shard._whole.cache_clear()
    return read_rows(path, **options)  # type: ignore[arg-type]


def entries(cache: DiskCache) -> list[Path]:
    return [file for file in cache.home.iterdir() if file.name != "lock"]


@pytest.mark.usefixtures("nowhere")
def test_a_shard_with_digests_is_fetched_once(
    bucket: tuple[Path, str], proxy: FaultProxy, storage: StorageOptions, cache: DiskCache
) -> None:
    path = make(bucket[0] / "hashed", hashes=["sha1"])
    for _ in range(3):
        assert read_anew(url(path), storage=storage, cache=cache, max_rows=4) == read_rows(path)
    assert proxy.count(SHARD) == 1


@pytest.mark.parametrize("hashes", [None, ["xxh64"]])
def test_a_compressed_shard_is_fetched_and_unpacked_once(
    bucket: tuple[Path, str], proxy: FaultProxy, storage: StorageOptions, cache: DiskCache, hashes: list[str] | None
) -> None:
    path = make(Path(tempfile.mkdtemp(dir=bucket[0])), compression="zstd", hashes=hashes)
    expected = read_rows(path)
    for _ in range(3):
        assert read_anew(url(path), storage=storage, cache=cache) == expected
    assert proxy.count(f"{SHARD}.zstd") == 1


@pytest.mark.usefixtures("nowhere")
def test_a_local_compressed_shard_is_unpacked_once(
    tmp_path: Path, cache: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "data", compression="gz", hashes=["sha1"])
    unpacked: list[int] = []
    inflate = shard.inflate
    monkeypatch.setattr(shard, "inflate", lambda *given: (unpacked.append(1), inflate(*given)))
    for _ in range(3):
        assert len(read_anew(path, cache=cache)) == 30
    assert len(unpacked) == 1


def test_a_local_uncompressed_shard_is_not_copied(tmp_path: Path, cache: DiskCache) -> None:
    read_anew(make(tmp_path / "data", hashes=["sha1"]), cache=cache)
    assert not cache.home.exists()


@pytest.mark.slow
def test_another_process_finds_it(tmp_path: Path, cache: DiskCache) -> None:
    path = make(tmp_path / "data", compression="zstd")
    program = (
        "import sys; from pathlib import Path; from proctor.sources.mds import MDSSource, shard;"
        "from proctor.storage.cache import DiskCache;"
        "s = MDSSource(sys.argv[1], cache=DiskCache(100_000, Path(sys.argv[2])));"
        "print(sum(b['id'].to_pylist()[0] for g in s.groups(s.expected(), 10) for b in s.read(g)))"
    )
    command = [sys.executable, "-c", program, str(path), str(cache.base)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "30\n"
    (entry,) = entries(cache)
    before = entry.stat().st_ino
    assert errors(read_anew(path, cache=cache)) == {}
    assert [file.stat().st_ino for file in entries(cache)] == [before]


def test_an_object_that_was_replaced_is_another_one(
    bucket: tuple[Path, str], storage: StorageOptions, cache: DiskCache
) -> None:
    path = make(Path(tempfile.mkdtemp(dir=bucket[0])), compression="zstd")
    assert [row["id"] for row in read_rows(url(path), storage=storage, cache=cache)] == list(range(30))  # type: ignore[arg-type]
    for file in path.iterdir():
        file.unlink()
    make(path, shift=100, compression="zstd")
    assert [row["id"] for row in read_rows(url(path), storage=storage, cache=cache)] == list(range(100, 130))  # type: ignore[arg-type]
    assert len(entries(cache)) == 2


def test_what_was_not_checked_is_not_taken_for_checked(
    bucket: tuple[Path, str], storage: StorageOptions, cache: DiskCache
) -> None:
    path = make(Path(tempfile.mkdtemp(dir=bucket[0])), compression="zstd", hashes=["sha1"])
    edit_index(path, lambda index: index["shards"][0]["raw_data"]["hashes"].update(sha1="0" * 40))
    assert errors(read_anew(url(path), storage=storage, cache=cache, verify_hashes=False)) == {}
    assert set(errors(read_anew(url(path), storage=storage, cache=cache)).values()) == {"read.corrupt"}
    assert errors(read_anew(url(path), storage=storage, cache=cache, verify_hashes=False)) == {}


@pytest.mark.parametrize("hashes", [None, ["sha1"]])
@pytest.mark.parametrize("where", [0, 5000, -1])
def test_damage_in_the_cache_is_found(
    bucket: tuple[Path, str], proxy: FaultProxy, storage: StorageOptions, cache: DiskCache, hashes: Any, where: int
) -> None:
    path = make(Path(tempfile.mkdtemp(dir=bucket[0])), compression="zstd", hashes=hashes)
    expected = read_anew(url(path), storage=storage, cache=cache)
    (entry,) = entries(cache)
    edit_file(entry, lambda data: data.__setitem__(where, data[where] ^ 1))
    assert read_anew(url(path), storage=storage, cache=cache) == expected
    assert proxy.count(f"{SHARD}.zstd") == 2


def test_damage_in_the_store_is_not_kept(
    bucket: tuple[Path, str], proxy: FaultProxy, storage: StorageOptions, cache: DiskCache
) -> None:
    path = make(Path(tempfile.mkdtemp(dir=bucket[0])), hashes=["sha1"])
    proxy.faults = [Fault(SHARD, "flip", at=5000)]
    rows = read_anew(url(path), storage=storage, cache=cache)
    assert set(errors(rows).values()) == {"read.corrupt"}
    assert f"sha1 of {SHARD} is" in messages(rows)
    assert entries(cache) == []
    proxy.faults = []
    assert errors(read_anew(url(path), storage=storage, cache=cache)) == {}


def test_a_cache_smaller_than_a_shard(bucket: tuple[Path, str], storage: StorageOptions, tmp_path: Path) -> None:
    small = DiskCache(1000, tmp_path / "cache")
    for number, options in enumerate([{"hashes": ["sha1"]}, {"compression": "zstd"}]):
        path = make(bucket[0] / f"small-{number}", **options)
        expected = read_rows(path)
        assert read_anew(url(path), storage=storage, cache=small) == expected
        assert read_anew(url(path), storage=storage, cache=small, max_rows=7) == expected
    assert not small.home.exists()


def test_many_shards_in_little_room(bucket: tuple[Path, str], storage: StorageOptions, tmp_path: Path) -> None:
    path = make(bucket[0] / "many", size_limit=6000, compression="snappy")
    cache = DiskCache(15_000, tmp_path / "cache")
    expected = read_rows(path)
    for _ in range(2):
        assert read_anew(url(path), storage=storage, cache=cache, max_rows=2) == expected
    sizes = [file.stat().st_size for file in entries(cache)]
    assert len(sizes) == 2
    assert sum(sizes) <= 15_000


@pytest.mark.parametrize("compression", ["zstd", "gz", "br:1", "bz2", "snappy"])
def test_a_bomb_neither_fills_the_disk_nor_pushes_others_out(
    bucket: tuple[Path, str],
    storage: StorageOptions,
    cache: DiskCache,
    monkeypatch: pytest.MonkeyPatch,
    compression: str,
) -> None:
    good = make(Path(tempfile.mkdtemp(dir=bucket[0])), compression=compression)
    expected = read_anew(url(good), storage=storage, cache=cache)
    bomb = make(Path(tempfile.mkdtemp(dir=bucket[0])), compression=compression)
    edit_index(bomb, lambda index: index["shards"][0]["raw_data"].update(bytes=100))
    edit_index(bomb, lambda index: index["shards"][0].update(samples=3))
    (stored,) = bomb.glob(f"{SHARD}.*")
    stored.write_bytes(deflate(compression, bytes(50_000_000)))
    monkeypatch.setattr(shard, "_INFLATE_LIMIT", 60_000)
    rows = read_anew(url(bomb), storage=storage, cache=cache)
    assert errors(rows) == dict.fromkeys(range(3), "read.corrupt")
    assert "decompresses to more than 60,000 bytes" in messages(rows)
    assert len(entries(cache)) == 1
    assert read_anew(url(good), storage=storage, cache=cache) == expected
