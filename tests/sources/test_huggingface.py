from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from proctor.rows import UserError
from proctor.sources.base import BLOCK_BYTES
from proctor.sources.huggingface import HuggingFaceSource
from tests.sources.support import column, errors, picture, read_blocks, read_rows, save

PICTURE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
FRAMES = pa.list_(PICTURE)


def table(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "text": pa.array([f"row {n}" for n in numbers], pa.string()),
            "image": pa.array([{"bytes": picture(n % 250), "path": None} for n in numbers], PICTURE),
            "frames": pa.array([[{"bytes": picture(n % 250), "path": "x"}] * (n % 3) for n in numbers], FRAMES),
        }
    )


def test_a_data_set_with_images(tmp_path: Path) -> None:
    folder = save(tmp_path / "data", [table(0, 35), table(35, 1), table(36, 0), table(36, 24)])
    source = HuggingFaceSource(folder, images=["image", "frames"])
    assert source.expected() == BitMap64(range(60))
    assert source.columns().names == ["n", "text", "image", "frames"]
    rows = read_rows(pickle.loads(pickle.dumps(source)))
    assert errors(rows) == {}
    assert column(rows, "n") == list(range(60))
    assert column(rows, "image") == [picture(n) for n in range(60)]
    assert column(rows, "frames") == [[picture(n)] * (n % 3) for n in range(60)]
    assert column(read_rows(source, BitMap64([9, 10, 34, 35, 59]), max_rows=2), "n") == [9, 10, 34, 35, 59]


def test_a_split_is_chosen_by_name(tmp_path: Path) -> None:
    save(tmp_path / "data" / "train", [table(0, 5)])
    (tmp_path / "data" / "dataset_dict.json").write_text('{"splits": ["train"]}')
    assert len(HuggingFaceSource(tmp_path / "data").expected()) == 5
    save(tmp_path / "data" / "test", [table(5, 3)])
    (tmp_path / "data" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert column(read_rows(HuggingFaceSource(tmp_path / "data", split="test")), "n") == [5, 6, 7]
    for split, message in (
        (None, r"has several splits \(set source.split; there are: train, test\)"),
        ("val", r"has no split 'val' \(there are: train, test\)"),
    ):
        with pytest.raises(UserError, match=message):
            HuggingFaceSource(tmp_path / "data", split=split)
    with pytest.raises(UserError, match="has no splits"):
        HuggingFaceSource(tmp_path / "data" / "train", split="train")


def test_a_file_that_is_cut_off_costs_what_is_behind_and_makes_the_run_incomplete(tmp_path: Path) -> None:
    folder = save(tmp_path / "data", [table(0, 30), table(30, 30)])
    path = folder / "data-00000-of-00002.arrow"
    whole = path.read_bytes()
    for size, rows_left in ((len(whole) // 2, 10), (len(whole) - 8, 30)):
        path.write_bytes(whole[:size])
        rows = read_rows(HuggingFaceSource(folder))
        assert errors(rows) == {rows_left: "read.corrupt"}
        assert column(rows, "n") == [*range(rows_left), None, *range(30, 60)]
        what = f"data-00000-of-00002.arrow is damaged behind row {rows_left}, and what follows cannot be counted: "
        assert rows[rows_left]["error_message"].startswith(f"data-00000-of-00002.arrow, row {rows_left}: {what}")
        assert [bool(row["notice"]) for row in rows] == [True] * (rows_left + 1) + [False] * 30


def test_a_value_that_cannot_be_costs_its_row(tmp_path: Path) -> None:
    folder = save(tmp_path / "data", [table(0, 30)])
    path = folder / "data-00000-of-00001.arrow"
    content = path.read_bytes()
    path.write_bytes(content.replace(b"row 17", b"\xff\xfew 17"))
    rows = read_rows(HuggingFaceSource(folder, images=["image"]))
    assert errors(rows) == {17: "read.corrupt"}
    assert rows[17]["error_message"] == "data-00000-of-00001.arrow, row 17: column 'text' cannot be read as string"
    assert column(rows, "text")[16:19] == ["row 16", None, "row 18"]


def test_flipped_bytes_never_end_the_process_or_lose_a_row(tmp_path: Path) -> None:
    folder = save(tmp_path / "data", [table(0, 30)])
    path = folder / "data-00000-of-00001.arrow"
    content = path.read_bytes()
    source = HuggingFaceSource(folder, images=["image", "frames"])
    for at in range(0, len(content), max(1, len(content) // 61)):
        changed = bytearray(content)
        changed[at] ^= 0xFF
        path.write_bytes(changed)
        assert len(read_rows(source)) == 30
        try:
            again = HuggingFaceSource(folder, images=["image", "frames"])
        except UserError:
            continue
        assert [row["row_id"] for row in read_rows(again)] == list(again.expected())


def test_a_file_that_changed_or_went(tmp_path: Path) -> None:
    folder = save(tmp_path / "data", [table(0, 30)])
    path = folder / "data-00000-of-00001.arrow"
    source = HuggingFaceSource(folder)
    path.write_bytes(path.read_bytes()[:-100])
    rows = read_rows(source)
    assert rows[0]["error_message"].endswith("row 0: the file has changed since the run was planned")
    assert set(errors(rows).values()) == {"read.corrupt"}
    path.unlink()
    assert set(errors(read_rows(source)).values()) == {"read.missing"}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"_data_files": [{"filename": "../../etc/passwd"}]}, "names a file outside of its folder: '../../etc/passwd'"),
        ({"_data_files": [{"filename": "gone.arrow"}]}, r"gone\.arrow: cannot read the Arrow file: No such file"),
        ({"_data_files": [{"filename": "state.json"}]}, "cannot read the Arrow file: "),
        ({"_data_files": []}, "names no data files"),
        ({"_indices_data_files": [{"filename": "indices.arrow"}]}, "rows are chosen by a separate index"),
    ],
)
def test_what_cannot_be_read_is_the_users_mistake(state: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        HuggingFaceSource(save(tmp_path / "data", [table(0, 3)], **state))


def test_other_folders_and_other_columns_are_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"state\.json: no data set on disk: No such file or directory"):
        HuggingFaceSource(tmp_path)
    with pytest.raises(UserError, match="from local paths only"):
        HuggingFaceSource("s3://bucket/data/")
    folder = save(tmp_path / "data", [table(0, 3), table(3, 3).drop_columns(["text"])])
    with pytest.raises(UserError, match=r"data-00001-of-00002\.arrow: column 'text' is no such column"):
        HuggingFaceSource(folder)


def test_blocks_are_bounded_and_the_fingerprint_follows_the_rows(tmp_path: Path) -> None:
    data = pa.table({"data": [bytes(BLOCK_BYTES // 5)] * 20})
    source = HuggingFaceSource(save(tmp_path / "data", [data], batch=20))
    assert all(block.nbytes <= BLOCK_BYTES for block in read_blocks(source))
    other = HuggingFaceSource(save(tmp_path / "other", [data], batch=19))
    assert source.fingerprint() != other.fingerprint()
    assert source.fingerprint() == HuggingFaceSource(tmp_path / "data").fingerprint()
