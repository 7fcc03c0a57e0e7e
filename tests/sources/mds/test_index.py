"""What an index must say, and how its mistakes are named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proctor.rows import UserError
from proctor.sources.mds import MDSSource
from proctor.sources.mds.files import dataset_files
from proctor.sources.mds.index import read_index
from tests.sources.mds.support import edit_index, read_rows, write


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Two shards of a few rows."""
    rows = [{"id": row, "text": "x" * 50} for row in range(8)]
    return write(tmp_path / "data", {"id": "int", "text": "str"}, rows, size_limit=500)


def shard(**settings: Any) -> Callable[[dict[str, Any]], object]:
    return lambda index: index["shards"][1].update(settings)


def basename(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda index: index["shards"][1]["raw_data"].update(basename=name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda index: index.update(version=3), "index.json: version: version 3 is not supported, only 2"),
        (lambda index: index.pop("shards"), "index.json: Object missing required field `shards`"),
        (lambda index: index.update(shards={}), "index.json: shards: Expected `array`, got `object`"),
        (lambda index: index["shards"][1].pop("samples"), "shards[1]: Object missing required field `samples`"),
        (shard(samples="7"), "index.json: shards[1].samples: Expected `int`, got `str`"),
        (shard(samples=-1), "index.json: shards[1].samples: -1 is not a number of rows"),
        (shard(version=1), "index.json: shards[1].version: version 1 is not supported"),
        (shard(format="csv"), "index.json: shards[1].format: format 'csv' is not supported, only 'mds'"),
        (shard(column_names=["id", "other"]), "index.json: shards[1]: columns differ from those of shard 0"),
        (shard(column_sizes=[8]), "shards[1]: column_names, column_encodings and column_sizes differ in length"),
        (shard(column_sizes=[4, None]), "index.json: shards[1].column_sizes: column 'id': int cells are not 4 bytes"),
        (shard(column_sizes=[8, -1]), "index.json: shards[1].column_sizes: column 'text': str cells are not -1 bytes"),
        (shard(compression="lzma"), "index.json: shards[1].compression: unknown compression 'lzma'"),
        (shard(compression="zstd:40"), "shards[1].compression: compression 'zstd:40': zstd has levels 1 to 22"),
        (shard(zip_data={"basename": "x"}), "index.json: shards[1].zip_data: has a compressed file but no compression"),
        (basename("../outside.mds"), "index.json: shards[1].raw_data.basename: '../outside.mds' does not lie inside"),
        (basename("a/../../outside.mds"), "'a/../../outside.mds' does not lie inside the dataset's directory"),
        (basename("/etc/passwd"), "index.json: shards[1].raw_data.basename: '/etc/passwd' does not lie inside"),
        (basename(""), "index.json: shards[1].raw_data.basename: '' does not lie inside"),
        (basename("a\0b"), "does not lie inside"),
        (basename("./shard.00000.mds"), "index.json: shards[1]: 'shard.00000.mds' is the file of shards[0], too"),
    ],
)  # fmt: skip
def test_mistakes_name_file_shard_and_field(
    dataset: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    edit_index(dataset, change)
    with pytest.raises(UserError) as caught:
        MDSSource(dataset)
    assert message in str(caught.value)
    assert str(dataset) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("encoding", "message"),
    [
        ("jpg", "unknown encoding 'jpg'; MDS has bytes, float16"),
        ("int:8", "unknown encoding 'int:8'"),
        ("ndarray:bool", "'bool' is not a dtype of MDS arrays"),
        ("ndarray:", "'' is not a dtype"),
        ("ndarray:int8:2,x", "the shape must be whole numbers >= 1"),
        ("ndarray:int8:0", "the shape must be whole numbers >= 1"),
        ("pkl", "holds pickles, which run code when loaded"),
    ],
)
def test_bad_encodings(dataset: Path, encoding: str, message: str) -> None:
    def change(index: dict[str, Any]) -> None:
        for entry in index["shards"]:
            entry["column_encodings"][1] = encoding

    edit_index(dataset, change)
    with pytest.raises(UserError, match="column 'text'") as caught:
        MDSSource(dataset)
    assert message in str(caught.value)


def test_no_index(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no MDS index: No such file or directory"):
        MDSSource(tmp_path / "nowhere")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"version": 2, "shards": ['])
def test_no_json(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "index.json").write_bytes(content)
    with pytest.raises(UserError, match=r"index\.json: (not JSON|Invalid)"):
        MDSSource(tmp_path)


def test_the_index_itself_may_be_named(dataset: Path) -> None:
    assert len(MDSSource(dataset / "index.json").expected()) == 8


def test_row_ids_follow_the_order_of_the_index(dataset: Path) -> None:
    index = read_index(dataset_files(dataset))
    assert [(info.first_row, info.samples) for info in index.shards][:2] == [(0, 4), (4, 4)]
    assert [row["id"] for row in read_rows(dataset)] == list(range(8))


def test_the_fingerprint_is_of_the_content_not_of_its_spelling(dataset: Path) -> None:
    before = read_index(dataset_files(dataset)).fingerprint
    content = json.loads((dataset / "index.json").read_text())
    (dataset / "index.json").write_text(json.dumps(dict(reversed(content.items())), indent=3))
    assert read_index(dataset_files(dataset)).fingerprint == before
    edit_index(dataset, shard(samples=3))
    assert read_index(dataset_files(dataset)).fingerprint != before


def test_the_driver_opens_no_shard(dataset: Path) -> None:
    for file in dataset.glob("*.mds"):
        file.unlink()
    source = MDSSource(dataset)
    assert list(source.expected()) == list(range(8))
    assert [list(group.row_ids) for group in source.groups(source.expected(), 3)] == [[0, 1, 2], [3], [4, 5, 6], [7]]
    assert source.columns().names == ["id", "text"]


def test_hand_repaired_sizes_do_not_matter(dataset: Path) -> None:
    def forget(index: dict[str, Any]) -> None:
        index["shards"][0]["raw_data"]["bytes"] = 0
        index["shards"][1]["raw_data"].pop("bytes")
        index["shards"][1]["raw_data"]["hashes"] = None
        index["shards"][1].pop("zip_data")
        index["shards"][0]["size_limit"] = "64mb"

    edit_index(dataset, forget)
    assert [row["id"] for row in read_rows(dataset)] == list(range(8))
