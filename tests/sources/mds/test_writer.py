"""What the writer refuses, and how shards close."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from proctor.rows import UserError
from proctor.sources.mds import MDSSource, MDSWriter
from tests.sources.mds.support import read_rows, write


def index_of(path: Path) -> dict[str, Any]:
    index: dict[str, Any] = json.loads((path / "index.json").read_text())
    return index


@pytest.mark.parametrize("limit", [300, 500, 1000, 5000])
def test_a_shard_closes_before_it_exceeds_its_limit(limit: int, tmp_path: Path) -> None:
    path = write(tmp_path, {"data": "bytes"}, [{"data": bytes(row)} for row in range(100)], size_limit=limit)
    sizes = [shard["raw_data"]["bytes"] for shard in index_of(path)["shards"]]
    assert max(sizes) <= limit
    assert sizes == [file.stat().st_size for file in sorted(path.glob("*.mds"))]
    assert len(read_rows(path)) == 100


def test_a_row_larger_than_the_limit_has_a_shard_of_its_own(tmp_path: Path) -> None:
    rows = [{"data": bytes(size)} for size in (10, 2000, 10)]
    path = write(tmp_path, {"data": "bytes"}, rows, size_limit=500)
    assert [shard["samples"] for shard in index_of(path)["shards"]] == [1, 1, 1]


@pytest.mark.parametrize("limit", [0, -1, 1 << 32])
def test_limits_beyond_the_format(limit: int, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="MDS offsets are 32 bits"):
        MDSWriter(tmp_path, {"data": "bytes"}, size_limit=limit)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"columns": {}}, "needs at least one column"),
        ({"columns": {"a": "text"}}, "column 'a': unknown encoding 'text'"),
        ({"columns": {"a": "pkl"}}, "pkl columns are not written"),
        ({"compression": "zip"}, "unknown compression 'zip'"),
        ({"compression": "snappy:3"}, "snappy has no levels"),
        ({"hashes": ["shake_128"]}, "unknown hash 'shake_128'"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        MDSWriter(tmp_path, **{"columns": {"a": "str"}, **settings})


@pytest.mark.parametrize(
    ("encoding", "value", "message"),
    [
        ("str", 3, "str takes text, got int"),
        ("bytes", "text", "bytes takes bytes, got str"),
        ("int", 1 << 63, "does not fit in int64"),
        ("int", True, "int64 takes a number, got bool"),
        ("int", b"1234", "int takes 8 bytes, got 4"),
        ("uint8", np.int64(300), "300 does not fit in uint8"),
        ("uint8", -1, "-1 does not fit in uint8"),
        ("int16", 1.5, "1.5 does not fit in int16"),
        ("int16", float("inf"), "inf does not fit in int16"),
        ("int16", float("nan"), "nan does not fit in int16"),
        ("float32", "1", "float32 takes a number, got str"),
        ("float16", 1e9, "does not fit in float16"),
        ("str_int", 1.0, "takes int, got float"),
        ("str_int", True, "takes int, got bool"),
        ("str_decimal", 1.0, "takes Decimal, got float"),
        ("json", {1, 2}, "not JSON serializable"),
        ("json", float("nan"), "not JSON compliant"),
        ("ndarray", np.zeros((0, 3)), "takes arrays of 1 to 63 axes with values"),
        ("ndarray", np.float32(1), "takes arrays of 1 to 63 axes with values"),
        ("ndarray", np.zeros(3, bool), "got an array of bool"),
        ("ndarray:int8", np.zeros(3, "int16"), "takes int8, got an array of int16"),
        ("ndarray:int8:3", np.zeros(4, "int8"), "takes shape"),
        ("jpeg", [1], "takes bytes or a PIL image, got list"),
        ("pil", "image", "takes bytes or a PIL image, got str"),
        ("pil", Image.new("P", (1, 1)), "does not hold the palette of mode P"),
        ("jpeg", Image.new("RGBA", (1, 1)), "cannot write mode RGBA as JPEG"),
        ("list[jpeg]", 7, "takes a list of images, got int"),
    ],
)
def test_bad_values_name_row_and_column(encoding: str, value: Any, message: str, tmp_path: Path) -> None:
    writer = MDSWriter(tmp_path, {"cell": encoding})
    with pytest.raises(UserError, match="row 0, column 'cell'") as caught:
        writer.write({"cell": value})
    assert message in str(caught.value)


def test_rows_must_have_the_columns(tmp_path: Path) -> None:
    writer = MDSWriter(tmp_path, {"a": "str", "b": "str"})
    writer.write({"a": "", "b": ""})
    with pytest.raises(UserError, match=r"row 1: missing columns \['b'\], unknown columns \['c'\]"):
        writer.write({"a": "", "c": ""})


def test_an_error_leaves_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        write(tmp_path, {"a": "str"}, [{"a": "good"}, {"a": 1}])
    assert not (tmp_path / "index.json").exists()


def test_a_dataset_is_not_written_over(tmp_path: Path) -> None:
    write(tmp_path, {"a": "str"}, [{"a": "kept"}])
    with pytest.raises(UserError, match="holds an MDS dataset already"):
        MDSWriter(tmp_path, {"a": "str"})
    assert read_rows(tmp_path)[0]["a"] == "kept"


def test_big_endian_arrays_are_turned(tmp_path: Path) -> None:
    path = write(tmp_path, {"a": "ndarray:int32"}, [{"a": np.array([1, 2], ">i4")}])
    assert read_rows(path)[0]["a"]["values"] == [1, 2]


def test_nothing_partial_stays_behind(tmp_path: Path) -> None:
    path = write(tmp_path, {"a": "str"}, [{"a": "x" * 90} for _ in range(9)], size_limit=400, compression="gz")
    assert {file.suffix for file in path.iterdir()} == {".gz", ".json"}
    assert len(MDSSource(path).expected()) == 9
