"""Names of files and columns that no data set should have, and some have."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from proctor.rows import UserError
from proctor.sources.base import Source
from proctor.sources.huggingface import HuggingFaceSource
from proctor.sources.imagefolder import ImageFolderSource
from proctor.sources.jsonl import JsonlSource
from proctor.sources.mds import MDSSource
from proctor.sources.mds.writer import MDSWriter
from proctor.sources.parquet import ParquetSource
from proctor.sources.webdataset import WebDatasetSource
from tests.sources.support import column, errors, picture, read_rows, save, write_jsonl, write_tar


def both(prefix: str) -> dict[str, list[int]]:
    return {"row_id": [1], f"{prefix}_row_id": [2]}


def as_parquet(path: Path) -> Source:
    pq.write_table(pa.table(both("parquet")), path / "x.parquet")
    return ParquetSource(path)


def as_jsonl(path: Path) -> Source:
    return JsonlSource(write_jsonl(path / "x.jsonl", [{"row_id": 1, "jsonl_row_id": 2}]))


def as_huggingface(path: Path) -> Source:
    return HuggingFaceSource(save(path / "x", [pa.table(both("hf"))]))


def as_mds(path: Path) -> Source:
    with MDSWriter(str(path / "x"), {"row_id": "int", "mds_row_id": "int"}) as writer:
        writer.write({"row_id": 1, "mds_row_id": 2})
    return MDSSource(path / "x")


def as_tar(path: Path) -> Source:
    return WebDatasetSource(write_tar(path / "x.tar", [("0.row_id", b"1"), ("0.tar_row_id", b"2")]))


def as_folder(path: Path) -> Source:
    (path / "metadata.jsonl").write_text('{"file_name": "x.jpg", "row_id": 1, "folder_row_id": 2}')
    return ImageFolderSource(path)


@pytest.mark.parametrize("make", [as_parquet, as_jsonl, as_huggingface, as_mds, as_tar, as_folder])
def test_a_renamed_column_never_takes_the_name_of_another(make: Callable[[Path], Source], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has columns 'row_id' and '\w+_row_id'.*rename one of them"):
        make(tmp_path)


def test_columns_that_share_a_name_are_refused(tmp_path: Path) -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    with pytest.raises(UserError, match="has several columns named 'a'"):
        HuggingFaceSource(save(tmp_path / "x", [twice]))
    with pytest.raises(UserError, match="has several columns named '__key__'"):
        WebDatasetSource(write_tar(tmp_path / "x.tar", [("0.jpg", b"1"), ("0.__key__", b"2")]))


@pytest.mark.parametrize(
    ("header", "name"),
    [("file_name,file_name", "file_name"), ("file_name,a,a", "a"), ("file_name,path,metadata_path", "")],
)
def test_metadata_with_columns_that_share_a_name_is_refused(header: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "metadata.csv").write_text(f"{header}\n{','.join(['x.jpg'] * (header.count(',') + 1))}\n")
    with pytest.raises(UserError, match=f"has several columns named '{name or 'metadata_path'}'"):
        ImageFolderSource(tmp_path)


def test_a_name_that_is_not_utf8_costs_its_row(tmp_path: Path) -> None:
    for name in (b"a.jpg", b"b\xe9.jpg", b"c.jpg"):
        (tmp_path / os.fsdecode(name)).write_bytes(picture(1))
    rows = read_rows(ImageFolderSource(tmp_path))
    assert column(rows, "path") == ["a.jpg", None, "c.jpg"]
    assert errors(rows) == {1: "read.corrupt"}
    assert (
        rows[1]["error_message"] == "b\ufffd.jpg: the name is not UTF-8: rename the file, or the folder that it lies in"
    )
    (tmp_path / os.fsdecode(b"x\xe9.jsonl")).write_text('{"a": 1}')
    with pytest.raises(UserError, match=r"x\ufffd\.jsonl: the name is not UTF-8"):
        JsonlSource(tmp_path)


def test_links_to_folders_are_followed_inside_of_the_data_and_refused_outside(tmp_path: Path) -> None:
    root = tmp_path / "data"
    (root / "cats").mkdir(parents=True)
    (root / "cats" / "1.png").write_bytes(picture(7))
    (root / "pets").symlink_to(root / "cats")
    rows = read_rows(ImageFolderSource(root))
    assert column(rows, "label") == ["cats", "pets"]
    assert column(rows, "image") == [picture(7)] * 2
    (root / "cats" / "up").symlink_to(root)
    with pytest.raises(UserError, match="cats/up is a link to a directory that it lies in"):
        ImageFolderSource(root)
    (root / "cats" / "up").unlink()
    (root / "dogs").symlink_to(tmp_path)
    with pytest.raises(UserError, match="dogs is a link to a directory outside of the data's"):
        ImageFolderSource(root)


def test_ids_in_metadata_keep_their_text(tmp_path: Path) -> None:
    lines = ["file_name,id,long,n,x,when", "a.jpg,007,12345678901234567890,7,0.5,2020-01-01T00:00:00"]
    (tmp_path / "metadata.csv").write_text("\n".join(lines))
    (tmp_path / "a.jpg").write_bytes(picture(1))
    rows = read_rows(ImageFolderSource(tmp_path))
    assert [rows[0][name] for name in ("id", "long", "n", "x")] == ["007", "12345678901234567890", 7, 0.5]
    assert rows[0]["when"] == "2020-01-01T00:00:00"


def test_whole_numbers_that_a_double_cannot_hold_keep_their_digits(tmp_path: Path) -> None:
    long = 9007199254740993
    rows = read_rows(JsonlSource(write_jsonl(tmp_path / "a.jsonl", [{"id": long}, {"id": 1.5}])))
    assert column(rows, "id") == [str(long), "1.5"]
    later = [{"id": 1.5}] * 1000 + [{"id": long}, {"id": 3}]
    rows = read_rows(JsonlSource(write_jsonl(tmp_path / "b.jsonl", later)), max_rows=2000)
    assert errors(rows) == {1000: "read.corrupt"}
    assert rows[1001]["id"] == 3.0
    only = read_rows(JsonlSource(write_jsonl(tmp_path / "c.jsonl", [{"id": long}, {"id": 1}])))
    assert column(only, "id") == [long, 1]


def test_odd_metadata_costs_no_neighbour(tmp_path: Path) -> None:
    (tmp_path / "x.jpg").write_bytes(picture(3))
    (tmp_path / "metadata.jsonl").write_text('{"file_name": "x\\u0000y"}\n{"file_name": "x.jpg"}\n')
    rows = read_rows(ImageFolderSource(tmp_path))
    assert errors(rows) == {0: "read.corrupt"}
    assert rows[1]["image"] == picture(3)
    (tmp_path / "metadata.jsonl").unlink()
    views = pa.table({"file_name": ["x.jpg"] * 3, "v": pa.array(["a", "b", "c"], pa.string_view())})
    pq.write_table(views, tmp_path / "metadata.parquet")
    assert column(read_rows(ImageFolderSource(tmp_path)), "v") == ["a", "b", "c"]


@pytest.mark.parametrize(
    "content", ['{"_data_files": 5}', "[" * 100_000, '{"_data_files": [{"filename": "a\\u0000b"}]}']
)
def test_an_odd_state_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(content)
    with pytest.raises(UserError, match=r"not a list|nested too deeply|outside of its folder"):
        HuggingFaceSource(tmp_path)


def test_a_data_file_that_links_out_is_refused(tmp_path: Path) -> None:
    table = pa.table({"a": [1]})
    other, folder = save(tmp_path / "other", [table]), save(tmp_path / "x", [table])
    name = json.loads((folder / "state.json").read_text())["_data_files"][0]["filename"]
    (folder / name).unlink()
    (folder / name).symlink_to(other / name)
    with pytest.raises(UserError, match="is a link that leads out of the data set's folder"):
        HuggingFaceSource(folder)


def test_a_parquet_file_that_was_replaced_by_one_of_the_same_shape_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": [1, 2]}), path)
    source, size = ParquetSource(path), path.stat().st_size
    pq.write_table(pa.table({"a": [3, 4]}), path)
    assert path.stat().st_size == size
    rows = read_rows(source)
    assert errors(rows) == {0: "read.corrupt", 1: "read.corrupt"}
    assert "has changed since the run was planned" in rows[0]["error_message"]


def test_planning_does_not_count_rows_that_an_index_only_claims(tmp_path: Path) -> None:
    with MDSWriter(str(tmp_path / "x"), {"a": "int"}) as writer:
        writer.write({"a": 1})
    index = json.loads((tmp_path / "x" / "index.json").read_text())
    index["shards"][0].update(samples=10**8, raw_data={"basename": "shard.00000.mds", "bytes": 0, "hashes": {}})
    (tmp_path / "x" / "index.json").write_text(json.dumps(index))
    source = MDSSource(tmp_path / "x")
    assert len(source.expected()) == 10**8
    groups = source.groups(source.expected(), 1 << 28)
    assert sum(len(group.row_ids) for group in groups) == 10**8
    assert sum(len(group.rows) for group in groups) < 10**8 // 7  # about a bit a row


@pytest.mark.parametrize(
    "kind", [JsonlSource, ParquetSource, WebDatasetSource, ImageFolderSource, MDSSource, HuggingFaceSource]
)
@pytest.mark.parametrize("scheme", ["s3", "gs", "https", "ftp"])
def test_secrets_in_a_url_are_refused_and_not_told(kind: Callable[[str], Source], scheme: str) -> None:
    for secret in ("SECRET", "SEC/RET"):
        with pytest.raises(UserError, match="credentials in a URL") as caught:
            kind(f"{scheme}://KEY:{secret}@bucket/x.jsonl?a=b")
        assert not any(word in str(caught.value) for word in ("KEY", "SEC", "RET"))


def test_messages_name_what_is_wrong_with_a_url() -> None:
    with pytest.raises(UserError, match="from local paths only"):
        HuggingFaceSource("s3://bucket/x")
    with pytest.raises(UserError, match="a URL with a fragment cannot"):
        JsonlSource("http://127.0.0.1:1/x.jsonl#x")
