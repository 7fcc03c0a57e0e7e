"""The cache of a machine: bounded, shared, private, and never the reason why data is wrong or missing."""

from __future__ import annotations

import errno
import logging
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from proctor.storage import cache as module
from proctor.storage.cache import DiskCache
from proctor.storage.scratch import Bytes, Sink

TAIL = 16
SIZE = 1000


class Maker:
    """Makes content and counts how often it had to."""

    def __init__(self, content: bytes, during: Callable[[], object] = lambda: None, steps: int = 4) -> None:
        self.content, self.during, self.steps = content, during, steps
        self.made = 0

    def fill(self, sink: Sink) -> None:
        self.made += 1
        step = -(-len(self.content) // self.steps) or 1
        for start in range(0, len(self.content), step):
            sink.write(self.content[start : start + step])
            self.during()


def sound(data: Bytes) -> None:
    """Any content will do."""


def content(key: str) -> bytes:
    return key.encode() * (SIZE // len(key))


def get(cache: DiskCache, key: str, size: int | None = SIZE) -> tuple[bytes, int]:
    """What the cache gives for a key, and how often that had to be made."""
    maker = Maker(content(key))
    return cache.get(key, size, maker.fill, sound).tobytes(), maker.made


def kept(cache: DiskCache) -> dict[str, int]:
    """Sizes of the cache's files."""
    return {file.name: file.stat().st_size for file in cache.home.iterdir() if file.name != "lock"}


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    """Room for three files."""
    return DiskCache(3 * (SIZE + TAIL), tmp_path / "cache")


def test_what_was_made_once_is_there(cache: DiskCache) -> None:
    assert get(cache, "a") == (content("a"), 1)
    assert get(pickle.loads(pickle.dumps(cache)), "a") == (content("a"), 0)
    assert get(cache, "b") == (content("b"), 1)
    assert list(kept(cache).values()) == [SIZE + TAIL] * 2


def test_an_empty_file(cache: DiskCache) -> None:
    assert cache.get("empty", 0, Maker(b"").fill, sound).tobytes() == b""
    maker = Maker(b"")
    assert cache.get("empty", 0, maker.fill, sound).tobytes() == b""
    assert maker.made == 0


@pytest.mark.parametrize("size", [None, 0, 1, SIZE - 1, 2 * SIZE])
def test_the_size_may_be_a_wrong_guess(cache: DiskCache, size: int | None) -> None:
    assert get(cache, "a", size) == (content("a"), 1)
    assert get(cache, "a", size) == (content("a"), 0)
    assert list(kept(cache).values()) == [SIZE + TAIL]


def test_what_was_used_least_recently_goes(cache: DiskCache) -> None:
    for key in "abc":
        get(cache, key)
        time.sleep(0.01)
    assert get(cache, "a")[1] == 0
    assert get(cache, "d")[1] == 1
    assert [get(cache, key)[1] for key in "acd"] == [0, 0, 0]
    assert get(cache, "b")[1] == 1


def test_it_is_never_above_its_limit_not_even_while_it_fills(cache: DiskCache) -> None:
    totals: list[int] = []
    for number in range(8):
        maker = Maker(content(str(number)), lambda: totals.append(sum(kept(cache).values())))
        cache.get(str(number), [SIZE, None, 10][number % 3], maker.fill, sound)
    assert 0 < max(totals) <= cache.limit
    assert len(kept(cache)) >= 2


def test_what_is_larger_than_the_cache_is_not_kept(cache: DiskCache) -> None:
    large = Maker(bytes(cache.limit))
    for size in (len(large.content), None):
        assert cache.get("large", size, large.fill, sound).tobytes() == large.content
        assert kept(cache) == {} if cache.home.exists() else True
    assert large.made == 1 + 2  # without a size, it shows only while the cache is being filled


def test_many_who_want_what_is_too_large_do_not_wait_for_each_other(tmp_path: Path) -> None:
    cache, together = DiskCache(10, tmp_path), threading.Barrier(4, timeout=10)
    makers = [Maker(content("a"), together.wait, steps=1) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda maker: cache.get("a", None, maker.fill, sound).tobytes(), makers))
    assert found == [content("a")] * 4


def test_one_makes_it_and_the_others_wait(cache: DiskCache) -> None:
    maker = Maker(content("a"), lambda: time.sleep(0.05))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: cache.get("a", SIZE, maker.fill, sound).tobytes(), range(8)))
    assert found == [content("a")] * 8
    assert maker.made == 1


def test_many_files_for_many_readers_in_little_room(cache: DiskCache) -> None:
    def read(number: int) -> bool:
        key = str(number * 7 % 10)
        return get(cache, key, None if number % 4 else SIZE)[0] == content(key)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(150)))
    assert sum(kept(cache).values()) <= cache.limit
    assert not [name for name in kept(cache) if name.endswith(".part")]


def test_a_file_in_use_may_go(cache: DiskCache) -> None:
    maker = Maker(content("a"))
    data = cache.get("a", SIZE, maker.fill, sound)
    for key in "bcd":
        get(cache, key)
    assert get(cache, "a")[1] == 1
    assert data.tobytes() == content("a")


@pytest.mark.parametrize("where", [0, SIZE // 2, SIZE - 1, SIZE, SIZE + 8, SIZE + TAIL - 1])
def test_damage_on_the_disk_is_found(cache: DiskCache, where: int) -> None:
    get(cache, "a")
    file = cache.home / next(iter(kept(cache)))
    data = bytearray(file.read_bytes())
    data[where] ^= 4
    file.write_bytes(data)
    assert get(cache, "a") == (content("a"), 1)
    assert get(cache, "a") == (content("a"), 0)


@pytest.mark.parametrize("length", [0, 5, TAIL, SIZE, SIZE + TAIL - 1, SIZE + TAIL + 1])
def test_a_file_of_another_length_is_found(cache: DiskCache, length: int) -> None:
    get(cache, "a")
    os.truncate(cache.home / next(iter(kept(cache))), length)
    assert get(cache, "a") == (content("a"), 1)


class UnsoundError(Exception):
    pass


def test_what_is_not_sound_is_not_kept(cache: DiskCache) -> None:
    def check(data: Bytes) -> None:
        raise UnsoundError(len(data))

    with pytest.raises(UnsoundError, match=str(SIZE)):
        cache.get("a", SIZE, Maker(content("a")).fill, check)
    assert kept(cache) == {}
    assert get(cache, "a") == (content("a"), 1)


def test_those_who_wait_for_one_that_fails_go_on_at_once_and_together(cache: DiskCache) -> None:
    started, together = threading.Event(), threading.Barrier(3, timeout=10)

    def fail(sink: Sink) -> None:
        started.set()
        time.sleep(0.2)
        raise UnsoundError

    def fill(sink: Sink) -> None:
        together.wait()  # passed only if nobody waits for the other two
        sink.write(content("a"))

    with ThreadPoolExecutor(4) as pool:
        failing = pool.submit(cache.get, "a", SIZE, fail, sound)
        started.wait(10)
        others = [pool.submit(cache.get, "a", SIZE, fill, sound) for _ in range(3)]
        assert [other.result(10).tobytes() for other in others] == [content("a")] * 3
        with pytest.raises(UnsoundError):
            failing.result(10)
    assert get(cache, "a") == (content("a"), 1)


def filler(cache: DiskCache, key: str) -> subprocess.Popen[str]:
    """Another process that is in the middle of filling an entry."""
    command = [sys.executable, "-m", "tests.storage.filler", str(cache.base), str(cache.limit), key]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "filling\n"
    return process


def test_a_process_that_dies_while_it_fills_blocks_nobody(cache: DiskCache) -> None:
    process = filler(cache, "a")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(get, cache, "a")
        time.sleep(0.1)
        assert not waiting.done()
        process.kill()
        assert waiting.result(10) == (content("a"), 1)
    process.communicate()
    assert get(cache, "a") == (content("a"), 0)
    assert len(kept(cache)) == 1


def test_what_a_dead_process_left_does_not_take_room(cache: DiskCache) -> None:
    process = filler(cache, "a")
    assert [name[-5:] for name in kept(cache)] == [".part"]
    for key in "bcd":  # the room that is being filled is not there for others, nor taken from whoever fills it
        get(cache, key)
    assert len(kept(cache)) == 3
    process.kill()
    process.communicate()
    assert [get(cache, key)[1] for key in "bcd"] == [1, 0, 0]
    assert sorted(name[-5:] == ".part" for name in kept(cache)) == [False] * 3


def test_one_who_does_not_get_on_is_not_waited_for(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STUCK_SECONDS", 0.2)
    process = filler(cache, "a")
    assert get(cache, "a") == (content("a"), 1)
    process.kill()
    process.communicate()


def test_a_full_disk_costs_the_cache_and_not_the_data(cache: DiskCache, caplog: pytest.LogCaptureFixture) -> None:
    get(cache, "b")
    module._told.cache_clear()
    made: list[int] = []

    def fill(sink: Sink) -> None:
        sink.write(content("a")[:500])
        made.append(1)
        if len(made) == 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sink.write(content("a")[500:])

    with caplog.at_level(logging.WARNING):
        assert cache.get("a", SIZE, fill, sound).tobytes() == content("a")
    assert f"the cache in {cache.home} cannot be used: No space left on device" in caplog.text
    assert list(kept(cache).values()) == [SIZE + TAIL]
    assert get(cache, "b") == (content("b"), 0)


def test_a_part_of_the_disk_is_left_free(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    get(cache, "b")
    monkeypatch.setattr(module, "_FREE_SHARE", 1.0)
    assert get(cache, "a") == (content("a"), 1)
    assert get(cache, "a") == (content("a"), 1)
    assert get(cache, "b") == (content("b"), 0)


def test_a_deadline_of_the_caller_is_not_swallowed(cache: DiskCache) -> None:
    def fill(sink: Sink) -> None:
        raise TimeoutError("no end after 600 s")

    with pytest.raises(TimeoutError, match="600 s"):
        cache.get("a", SIZE, fill, sound)
    assert kept(cache) == {}


def test_it_is_private(cache: DiskCache) -> None:
    get(cache, "a")
    assert cache.home.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o077 for file in cache.home.glob("*[!k]")} == {0}
    cache.home.chmod(0o755)
    get(cache, "b")
    assert cache.home.stat().st_mode & 0o777 == 0o700


def test_a_directory_that_may_be_anybodys_is_not_used(cache: DiskCache, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    cache.home.parent.mkdir()
    cache.home.symlink_to(tmp_path / "elsewhere")
    assert get(cache, "a") == (content("a"), 1)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_without_a_directory_of_its_own_it_lies_with_the_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert get(DiskCache(10_000), "a")[1] == 1
    assert [file.name for file in tmp_path.iterdir()] == [f"proctor-cache-{os.geteuid()}"]
