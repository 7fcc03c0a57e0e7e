from __future__ import annotations

import os
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from proctor.rows import UserError
from proctor.sources.base import BLOCK_BYTES
from proctor.sources.imagefolder import ImageFolderSource
from tests.sources.support import column, errors, picture, read_blocks, read_rows, write_jsonl
from tests.storage.bucket import served

NAMES = ["cat/1.png", "cat/2.JPG", "dog/deep/3.webp", "top.png"]


def put(folder: Path, names: list[str] = NAMES) -> Path:
    for shade, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(shade))
    return folder


def test_images_in_sub_folders_have_labels(tmp_path: Path) -> None:
    put(tmp_path)
    for name in ("notes.txt", ".hidden.png", "dog/.cache/4.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    source = ImageFolderSource(tmp_path)
    assert source.columns().names == ["image", "path", "label"]
    rows = read_rows(pickle.loads(pickle.dumps(source)))
    assert column(rows, "path") == NAMES
    assert column(rows, "label") == ["cat", "cat", "deep", None]
    assert column(rows, "image") == [picture(shade) for shade in range(4)]
    assert column(read_rows(source, BitMap64([2])), "path") == [NAMES[2]]


def test_a_flat_folder_has_no_labels(tmp_path: Path) -> None:
    source = ImageFolderSource(put(tmp_path, ["b.png", "a.png", "10.png", "9.png"]))
    assert source.columns() == pa.schema({"image": pa.large_binary(), "path": pa.large_string()})
    assert column(read_rows(source), "path") == ["10.png", "9.png", "a.png", "b.png"]


def test_metadata_says_which_images_are_rows(tmp_path: Path) -> None:
    put(tmp_path)
    lines = [{"file_name": "2.JPG", "text": "two", "n": 2}, {"file_name": "1.png", "text": "one", "n": 1}]
    write_jsonl(tmp_path / "cat" / "metadata.jsonl", [lines[0], "", lines[1]])
    rows = read_rows(ImageFolderSource(tmp_path))
    assert column(rows, "path") == ["cat/2.JPG", "cat/1.png"]
    assert column(rows, "text") == ["two", "one"]
    assert column(rows, "n") == [2, 1]
    assert column(rows, "image") == [picture(1), picture(0)]


def test_csv_and_parquet_metadata_of_several_folders(tmp_path: Path) -> None:
    put(tmp_path)
    (tmp_path / "metadata.csv").write_text("file_name,path,score\ntop.png,p,0.5\ndog/deep/3.webp,q,\n")
    pq.write_table(pa.table({"file_name": ["1.png"], "more": [7]}), tmp_path / "cat" / "metadata.parquet")
    rows = read_rows(ImageFolderSource(tmp_path))
    assert column(rows, "path") == ["cat/1.png", "top.png", "dog/deep/3.webp"]
    assert column(rows, "metadata_path") == [None, "p", "q"]
    assert column(rows, "score") == [None, 0.5, None]
    assert column(rows, "more") == [7, None, None]


def test_a_file_that_is_gone_outside_or_no_file_costs_its_row(tmp_path: Path) -> None:
    folder = put(tmp_path / "data")
    (tmp_path / "secret.png").write_bytes(picture())
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "dir.png").mkdir()
    names = ["top.png", "gone.png", "../secret.png", "/etc/passwd", "link.png", "dir.png", "cat/1.png"]
    write_jsonl(folder / "metadata.jsonl", [{"file_name": name} for name in names])
    rows = read_rows(ImageFolderSource(folder))
    kinds = {1: "read.missing", 2: "read.corrupt", 3: "read.corrupt", 4: "read.corrupt", 5: "read.corrupt"}
    assert errors(rows) == kinds
    assert rows[1]["error_message"] == "gone.png: column 'image': No such file or directory: 'gone.png'"
    assert rows[4]["error_message"] == "link.png: column 'image': leads outside of the data's directory: 'link.png'"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("metadata.jsonl", '{"name": "a"}', r"metadata\.jsonl: has no column 'file_name' \(it has: name\)"),
        ("metadata.jsonl", '{"file_name": "a.png"}\n{"file_name', r"metadata\.jsonl, line 2: Input data was truncated"),
        ("metadata.jsonl", '{"file_name": "a.png"}\n{"file_name": null}', "row 2 has no file_name"),
        ("metadata.csv", "file_name,x\na.png\n", "cannot be read: CSV parse error: Expected 2 columns, got 1"),
        ("metadata.parquet", "PAR1", "cannot be read: "),
    ],
)
def test_metadata_that_cannot_be_used_is_named_before_the_run(
    name: str, content: str, message: str, tmp_path: Path
) -> None:
    put(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message):
        ImageFolderSource(tmp_path)


def test_metadata_of_different_types_is_named(tmp_path: Path) -> None:
    put(tmp_path)
    write_jsonl(tmp_path / "metadata.jsonl", [{"file_name": "top.png", "n": 1}])
    write_jsonl(tmp_path / "cat" / "metadata.jsonl", [{"file_name": "1.png", "n": "one"}])
    with pytest.raises(UserError, match=r"cat/metadata\.jsonl: differs from other metadata of the folder: "):
        ImageFolderSource(tmp_path)


def test_no_images_are_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no images in it"):
        ImageFolderSource(tmp_path)
    with pytest.raises(UserError, match="not a folder"):
        ImageFolderSource(put(tmp_path) / "top.png")


def test_groups_and_blocks_follow_the_sizes_of_files(tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / f"{number}.png").write_bytes(bytes(BLOCK_BYTES // 3))
    source = ImageFolderSource(tmp_path)
    assert [len(group.row_ids) for group in source.groups(source.expected(), 100)] == [3, 3, 2]
    (group,) = source.groups(source.expected(), 100, 1 << 40)
    assert sum(block.num_rows for block in source.read(group)) == 8
    assert all(block.nbytes <= BLOCK_BYTES * 1.01 for block in read_blocks(source))


def test_the_fingerprint_follows_names_and_metadata(tmp_path: Path) -> None:
    before = ImageFolderSource(put(tmp_path)).fingerprint()
    os.utime(tmp_path / "top.png", (1, 1))
    assert ImageFolderSource(tmp_path).fingerprint() == before
    (tmp_path / "top.png").rename(tmp_path / "other.png")
    assert ImageFolderSource(tmp_path).fingerprint() != before


def test_a_folder_in_object_storage(tmp_path: Path) -> None:
    with served(tmp_path) as bucket:
        put(bucket.root / "data")
        write_jsonl(bucket.root / "data" / "metadata.jsonl", [{"file_name": name} for name in [*NAMES, "gone.png"]])
        rows = read_rows(ImageFolderSource(bucket.url("data"), storage=bucket.options))
        assert errors(rows) == {4: "read.missing"}
        assert column(rows, "image")[:4] == [picture(shade) for shade in range(4)]
        with pytest.raises(UserError, match="a web server gives files, and lists no folders"):
            ImageFolderSource(f"{bucket.endpoint}/bucket/data")
