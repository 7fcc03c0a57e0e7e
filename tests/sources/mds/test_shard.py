"""Finding, checking and unpacking shard files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from proctor.rows import UserError
from proctor.sources.mds import MDSSource, files, shard
from proctor.sources.mds.compression import deflate
from tests.sources.mds.support import edit_file, edit_index, errors, messages, read_rows, write

COLUMNS = {"id": "int", "data": "bytes"}
COMPRESSIONS = ["zstd", "gz", "br:2", "bz2", "snappy"]
SHARD = "shard.00000.mds"


def rows_of(count: int) -> list[dict[str, Any]]:
    return [{"id": row, "data": bytes([row]) * 1000} for row in range(count)]


def test_basenames_with_folders(tmp_path: Path) -> None:
    write(tmp_path, COLUMNS, rows_of(3))
    (tmp_path / "17").mkdir()
    (tmp_path / SHARD).rename(tmp_path / "17" / SHARD)
    edit_index(tmp_path, lambda index: index["shards"][0]["raw_data"].update(basename=f"17/{SHARD}"))
    assert [row["id"] for row in read_rows(tmp_path)] == [0, 1, 2]


def test_a_link_out_of_the_dataset_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "data", COLUMNS, rows_of(3))
    (path / SHARD).rename(tmp_path / "outside.mds")
    (path / SHARD).symlink_to(tmp_path / "outside.mds")
    rows = read_rows(path)
    assert errors(rows) == dict.fromkeys(range(3), "read.corrupt")
    assert "leads outside of the dataset's directory" in messages(rows)


def test_a_link_to_a_folder_out_of_the_dataset_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "data", COLUMNS, rows_of(3))
    (tmp_path / "elsewhere").mkdir()
    (path / SHARD).rename(tmp_path / "elsewhere" / SHARD)
    (path / "in").symlink_to(tmp_path / "elsewhere")
    edit_index(path, lambda index: index["shards"][0]["raw_data"].update(basename=f"in/{SHARD}"))
    assert set(errors(read_rows(path)).values()) == {"read.corrupt"}


def test_a_link_inside_the_dataset_is_followed(tmp_path: Path) -> None:
    path = write(tmp_path / "data", COLUMNS, rows_of(3))
    (path / SHARD).rename(path / "blob")
    (path / SHARD).symlink_to("blob")
    assert errors(read_rows(path)) == {}


def test_a_dataset_reached_through_a_link(tmp_path: Path) -> None:
    write(tmp_path / "data", COLUMNS, rows_of(3))
    (tmp_path / "link").symlink_to(tmp_path / "data")
    assert errors(read_rows(tmp_path / "link")) == {}


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path = write(tmp_path, COLUMNS, rows_of(3))
    (path / SHARD).unlink()
    os.mkfifo(path / SHARD)
    assert "is not a regular file" in messages(read_rows(path))


def test_a_missing_file(tmp_path: Path) -> None:
    path = write(tmp_path, COLUMNS, rows_of(30), size_limit=10_000)
    (path / "shard.00001.mds").unlink()
    rows = read_rows(path)
    assert set(errors(rows).values()) == {"read.missing"}
    assert list(errors(rows)) == list(range(9, 18))
    assert "no shard file shard.00001.mds" in messages(rows)


def test_a_file_that_may_not_be_read_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, COLUMNS, rows_of(3))

    def refuse(*_args: object, **_options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files, "mapped", refuse)
    rows = read_rows(path)
    assert errors(rows) == dict.fromkeys(range(3), "read.failed")
    assert "Permission denied" in messages(rows)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_compressed_shards(compression: str, tmp_path: Path) -> None:
    path = write(tmp_path, COLUMNS, rows_of(40), compression=compression, size_limit=10_000, hashes=["sha1"])
    assert not list(path.glob("*.mds"))
    rows = read_rows(path, max_rows=3)
    assert [row["data"] for row in rows] == [row["data"] for row in rows_of(40)]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_broken_stream_costs_its_shard(compression: str, tmp_path: Path) -> None:
    path = write(tmp_path, COLUMNS, rows_of(3), compression=compression)
    stored = next(path.glob("shard.*"))
    edit_file(stored, lambda data: data[: len(data) // 2])
    rows = read_rows(path)
    assert errors(rows) == dict.fromkeys(range(3), "read.corrupt")
    assert SHARD in messages(rows)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("content", [b"", b"\0", b"\xff" * 9, b"some text that is no stream"])
def test_what_is_no_stream(compression: str, content: bytes, tmp_path: Path) -> None:
    path = write(tmp_path, COLUMNS, rows_of(3), compression=compression)
    next(path.glob("shard.*")).write_bytes(content)
    assert errors(read_rows(path)) == dict.fromkeys(range(3), "read.corrupt")


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_what_comes_out_of_a_stream_is_bounded(
    compression: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, COLUMNS, rows_of(3), compression=compression)
    edit_index(path, lambda index: index["shards"][0]["raw_data"].pop("bytes"))
    monkeypatch.setattr(shard, "_INFLATE_LIMIT", 100_000)
    next(path.glob("shard.*")).write_bytes(deflate(compression, bytes(100_001)))
    assert "decompresses to more than 100,000 bytes" in messages(read_rows(path))


def test_the_uncompressed_file_is_preferred(tmp_path: Path) -> None:
    """Decompressed copies beside the compressed files are what the public library leaves in its cache."""
    plain = write(tmp_path / "plain", COLUMNS, rows_of(3))
    path = write(tmp_path / "zipped", COLUMNS, rows_of(3), compression="zstd")
    (path / f"{SHARD}.zstd").write_bytes(b"broken")
    (path / SHARD).write_bytes((plain / SHARD).read_bytes())
    assert errors(read_rows(path)) == {}


def test_a_flipped_byte_is_seen_by_digests_only(tmp_path: Path) -> None:
    path = write(tmp_path, COLUMNS, rows_of(3), hashes=["md5", "xxh3_64"])
    edit_file(path / SHARD, lambda data: data.replace(b"\1\1", b"\1\7"))
    rows = read_rows(path)
    assert errors(rows) == dict.fromkeys(range(3), "read.corrupt")
    assert f"md5 of {SHARD} is" in messages(rows)
    assert errors(read_rows(path, verify_hashes=False)) == {}


def test_digests_cover_the_compressed_and_the_raw_file(tmp_path: Path) -> None:
    path = write(tmp_path, COLUMNS, rows_of(3), hashes=["sha1"], compression="gz")
    original = json.loads((path / "index.json").read_text())
    for part in ("zip_data", "raw_data"):
        (path / "index.json").write_text(json.dumps(original))
        edit_index(path, lambda index: index["shards"][0][part]["hashes"].update(sha1="0" * 40))  # noqa: B023
        assert f"sha1 of {original['shards'][0][part]['basename']} is" in messages(read_rows(path))


def test_a_digest_in_capitals_is_the_same(tmp_path: Path) -> None:
    path = write(tmp_path, COLUMNS, rows_of(3), hashes=["sha1"])
    hashes = json.loads((path / "index.json").read_text())["shards"][0]["raw_data"]["hashes"]
    edit_index(path, lambda index: index["shards"][0]["raw_data"]["hashes"].update(sha1=hashes["sha1"].upper()))
    assert errors(read_rows(path)) == {}


def test_a_digest_that_cannot_be_computed(tmp_path: Path) -> None:
    path = write(tmp_path, COLUMNS, rows_of(3))
    edit_index(path, lambda index: index["shards"][0]["raw_data"].update(hashes={"crc32": "00"}))
    with pytest.raises(UserError, match=r"shards\[0\]: hash 'crc32' cannot be computed here"):
        MDSSource(path)
    assert errors(read_rows(path, verify_hashes=False)) == {}


def test_many_groups_unpack_a_shard_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, COLUMNS, rows_of(30), compression="zstd")
    unpacked: list[Any] = []
    inflate = shard.inflate

    def counting(stored: Any, *options: Any) -> None:
        unpacked.append(stored)
        inflate(stored, *options)

    monkeypatch.setattr(shard, "inflate", counting)
    assert len(read_rows(path, max_rows=2)) == 30
    assert len(unpacked) == 1
    # A file that was replaced is another file.
    os.utime(path / f"{SHARD}.zstd", ns=(1, 1))
    assert len(read_rows(path, max_rows=2)) == 30
    assert len(unpacked) == 2
