"""Content ids that are noted: cheap as long as nothing changed, and never stale (vllm #32718)."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from proctor.rows import UserError
from proctor.transfer import sources
from proctor.transfer.checkpoint import SINGLE
from proctor.transfer.identities import Identities
from proctor.transfer.reading import identify, read_checkpoint
from proctor.transfer.sources import LocalSource, settled
from tests.storage.bucket import served


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "ck"
    path.mkdir()
    save_file({"a": torch.arange(9.0), "b": torch.ones(3)}, path / SINGLE)
    (path / "config.json").write_text("{}")
    return path


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Identities:
    """Trusts files that have just been written: the tests that need the tick say so."""
    monkeypatch.setattr(sources, "_TICK_SECONDS", -3600.0)
    return Identities(tmp_path / "notes")


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    seen: list[int] = []
    original = LocalSource.read_into

    def read_into(source: LocalSource, start: int, *more: object) -> None:
        seen.append(start)
        original(source, start, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(LocalSource, "read_into", read_into)
    return seen


def test_it_is_read_once(root: Path, known: Identities, monkeypatch: pytest.MonkeyPatch) -> None:
    assert known.find(str(root)) is None
    content = identify(str(root), known)
    seen = count_reads(monkeypatch)
    assert identify(str(root), known) == content == known.find(f"{root}/")
    assert seen == []


def test_publishing_notes_it_too(root: Path, known: Identities) -> None:
    with read_checkpoint(str(root), known=known) as published:
        assert known.find(str(root)) == published.label.content


def rewritten(root: Path) -> None:
    """Other bytes in the same file, of the same length, with the old time of its last change."""
    path = root / SINGLE
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x01")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_mtime_ns == status.st_mtime_ns


def copied_over(root: Path) -> None:
    """The way of ``rsync -t`` and ``cp -p``: another file of the same length and time takes its place."""
    other = root.parent / "other"
    shutil.copy2(root / SINGLE, other)
    status = other.stat()
    other.write_bytes(other.read_bytes()[:-1] + b"\x02")
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(root / SINGLE)


def configured(root: Path) -> None:
    (root / "config.json").write_text("[]")


def added(root: Path) -> None:
    (root / "generation_config.json").write_text("{}")


def removed(root: Path) -> None:
    (root / "config.json").unlink()


@pytest.mark.parametrize("change", [rewritten, copied_over, configured, added, removed])
def test_a_change_in_place_is_seen(root: Path, known: Identities, change: object) -> None:
    before = identify(str(root), known)
    time.sleep(0.05)  # more than a tick of the disk's clock
    assert callable(change)
    change(root)
    assert known.find(str(root)) is None
    after = identify(str(root), known)
    assert after != before
    assert known.find(str(root)) == after


def test_a_copy_has_the_same_content(root: Path, known: Identities, tmp_path: Path) -> None:
    shutil.copytree(root, tmp_path / "copy")
    assert known.find(str(tmp_path / "copy")) is None
    assert identify(str(tmp_path / "copy"), known) == identify(str(root), known)


def test_a_file_that_has_just_changed_is_not_noted(root: Path, tmp_path: Path) -> None:
    known = Identities(tmp_path / "notes")
    content = identify(str(root), known)
    assert known.find(str(root)) is None
    assert identify(str(root), known) == content


def test_when_a_stamp_can_be_trusted() -> None:
    now = 1_000_000.0
    old, new = int(now - 10) * 10**9, int(now) * 10**9
    assert settled(f"local:1:2:3:{old}:{old}", now)
    assert not settled(f"local:1:2:3:{old}:{new}", now)
    assert not settled(f"local:1:2:3:{new}:{old}", now)
    assert settled('3:"tag"', now)


@pytest.mark.parametrize("damage", [b"", b"{}", b"\xff", b'{"path": 1}'])
def test_a_damaged_note_costs_one_reading(root: Path, known: Identities, tmp_path: Path, damage: bytes) -> None:
    content = identify(str(root), known)
    (note,) = (tmp_path / "notes").iterdir()
    note.write_bytes(damage)
    assert known.find(str(root)) is None
    assert identify(str(root), known) == content == known.find(str(root))


def test_a_folder_that_is_none_is_told(root: Path, known: Identities, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("")
    with pytest.raises(UserError, match="cannot note") as caught:
        identify(str(root), known)
    assert caught.value.where == str(tmp_path / "notes")


def test_in_object_storage(root: Path, tmp_path: Path) -> None:
    known = Identities(tmp_path / "notes")
    with served(tmp_path / "server") as bucket:
        shutil.copytree(root, bucket.root / "ck")
        url = bucket.url("ck")
        content = identify(url, known, options=bucket.options)
        assert content == identify(str(root), known)
        bucket.requests.clear()
        assert known.find(url, bucket.options) == content
        assert [key for method, key in bucket.requests if method == "GET" and SINGLE in key] == []
        copied_over(bucket.root / "ck")
        os.utime(bucket.root / "ck" / SINGLE)  # a store's tag follows the content, this one's the time
        assert known.find(url, bucket.options) is None
