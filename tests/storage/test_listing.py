"""A directory whose folders come and go while it is listed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from proctor.storage import local
from proctor.storage.local import LocalFolder


def test_a_folder_that_goes_while_its_parent_is_listed_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abcdef":
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").touch()
    look, seen = local._holds_anything, list[str]()

    def late(path: str) -> bool:
        seen.append(Path(path).name)
        if len(seen) == 3:
            shutil.rmtree(path)
        return look(path)

    monkeypatch.setattr(local, "_holds_anything", late)
    assert LocalFolder(tmp_path).names() == sorted(f"{name}/" for name in "abcdef" if name != seen[2])


def test_a_folder_that_may_not_be_read_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").touch()
    scan = local.os.scandir

    def refused(path: str) -> object:
        if Path(path).name == "b":
            raise PermissionError(13, "permission denied", path)
        return scan(path)

    monkeypatch.setattr(local.os, "scandir", refused)
    assert LocalFolder(tmp_path).names() == ["a/", "b/", "c/"]
