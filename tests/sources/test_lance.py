from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from proctor.rows import UserError
from proctor.sources.base import BLOCK_BYTES
from proctor.sources.lancedata import LanceSource
from tests.sources.support import column, errors, picture, read_blocks, read_rows
from tests.storage.bucket import served

lance = pytest.importorskip("lance")


def table(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "image": [{"bytes": picture(n % 250), "path": "x"} for n in numbers],
            "frames": pa.array([[picture(n % 250)] * (n % 3) for n in numbers], pa.list_(pa.binary())),
        }
    )


def write(path: Path, count: int = 100, **options: Any) -> Any:
    return lance.write_dataset(table(0, count), str(path), max_rows_per_file=40, **options)


def test_rows_are_taken_by_position_and_deleted_ones_are_none(tmp_path: Path) -> None:
    dataset = write(tmp_path / "a.lance")
    dataset.delete("n in (3, 50, 99)")
    source = LanceSource(tmp_path / "a.lance", images=["image", "frames"])
    left = [n for n in range(100) if n not in (3, 50, 99)]
    assert source.expected() == BitMap64(range(97))
    rows = read_rows(pickle.loads(pickle.dumps(source)), max_rows=30)
    assert column(rows, "n") == left
    assert column(rows, "image") == [picture(n) for n in left]
    assert column(rows, "frames") == [[picture(n)] * (n % 3) for n in left]
    assert column(read_rows(source, BitMap64([3, 48, 49, 96])), "n") == [4, 49, 51, 98]
    assert [group.shard for group in source.groups(BitMap64([0, 38, 39, 96]), 100)] == [0, 1, 2]


def test_a_run_is_pinned_to_a_version(tmp_path: Path) -> None:
    dataset = write(tmp_path / "a.lance")
    source = LanceSource(tmp_path / "a.lance")
    dataset.delete("n < 50")
    lance.write_dataset(table(100, 10), str(tmp_path / "a.lance"), mode="append")
    assert column(read_rows(source), "n") == list(range(100))
    assert column(read_rows(LanceSource(tmp_path / "a.lance", version=2)), "n") == list(range(50, 100))
    latest = LanceSource(tmp_path / "a.lance")
    assert column(read_rows(latest), "n") == list(range(50, 110))
    assert len({source.fingerprint(), latest.fingerprint()}) == 2
    assert LanceSource(tmp_path / "a.lance", version=1).fingerprint() == source.fingerprint()


@pytest.mark.parametrize("damage", ["cut", "garbage", "gone"])
def test_a_damaged_file_costs_its_rows(damage: str, tmp_path: Path) -> None:
    dataset = write(tmp_path / "a.lance")
    (file,) = dataset.get_fragments()[1].data_files()
    path = tmp_path / "a.lance" / "data" / file.path
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(content[:-100] if damage == "cut" else bytes(len(content)))
    source = LanceSource(tmp_path / "a.lance")
    rows = read_rows(source)
    assert errors(rows) == dict.fromkeys(range(40, 80), "read.missing" if damage == "gone" else "read.corrupt")
    assert rows[40]["error_message"].startswith("row 40: ")
    assert ".rs:" not in rows[40]["error_message"]
    assert [row["n"] for row in rows if row["error_kind"] is None] == [*range(40), *range(80, 100)]


def test_no_data_set_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a\.lance: no such directory"):
        LanceSource(tmp_path / "a.lance")
    write(tmp_path / "a.lance")
    with pytest.raises(UserError, match=r"versions/99\.manifest was not found"):
        LanceSource(tmp_path / "a.lance", version=99)
    with pytest.raises(UserError, match="Lance data sets are not read from https://"):
        LanceSource("https://host/a.lance")


def test_blocks_are_bounded(tmp_path: Path) -> None:
    data = pa.table({"data": [os.urandom(BLOCK_BYTES // 5) for _ in range(12)]})
    lance.write_dataset(data, str(tmp_path / "a.lance"))
    blocks = read_blocks(LanceSource(tmp_path / "a.lance"))
    assert sum(block.num_rows for block in blocks) == 12
    assert all(block.nbytes <= BLOCK_BYTES for block in blocks)


def test_a_data_set_in_object_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with served(tmp_path) as bucket:
        write(bucket.root / "data" / "a.lance")
        source = LanceSource(bucket.url("data/a.lance"), images=["image"], storage=bucket.options)
        assert column(read_rows(source, BitMap64([0, 41, 99])), "image") == [picture(n) for n in (0, 41, 99)]


def test_without_the_package_the_message_says_what_to_install(tmp_path: Path) -> None:
    code = f"""
import sys
sys.modules["lance"] = None
from proctor.sources.lancedata import LanceSource
LanceSource({str(tmp_path)!r})
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert "source.kind: Lance data sets need the package pylance: " in done.stderr
    assert "(pip install 'proctor[lance]')" in done.stderr
