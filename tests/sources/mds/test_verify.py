"""What `inspect` and `verify` say of a dataset."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from proctor.rows import UserError
from proctor.sources.mds.verify import ColumnSummary, Finding, inspect, verify
from tests.sources.mds.support import edit_file, edit_index, write

COLUMNS = {"id": "int", "text": "str"}


def make(path: Path, **options: Any) -> Path:
    rows = [{"id": row, "text": f"row {row}"} for row in range(30)]
    return write(path, COLUMNS, rows, size_limit=450, **options)


def test_inspect_tells_what_the_index_says(tmp_path: Path) -> None:
    path = make(tmp_path, compression="zstd:5", hashes=["xxh64", "sha1"])
    summary = inspect(path)
    stored = sum(file.stat().st_size for file in path.glob("shard.*"))
    assert (summary.path, summary.rows, summary.shards) == (str(path), 30, len(list(path.glob("shard.*"))))
    assert summary.columns == (ColumnSummary("id", "int", "int64"), ColumnSummary("text", "str", "large_string"))
    assert (summary.compressions, summary.hashes) == (("zstd",), ("sha1", "xxh64"))
    assert (summary.stored_bytes, summary.unknown_sizes) == (stored, 0)
    assert summary.largest_shard_bytes <= 450
    assert summary.mean_row_bytes == summary.raw_bytes / 30


def test_inspect_of_unknown_sizes(tmp_path: Path) -> None:
    path = make(tmp_path)
    edit_index(path, lambda index: [shard["raw_data"].update(bytes=0) for shard in index["shards"]])
    summary = inspect(path)
    assert (summary.raw_bytes, summary.unknown_sizes, summary.mean_row_bytes) == (0, summary.shards, 0.0)


def test_inspect_shows_pickles_without_complaint(tmp_path: Path) -> None:
    path = write(tmp_path, {"thing": "bytes"}, [{"thing": b"raw"}])
    edit_index(path, lambda index: index["shards"][0].update(column_encodings=["pkl"]))
    assert inspect(path).columns == (ColumnSummary("thing", "pkl", "large_binary"),)
    assert list(verify(path)) == []


@pytest.mark.parametrize("options", [{}, {"hashes": ["sha256"]}, {"compression": "br:1", "hashes": ["xxh3_64"]}])
def test_verify_of_a_sound_dataset(options: dict[str, Any], tmp_path: Path) -> None:
    assert list(verify(make(tmp_path, **options))) == []


def test_verify_names_file_row_and_problem(tmp_path: Path) -> None:
    path = make(tmp_path)
    edit_file(path / "shard.00001.mds", lambda data: data.replace(b"row 20", b"row \xff0"))
    (path / "shard.00002.mds").unlink()
    shutil.copy(path / "shard.00000.mds", path / "shard.00009.mds")
    edit_index(path, lambda index: index["shards"][0].update(samples=1))
    first, second, third, fourth = verify(path)
    assert (first.file, first.row) == ("shard.00000.mds", None)
    assert "holds 12 rows, its index says 1: the others are not read" in first.problem
    # The index now gives shard 0 a single row, so later rows have smaller ids.
    assert second == Finding("shard.00001.mds", 1 + 20 - 12, "column 'text': is not UTF-8 text")
    assert third == Finding("shard.00002.mds", None, "no shard file shard.00002.mds")
    assert fourth.file == "shard.00009.mds"
    assert "the index does not name this shard file" in fourth.problem


def test_verify_sees_wrong_sizes_and_digests(tmp_path: Path) -> None:
    path = make(tmp_path, hashes=["sha1"])
    edit_index(path, lambda index: index["shards"][0]["raw_data"].update(bytes=77))
    edit_file(path / "shard.00001.mds", lambda data: data.replace(b"row 20", b"row 99"))
    first, second = verify(path)
    assert (first.file, first.row) == ("shard.00000.mds", None)
    assert "its index says 77" in first.problem
    assert "sha1 of shard.00001.mds is" in second.problem


def test_verify_refuses_a_shard_that_is_named_twice(tmp_path: Path) -> None:
    path = make(tmp_path)
    edit_index(path, lambda index: index["shards"].append(index["shards"][0]))
    with pytest.raises(UserError, match=r"shards\[3\]: 'shard\.00000\.mds' is the file of shards\[0\], too"):
        list(verify(path))


def test_verify_of_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no MDS index"):
        list(verify(tmp_path))
