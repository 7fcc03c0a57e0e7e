from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

import proctor.sources.lines as lines_module
from proctor.rows import UserError
from proctor.sources.base import BLOCK_BYTES
from proctor.sources.files import DataFile, LocalFolder
from proctor.sources.jsonl import FIRST_ROWS, JsonlSource
from proctor.sources.jsonrows import JSON_METADATA
from proctor.sources.lines import index_lines, read_lines
from tests.sources.support import column, errors, read_blocks, read_rows, write_jsonl


def test_a_directory_is_one_source_in_name_order(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "b.jsonl", [{"n": n} for n in range(3, 7)])
    write_jsonl(tmp_path / "a.jsonl", [{"n": n} for n in range(3)])
    write_jsonl(tmp_path / "c.jsonl", [])
    source = JsonlSource(tmp_path)
    assert column(read_rows(source), "n") == list(range(7))
    assert [group.shard for group in source.groups(BitMap64([2, 3]), 100)] == [0, 1]
    assert column(read_rows(source, BitMap64([6])), "n") == [6]


@pytest.mark.parametrize(
    ("values", "type_", "is_json"),
    [
        (["a", None, "b"], pa.large_string(), False),
        ([True, None, False], pa.bool_(), False),
        ([1, None, -(2**63)], pa.int64(), False),
        ([1, 2.5, None], pa.float64(), False),
        ([["a", "b"], [], None], pa.list_(pa.large_string()), False),
        ([2**63, 1], pa.large_string(), True),
        ([1, "a"], pa.large_string(), True),
        ([1, True], pa.large_string(), True),
        ([[1, 2]], pa.large_string(), True),
        ([["a", None]], pa.large_string(), True),
        ([{"x": 1}, []], pa.large_string(), True),
        ([[], None], pa.large_string(), True),
        ([None, None], pa.large_string(), True),
    ],
)
def test_column_types_follow_from_the_values(
    values: list[Any], type_: pa.DataType, is_json: bool, tmp_path: Path
) -> None:
    source = JsonlSource(write_jsonl(tmp_path / "a.jsonl", [{"other": 1}, *({"x": value} for value in values)]))
    field = source.columns().field("x")
    assert field.type == type_
    assert (field.metadata == JSON_METADATA) is is_json
    read = column(read_rows(source), "x")
    if is_json:
        read = [None if text is None else msgspec.json.decode(text) for text in read]
    assert read == [None, *values]


@pytest.mark.parametrize(
    ("first", "later", "message"),
    [
        (1, "2", "column 'my key': Expected int, got str"),
        (1, 2.5, "column 'my key': Expected int, got float"),
        (1, 2**63, "column 'my key': Expected int <= 9223372036854775807"),
        (1.5, "x", "column 'my key': Expected float, got str"),
        ("a", 1, "column 'my key': Expected str, got int"),
        (True, 0, "column 'my key': Expected bool, got int"),
        (["a"], "a", "column 'my key': Expected array, got str"),
        (["a"], [1], "column 'my key[0]': Expected str, got int"),
    ],
)
def test_a_later_value_that_does_not_fit_costs_its_row(first: Any, later: Any, message: str, tmp_path: Path) -> None:
    rows = [{"my key": first}] * FIRST_ROWS + [{"my key": later}, {"my key": first, "unheard": 1}]
    read = read_rows(JsonlSource(write_jsonl(tmp_path / "a.jsonl", rows)), max_rows=2000)
    assert errors(read) == {FIRST_ROWS: "read.corrupt"}
    assert read[FIRST_ROWS]["error_message"] == f"a.jsonl, line {FIRST_ROWS + 1}: {message}"
    assert read[-1]["my key"] == first


def test_malformed_lines_cost_their_rows_and_blank_ones_are_none(tmp_path: Path) -> None:
    lines: list[str | bytes] = [
        b'\xef\xbb\xbf{"a": "first", "j": {}}',
        "",
        '{"a": "second", "j": [1]}\r',
        " \t ",
        '{"a": "third"',
        "[1, 2]",
        '{"a": NaN}',
        b'{"a": "\xff\xfe"}',
        b'{"j": "\xff\xfe"}',
        '{"a": "x"} {"a": "y"}',
        '{"j": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"a": "last"}',
    ]
    path = write_jsonl(tmp_path / "a.jsonl", lines)
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    rows = read_rows(JsonlSource(path))
    assert errors(rows) == dict.fromkeys(range(2, 9), "read.corrupt")
    assert column(rows, "a") == ["first", "second", *[None] * 7, "last"]
    assert [row["error_message"] for row in rows[2:9]] == [
        "a.jsonl, line 5: Input data was truncated",
        "a.jsonl, line 6: Expected object, got array",
        "a.jsonl, line 7: JSON is malformed: invalid character (byte 6)",
        "a.jsonl, line 8: Invalid UTF-8 encoded string",
        "a.jsonl, line 9: 'utf-8' codec can't decode byte 0xff in position 1: invalid start byte",
        "a.jsonl, line 10: JSON is malformed: trailing characters (byte 12)",
        "a.jsonl, line 11: nested too deeply",
    ]


@pytest.mark.parametrize("content", ["", "\n\n", "not json\n", "[1]\n{}\n"])
def test_data_without_any_row_is_the_users_mistake(content: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(UserError, match=r"a\.jsonl: none of the first rows is a JSON object with keys"):
        JsonlSource(tmp_path / "a.jsonl")


def test_keys_that_cannot_be_columns_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="key 'a\"b' has quotes"):
        JsonlSource(write_jsonl(tmp_path / "a.jsonl", [{'a"b': 1}]))
    source = JsonlSource(write_jsonl(tmp_path / "a.jsonl", [{"row_id": "mine", "class": 1, "ä b.c": 2, "": 3}]))
    assert source.columns().names == ["jsonl_row_id", "class", "ä b.c", ""]
    assert list(read_rows(source)[0].values())[4:] == ["mine", 1, 2, 3]


def test_blocks_are_bounded_by_lines_and_by_images(tmp_path: Path) -> None:
    (tmp_path / "large.png").write_bytes(bytes(BLOCK_BYTES // 3))
    small, large = ["large.png"] * 2, ["x" * (BLOCK_BYTES // 4)]
    rows = [{"images": small, "text": ""}] * 6 + [{"images": [], "text": large[0]}] * 6
    source = JsonlSource(write_jsonl(tmp_path / "a.jsonl", rows), images=["images"])
    blocks = read_blocks(source)
    assert sum(block.num_rows for block in blocks) == 12
    assert all(block.nbytes <= BLOCK_BYTES for block in blocks)


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(-1e300, 1e300), st.text()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
json_rows = st.dictionaries(st.sampled_from(["a", "b", "c d"]), json_values)


@given(
    rows=st.lists(st.tuples(json_rows, st.sampled_from(["", "\n", " \n\n"])), min_size=1, max_size=30), data=st.data()
)
@settings(max_examples=100, deadline=None)
def test_what_was_written_comes_back(
    rows: list[tuple[dict[str, Any], str]], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("round") / "a.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode({**row, "k": 0}) + b"\n" + blank.encode() for row, blank in rows))
    source = JsonlSource(path)
    todo = BitMap64(data.draw(st.sets(st.integers(0, len(rows) - 1))))
    read = read_rows(source, todo, max_rows=data.draw(st.integers(1, 20)))
    marked = {field.name for field in source.columns() if field.metadata == JSON_METADATA}
    for row_id, got in zip(todo, read, strict=True):
        for name in source.columns().names:
            value = got[name]
            value = msgspec.json.decode(value) if name in marked and value is not None else value
            assert value == ({**rows[row_id][0], "k": 0}).get(name)


@given(
    lines=st.lists(st.sampled_from([b"", b" ", b"a", b"bb", b"c" * 50]), max_size=60),
    ends_open=st.booleans(),
    data=st.data(),
)
@settings(deadline=None)
def test_marks_lead_to_every_line(
    lines: list[bytes], ends_open: bool, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    content = b"\n".join(lines) if ends_open else b"".join(line + b"\n" for line in lines)
    path.write_bytes(content)
    rows = [(number, line) for number, line in enumerate(lines) if line.strip()]
    seen: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines_module, "MARK_ROWS", 3)
        patch.setattr(lines_module, "MARK_BYTES", 100)
        index = index_lines(DataFile(LocalFolder(path.parent), path.name), seen.append)
    assert (index.rows, index.size_bytes) == (len(rows), len(content))
    assert b"".join(seen) == content
    assert len(index.marks) <= 1 + len(rows) // 3 + len(content) // 100
    wanted = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1)))) if rows else []
    assert [(line.row, line.number, line.data.rstrip(b"\n")) for line in read_lines(index, wanted)] == [
        (row, *rows[row]) for row in wanted
    ]


def test_a_file_that_changed_after_planning_is_not_mistaken_for_the_old_one(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"n": n} for n in range(10)])
    source, size = JsonlSource(path), path.stat().st_size
    with path.open("ab") as file:
        file.write(b'{"n": 10}\n')
    rows = read_rows(source)
    assert set(errors(rows).values()) == {"read.corrupt"}
    assert rows[0]["error_message"] == "a.jsonl: the file has changed since the run was planned"
    path.write_bytes(b'{"n": 0}'.ljust(size))
    assert errors(read_rows(source)) == dict.fromkeys(range(1, 10), "read.corrupt")
    path.unlink()
    assert set(errors(read_rows(source)).values()) == {"read.missing"}


def test_the_fingerprint_follows_every_byte_not_names_or_times(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"n": n} for n in range(10)])
    before = JsonlSource(path).fingerprint()
    os.utime(path, (1, 1))
    path.rename(tmp_path / "b.jsonl")
    assert JsonlSource(tmp_path).fingerprint() == before
    (tmp_path / "b.jsonl").write_bytes((tmp_path / "b.jsonl").read_bytes().replace(b"7", b"8"))
    assert JsonlSource(tmp_path).fingerprint() != before


def test_it_travels_light(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"n": n} for n in range(50_000)])
    packed = pickle.dumps(JsonlSource(path))
    assert len(packed) < 25_000
    assert column(read_rows(pickle.loads(packed), BitMap64([49_999])), "n") == [49_999]
