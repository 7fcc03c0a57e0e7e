from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from PIL import Image

from proctor.demo.dataset import CORRUPT_ROWS, FAULTS, write_dataset
from proctor.demo.scenes import jpeg_frames, scene
from proctor.rows import UserError


@pytest.mark.parametrize("fault", FAULTS)
def test_a_spoiled_image_cannot_be_decoded(fault: str) -> None:
    good = jpeg_frames(scene(3))[0]
    Image.open(io.BytesIO(good)).load()
    with pytest.raises(OSError, match=r"identify|truncated"):
        Image.open(io.BytesIO(FAULTS[fault](good))).load()


def test_returns_the_spoiled_rows_that_exist(tmp_path: Path) -> None:
    assert write_dataset(tmp_path / "set", rows=60) == (13, 58)
    assert {13, 58} <= set(CORRUPT_ROWS)


def test_index_counts_the_rows_and_carries_hashes(tmp_path: Path) -> None:
    write_dataset(tmp_path / "set", rows=20, first_scene=500)
    shards = json.loads((tmp_path / "set" / "index.json").read_text())["shards"]
    assert sum(shard["samples"] for shard in shards) == 20
    assert set(shards[0]["raw_data"]["hashes"]) == {"xxh64"}


def test_the_same_call_writes_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_dataset(tmp_path / name, rows=15)
    files = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "b").iterdir()}


def test_a_spoiled_row_differs_from_the_good_one_only_in_its_first_frame(tmp_path: Path) -> None:
    good = jpeg_frames(scene(0))
    write_dataset(tmp_path / "set", rows=1, corrupt={0: "html"})
    data = (tmp_path / "set" / "shard.00000.mds").read_bytes()
    assert FAULTS["html"](b"") in data
    assert good[0] not in data
    assert all(frame in data for frame in good[1:])


def test_an_unknown_fault_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"unknown fault 'rotten'.*truncated"):
        write_dataset(tmp_path / "set", rows=1, corrupt={0: "rotten"})
