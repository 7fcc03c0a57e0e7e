from __future__ import annotations

from pathlib import Path

import pytest

from proctor.rows import ErrorKind, UserError
from proctor.sources.faults import open_failure
from proctor.sources.files import DataFile, LocalFolder, ids_between
from proctor.sources.listing import list_files


def test_a_directory_gives_its_files_by_name_without_hidden_ones(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl", "B.jsonl", ".hidden.jsonl", "notes.txt", "10.jsonl", "9.jsonl"):
        (tmp_path / name).touch()
    (tmp_path / "folder.jsonl").mkdir()
    names = [file.name for file in list_files(tmp_path, (".jsonl",))]
    assert names == ["10.jsonl", "9.jsonl", "B.jsonl", "a.jsonl", "b.jsonl"]


def test_a_single_file_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data.txt").touch()
    monkeypatch.chdir(tmp_path)
    assert list_files("data.txt", (".jsonl",)) == (DataFile(LocalFolder(tmp_path), "data.txt"),)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nothing", "no such file or directory"),
        ("", r"holds no \*.parquet files"),
        ("ftp://bucket/x", "no storage has the scheme 'ftp'"),
        ("https://host/x?signature=1", "a URL with a query cannot have files below it"),
    ],
)
def test_nothing_to_read_is_the_users_mistake(path: str, message: str, tmp_path: Path) -> None:
    where = path if "://" in path else tmp_path / path
    with pytest.raises(UserError, match=message):
        list_files(where, (".parquet",))


def test_why_a_file_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file") as caught:
        (tmp_path / "x").open()
    failure = open_failure(caught.value)
    assert (failure.kind, failure.message) == (ErrorKind.READ_MISSING, "No such file or directory")
    assert open_failure(PermissionError(13, "Permission denied")).kind is ErrorKind.READ_FAILED
    assert list(ids_between(3, 6)) == [3, 4, 5]
    assert not ids_between(4, 4)
