from __future__ import annotations

import base64
import gc
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from proctor.rows import UserError
from proctor.sources.base import BLOCK_BYTES
from proctor.sources.cells import IMAGE, IMAGES
from proctor.sources.parquet import ParquetSource
from proctor.sources.rowgroups import RowGroupReader
from tests.sources.support import column, errors, picture, read_blocks, read_rows


def write(path: Path, table: pa.Table, **options: Any) -> Path:
    pq.write_table(table, path, **{"row_group_size": 7, **options})
    return path


def numbered(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table({"n": pa.array(numbers, pa.int64()), "text": pa.array([f"row {n}" for n in numbers], pa.string())})


def test_a_directory_is_one_source_in_name_order(tmp_path: Path) -> None:
    write(tmp_path / "b.parquet", numbered(20, 10))
    write(tmp_path / "a.parquet", numbered(0, 20))
    write(tmp_path / "empty.parquet", numbered(0, 0))
    write(tmp_path / ".c.parquet", numbered(0, 5))
    source = ParquetSource(tmp_path)
    rows = read_rows(source)
    assert column(rows, "n") == list(range(30))
    assert source.columns() == pa.schema({"n": pa.int64(), "text": pa.string()})
    assert errors(rows) == {}


def test_only_wanted_rows_of_only_their_files_are_read(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", numbered(0, 20))
    write(tmp_path / "b.parquet", numbered(20, 20))
    source = ParquetSource(tmp_path)
    (tmp_path / "a.parquet").unlink()
    todo = BitMap64([20, 27, 28, 39])
    assert column(read_rows(source, todo), "text") == ["row 20", "row 27", "row 28", "row 39"]
    assert [group.shard for group in source.groups(todo, 3)] == [1, 1]


def test_groups_follow_row_groups(tmp_path: Path) -> None:
    source = ParquetSource(write(tmp_path / "a.parquet", numbered(0, 20)))
    assert [len(group.row_ids) for group in source.groups(source.expected(), 7)] == [7, 7, 6]
    assert [len(group.row_ids) for group in source.groups(source.expected(), 13)] == [7, 13]


arrow_columns = st.fixed_dictionaries(
    {
        "number": st.integers(-(2**63), 2**63 - 1) | st.none(),
        "real": st.floats(allow_nan=False) | st.none(),
        "text": st.text(max_size=20) | st.none(),
        "flag": st.booleans() | st.none(),
        "data": st.binary(max_size=20) | st.none(),
        "texts": st.lists(st.text(max_size=5), max_size=3) | st.none(),
        "record": st.fixed_dictionaries({"x": st.integers(0, 9), "y": st.text(max_size=3)}) | st.none(),
    }
)
ARROW_SCHEMA = pa.schema(
    {
        "number": pa.int64(),
        "real": pa.float64(),
        "text": pa.string(),
        "flag": pa.bool_(),
        "data": pa.binary(),
        "texts": pa.list_(pa.string()),
        "record": pa.struct({"x": pa.int64(), "y": pa.string()}),
    }
)


@given(rows=st.lists(arrow_columns, min_size=1, max_size=30), size=st.integers(1, 12), data=st.data())
@settings(max_examples=60, deadline=None)
def test_what_was_written_comes_back(
    rows: list[dict[str, Any]], size: int, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("round") / "a.parquet"
    write(path, pa.Table.from_pylist(rows, ARROW_SCHEMA), row_group_size=size, use_dictionary=data.draw(st.booleans()))
    todo = BitMap64(data.draw(st.sets(st.integers(0, len(rows) - 1))))
    read = read_rows(ParquetSource(path), todo, max_rows=data.draw(st.integers(1, 20)))
    assert [{name: row[name] for name in ARROW_SCHEMA.names} for row in read] == [rows[row] for row in todo]


def test_types_that_arrow_itself_barely_knows_survive_a_damaged_neighbour(tmp_path: Path) -> None:
    table = pa.table(
        {
            "view": pa.array([b"a", b"b", b"c"], pa.binary_view()),
            "text": pa.array(["x", "y", "z"], pa.string_view()),
            "kind": pa.array(["u", "v", "u"]).dictionary_encode(),
            "map": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
            "image": ["1.png", "2.png", "3.png"],
        }
    )
    for name in ("1.png", "3.png"):
        (tmp_path / name).write_bytes(picture())
    rows = read_rows(ParquetSource(write(tmp_path / "a.parquet", table), images=["image"]))
    assert errors(rows) == {1: "read.missing"}
    assert column(rows, "view") == [b"a", None, b"c"]
    assert column(rows, "text") == ["x", None, "z"]
    assert column(rows, "kind") == ["u", None, "u"]
    assert column(rows, "map") == [[("k", 1)], None, None]


def image_tables() -> dict[str, pa.Array]:
    images = [picture(shade) for shade in range(3)]
    texts = [base64.b64encode(data).decode() for data in images]
    structs = [{"bytes": images[0], "path": None}, {"bytes": images[1], "path": "x"}, {"bytes": None, "path": "2.png"}]
    return {
        "bytes": pa.array(images, pa.binary()),
        "view": pa.array(images, pa.binary_view()),
        "base64": pa.array(texts),
        "uri": pa.array([f"data:image/png;base64,{text}" for text in texts]),
        "path": pa.array(["0.png", "1.png", "2.png"]),
        "struct": pa.array(structs),
    }


@pytest.mark.parametrize("form", image_tables())
@pytest.mark.parametrize("listed", [False, True])
def test_every_form_of_image_becomes_bytes(form: str, listed: bool, tmp_path: Path) -> None:
    for shade in range(3):
        (tmp_path / f"{shade}.png").write_bytes(picture(shade))
    cells = image_tables()[form]
    if listed:
        cells = pa.ListArray.from_arrays([0, 2, 2, 3], cells)
    source = ParquetSource(
        write(tmp_path / "a.parquet", pa.table({"image": cells}), row_group_size=2), images=["image"]
    )
    assert source.columns().field("image").type == (IMAGES if listed else IMAGE)
    images = [picture(shade) for shade in range(3)]
    assert column(read_rows(source), "image") == ([images[:2], [], images[2:]] if listed else images)


def test_images_that_cannot_be_had_cost_their_own_rows(tmp_path: Path) -> None:
    (tmp_path / "ok.png").write_bytes(picture())
    names = [["ok.png"], ["ok.png", "gone.png"], ["../x.png"], None, [None], ["data:image/png;base64,?"]]
    source = ParquetSource(write(tmp_path / "a.parquet", pa.table({"frames": names})), images=["frames"])
    rows = read_rows(source)
    assert errors(rows) == {1: "read.missing", 2: "read.corrupt", 5: "read.corrupt"}
    assert (
        rows[1]["error_message"] == "a.parquet, row 1: column 'frames', image 2: No such file or directory: 'gone.png'"
    )
    assert column(rows, "frames") == [[picture()], None, None, None, [None], None]


def test_blocks_are_bounded_by_the_bytes_of_their_images(tmp_path: Path) -> None:
    size = BLOCK_BYTES // 3
    for name in range(4):
        (tmp_path / f"{name}.png").write_bytes(bytes(size))
    table = pa.table({"image": [f"{row % 4}.png" for row in range(12)]})
    source = ParquetSource(write(tmp_path / "a.parquet", table, row_group_size=100), images=["image"])
    assert len(source.groups(source.expected(), 100)) == 1
    blocks = read_blocks(source)
    assert sum(block.num_rows for block in blocks) == 12
    assert max(block.nbytes for block in blocks) <= BLOCK_BYTES


def test_blocks_are_bounded_where_rows_differ_in_size(tmp_path: Path) -> None:
    sizes = [10] * 500 + [BLOCK_BYTES // 4] * 10 + [2 * BLOCK_BYTES]
    table = pa.table({"data": [bytes(size) for size in sizes]})
    blocks = read_blocks(ParquetSource(write(tmp_path / "a.parquet", table, row_group_size=1000)))
    assert [len(cell) for block in blocks for cell in block["data"].to_pylist()] == sizes
    assert all(block.nbytes <= BLOCK_BYTES or block.num_rows == 1 for block in blocks)


def test_small_row_groups_do_not_make_small_blocks(tmp_path: Path) -> None:
    source = ParquetSource(write(tmp_path / "a.parquet", numbered(0, 500), row_group_size=5))
    assert [block.num_rows for block in read_blocks(source)] == [500]


@pytest.mark.parametrize("checksums", [True, False])
def test_a_damaged_page_costs_the_rows_from_there_to_the_end_of_its_row_group(checksums: bool, tmp_path: Path) -> None:
    cells = [f"<row {row}>".encode() + np.random.default_rng(row).bytes(300) for row in range(300)]
    options = {"data_page_size": 3000, "write_batch_size": 10, "use_dictionary": False, "compression": "none"}
    table = pa.table({"n": range(300), "data": cells})
    path = write(tmp_path / "a.parquet", table, row_group_size=100, write_page_checksum=checksums, **options)
    content = bytearray(path.read_bytes())
    at = content.index(b"<row 155>") - 4  # the length of the value stands before it
    # With checksums one flipped bit is seen; without, only what makes the lengths of values impossible.
    content[at : at + (1 if checksums else 4)] = b"?" if checksums else b"\xff" * 4
    path.write_bytes(content)
    rows = read_rows(ParquetSource(path))
    lost = list(errors(rows))
    assert 140 <= lost[0] <= 155
    assert lost == list(range(lost[0], 200))
    assert set(errors(rows).values()) == {"read.corrupt"}
    assert rows[170]["error_message"].startswith("a.parquet, row 170: row group 1: ")
    assert column(rows, "n") == [None if row in lost else row for row in range(300)]
    few = read_rows(ParquetSource(path), BitMap64([100, 139, 199, 200]), max_rows=1)
    assert errors(few) == {199: "read.corrupt"}


def test_text_that_is_not_utf8_costs_its_own_row(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", numbered(0, 20), use_dictionary=False, compression="none")
    content = path.read_bytes()
    at = content.index(b"row 12")
    path.write_bytes(content[:at] + b"\xff\xfe" + content[at + 2 :])
    rows = read_rows(ParquetSource(path))
    assert errors(rows) == {12: "read.corrupt"}
    assert rows[12]["error_message"] == "a.parquet, row 12: column 'text' cannot be read as string"


def test_a_file_without_a_sound_footer_is_named_before_the_run(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", numbered(0, 20))
    path = write(tmp_path / "b.parquet", numbered(0, 20))
    whole = path.read_bytes()
    for content in (b"", b"PAR1", whole[:-100], whole[:-8] + b"\xff\xff\xff\x7fPAR1", b"<html>403 Forbidden</html>"):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"b\.parquet: cannot read the Parquet footer: "):
            ParquetSource(tmp_path)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"n": [1], "text": [2]}, r"column 'text' is int64, in a\.parquet it is string"),
        ({"n": [1]}, r"column 'text' is no such column, in a\.parquet it is string"),
        ({"n": [1], "text": ["x"], "more": [1]}, r"column 'more' is int64, in a\.parquet it is no such column"),
    ],
)
def test_files_must_have_the_same_columns(other: dict[str, list[Any]], message: str, tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", numbered(0, 3))
    write(tmp_path / "b.parquet", pa.table(other))
    with pytest.raises(UserError, match=rf"b\.parquet: {message}"):
        ParquetSource(tmp_path)


def test_the_order_of_columns_may_differ(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", numbered(0, 3))
    write(tmp_path / "b.parquet", numbered(3, 3).select(["text", "n"]))
    assert column(read_rows(ParquetSource(tmp_path)), "n") == list(range(6))


def test_column_names_of_blocks_give_way_and_doubles_are_refused(tmp_path: Path) -> None:
    table = pa.table({"row_id": ["mine"], "notice": [1]})
    source = ParquetSource(write(tmp_path / "a.parquet", table))
    assert source.columns().names == ["parquet_row_id", "parquet_notice"]
    assert column(read_rows(source), "parquet_row_id") == ["mine"]
    double = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(UserError, match="several columns named 'a'"):
        ParquetSource(write(tmp_path / "a.parquet", double))


def test_required_fields_can_still_be_null_where_a_row_is_lost(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    source = ParquetSource(write(tmp_path / "a.parquet", pa.table({"n": [1, 2]}, schema=schema)))
    (tmp_path / "a.parquet").unlink()
    rows = read_rows(source)
    assert errors(rows) == {0: "read.missing", 1: "read.missing"}
    assert rows[0]["error_message"] == "a.parquet, row 0: No such file or directory"


def test_a_file_that_changed_after_planning_is_not_mistaken_for_the_old_one(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", numbered(0, 20))
    source = ParquetSource(path)
    write(path, numbered(0, 30), row_group_size=10)
    assert set(errors(read_rows(source)).values()) == {"read.corrupt"}
    write(path, pa.table({"other": range(20)}))
    rows = read_rows(source)
    assert len(errors(rows)) == 20
    assert "has changed since the run was planned" in rows[0]["error_message"]
    path.write_bytes(b"gone")
    assert set(errors(read_rows(source)).values()) == {"read.corrupt"}


def test_the_fingerprint_follows_the_content_not_names_or_times(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", numbered(0, 20))
    before = ParquetSource(path).fingerprint()
    os.utime(path, (1, 1))
    path.rename(tmp_path / "b.parquet")
    assert ParquetSource(tmp_path).fingerprint() == before
    write(tmp_path / "b.parquet", numbered(1, 20))
    assert ParquetSource(tmp_path).fingerprint() != before


def test_it_travels_without_open_files(tmp_path: Path) -> None:
    source = ParquetSource(write(tmp_path / "a.parquet", numbered(0, 20)))
    packed = pickle.dumps(source)
    assert len(packed) < 2000
    assert column(read_rows(pickle.loads(packed)), "n") == list(range(20))
    gc.collect()
    assert str(tmp_path) not in " ".join(os.path.realpath(link) for link in Path("/proc/self/fd").iterdir())


def test_blocks_in_order_read_a_row_group_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[int, int]] = []
    plain = RowGroupReader._begin

    def counted(self: RowGroupReader, number: int, batch_rows: int) -> None:
        begun.append((number, batch_rows))
        plain(self, number, batch_rows)

    monkeypatch.setattr(RowGroupReader, "_begin", counted)
    source = ParquetSource(write(tmp_path / "a.parquet", numbered(0, 3000), row_group_size=1500))
    assert column(read_rows(source, max_rows=64), "n") == list(range(3000))
    assert begun == [(0, 1024), (1, 1024)]
    assert column(read_rows(source, BitMap64(range(5, 3000, 7)), max_rows=50), "n") == list(range(5, 3000, 7))
    assert len(begun) == 4
    assert column(read_rows(source, BitMap64([1400, 1600])), "n") == [1400, 1600]
    assert column(read_rows(source, BitMap64([1400])), "n") == [1400]
    other: ParquetSource = pickle.loads(pickle.dumps(source))
    assert column(read_rows(other, BitMap64([1500, 1400, 3, 1401]), max_rows=1), "n") == [3, 1400, 1401, 1500]


def test_a_file_that_is_replaced_between_two_blocks_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", numbered(0, 100), row_group_size=100)
    source = ParquetSource(path)
    first, *rest = source.groups(source.expected(), 10)
    assert sum(block.num_rows for block in source.read(first)) == 10
    path.unlink()
    write(path, numbered(0, 70), row_group_size=100)
    kinds = [block["error_kind"].to_pylist() for group in rest for block in source.read(group)]
    assert kinds == [["read.corrupt"] * 10] * 9


@pytest.mark.slow
def test_a_row_group_is_never_loaded_whole(tmp_path: Path) -> None:
    rows = [np.random.default_rng(row).bytes(200_000) for row in range(600)]
    options = {"row_group_size": 600, "use_dictionary": False, "write_batch_size": 8}
    path = write(tmp_path / "a.parquet", pa.table({"data": rows}), **options)
    code = """
import sys, pyarrow as pa
from proctor.sources.parquet import ParquetSource
from proctor.sources.rowgroups import RowGroupReader
source = ParquetSource(sys.argv[1])
groups = source.groups(source.expected(), 1000, 1 << 40)
print(len(groups), sum(block.num_rows for block in source.read(groups[0])), pa.default_memory_pool().max_memory())
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    groups, count, peak = map(int, done.stdout.split())
    assert (groups, count) == (1, 600)
    assert peak < 5 * BLOCK_BYTES  # the row group has 120 MB
