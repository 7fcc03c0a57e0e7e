"""What is kept about a file: right, bounded, and of no consequence when it is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest
import xxhash

from proctor.rows import UserError
from proctor.trace.reading import cache


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def settled(path: Path, data: bytes) -> Path:
    """A file that was last changed long ago."""
    path.write_bytes(data)
    os.utime(path, ns=(1_700_000_000_000_000_000,) * 2)
    return path


def forget_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """ctime cannot be set: let a file that was just made count as settled."""
    monkeypatch.setattr(cache, "_RACY_NS", -(10**12))


def test_the_key_is_the_hash_of_the_content(tmp_path: Path) -> None:
    file = tmp_path / "a.sqlite"
    file.write_bytes(b"x" * 10_000_000)
    assert cache.content_key(file) == xxhash.xxh3_128_hexdigest(b"x" * 10_000_000)


def test_a_known_file_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_now(monkeypatch)
    file = settled(tmp_path / "a", b"one")
    key = cache.content_key(file)
    monkeypatch.setattr(xxhash, "xxh3_128", lambda: pytest.fail("the file was read again"))
    assert cache.content_key(file) == key


def test_same_size_and_mtime_but_other_content_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_now(monkeypatch)
    file = settled(tmp_path / "a", b"one")
    cache.content_key(file)
    other = settled(tmp_path / "b", b"two")
    other.replace(file)  # another inode
    assert cache.content_key(file) == xxhash.xxh3_128_hexdigest(b"two")


def test_a_file_changed_just_now_gets_no_shortcut(tmp_path: Path, home: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"one")
    cache.content_key(file)
    assert not list(home.rglob("stats/*"))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"gone\.sqlite: cannot be read"):
        cache.content_key(tmp_path / "gone.sqlite")


def test_an_entry_is_made_once() -> None:
    made: list[int] = []

    def make() -> dict[str, int]:
        made.append(1)
        return {"rows": 7}

    assert [cache.cached("k", "survey-1", make) for _ in range(3)] == [{"rows": 7}] * 3
    assert len(made) == 1
    cache.cached("k", "survey-2", make)
    cache.cached("l", "survey-1", make)
    assert len(made) == 3


def test_an_entry_comes_back_as_what_it_was() -> None:
    class Found(msgspec.Struct, frozen=True):
        rows: int
        pairs: list[tuple[int, int | None]]

    found = Found(3, [(1 << 48, None)])
    for _ in range(2):
        assert cache.cached("k", "found", lambda: found, type=Found) == found


@pytest.mark.parametrize("damage", [b"", b"garbage", b"0123456789abcdef\n{}", None])
def test_a_damaged_entry_is_made_again(home: Path, damage: bytes | None) -> None:
    cache.cached("k", "kind", lambda: {"a": 1})
    (entry,) = home.rglob("entries/*")
    entry.write_bytes(entry.read_bytes()[:-1] if damage is None else damage)
    assert cache.cached("k", "kind", lambda: {"a": 2}) == {"a": 2}
    assert cache.cached("k", "kind", lambda: {"a": 3}) == {"a": 2}


def test_an_entry_of_another_type_is_made_again() -> None:
    cache.cached("k", "kind", lambda: ["old"])
    assert cache.cached("k", "kind", lambda: {"a": 2}, type=dict[str, int]) == {"a": 2}


@pytest.mark.parametrize("place", ["a-file", "a-file/below"])
def test_a_cache_that_cannot_be_written_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "a-file").write_bytes(b"")
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path / place))
    assert cache.cached("k", "kind", lambda: 5) == 5
    assert cache.content_key(tmp_path / "a-file") == xxhash.xxh3_128_hexdigest(b"")


def test_names_cannot_leave_the_directory() -> None:
    for key, kind in (("../x", "kind"), ("k", "../../x"), ("k", "")):
        with pytest.raises(ValueError, match="not a name"):
            cache.cached(key, kind, lambda: 1)


def test_the_total_is_bounded_and_the_unused_go_first(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_TOTAL_BYTES", 3_000)
    for number in range(6):
        cache.cached(f"k{number}", "kind", lambda: "x" * 900)
        os.utime(home / "traces" / "entries" / f"k{number}.kind.json", (number, number))
    left = sorted(path.name for path in home.rglob("entries/*"))
    assert left == ["k3.kind.json", "k4.kind.json", "k5.kind.json"]


def test_what_a_dead_process_left_is_removed(home: Path) -> None:
    cache.cached("k", "kind", lambda: 1)
    lost, fresh = (home / "traces" / "entries" / name for name in (".part-lost", ".part-fresh"))
    lost.write_bytes(b"x")
    fresh.write_bytes(b"x")
    os.utime(lost, (1, 1))
    cache.cached("l", "kind", lambda: 1)
    assert fresh.exists()
    assert not lost.exists()


def test_many_threads_agree() -> None:
    answers: list[object] = []
    threads = [
        threading.Thread(target=lambda: answers.append(cache.cached("k", "kind", lambda: list(range(20_000)))))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [list(range(20_000))] * 8


def test_without_a_home_there_is_no_cache_and_no_error() -> None:
    code = (
        "import pathlib\n"
        "def no_home(*_): raise RuntimeError('Could not determine home directory.')\n"
        "pathlib.Path.home = no_home\n"
        "from proctor.trace.reading import cache\n"
        "print(cache.cached('k', 'kind', lambda: 5))\n"
    )
    env = {name: value for name, value in os.environ.items() if name not in ("PROCTOR_CACHE", "XDG_CACHE_HOME", "HOME")}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == 5


def test_paths_that_are_not_absolute_are_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PROCTOR_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    for home, chosen, expected in (
        ("relative", "", Path(os.devnull) / ".cache/proctor/traces"),
        ("relative", str(tmp_path), tmp_path / "proctor/traces"),
        (str(tmp_path), "relative", tmp_path / ".cache/proctor/traces"),
        (str(tmp_path), "", tmp_path / ".cache/proctor/traces"),
    ):
        monkeypatch.setenv("HOME", home)
        monkeypatch.setenv("XDG_CACHE_HOME", chosen)
        assert cache.cache_directory() == expected
