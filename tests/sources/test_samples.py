from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from proctor.rows import ErrorKind, Failure, Sample
from proctor.sources.base import BLOCK_FIELDS
from proctor.sources.jsonrows import JSON_METADATA
from proctor.sources.mds import MDSSource, MDSWriter
from proctor.sources.samples import FieldError, Fields, Unprepared, to_samples
from proctor.spec import ColumnsSpec
from tests.sources.support import picture, read_blocks


def block(fields: dict[str, tuple[pa.DataType, list[Any]]], json: tuple[str, ...] = (), **facts: list[Any]) -> pa.Table:
    """A block with the given columns; facts are its `BLOCK_FIELDS`, row ids from 10 on by default."""
    count = len(next(iter(fields.values()))[1])
    head = {"row_id": list(range(10, 10 + count)), **facts}
    arrays = [pa.array(head.get(field.name, [None] * count), field.type) for field in BLOCK_FIELDS]
    arrays += [pa.array(cells, type_) for type_, cells in fields.values()]
    own = [
        pa.field(name, type_, metadata=JSON_METADATA if name in json else None) for name, (type_, _) in fields.items()
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema([*BLOCK_FIELDS, *own]))


def one(table: pa.Table, columns: ColumnsSpec) -> Sample | Unprepared:
    (made,) = to_samples(table, columns)
    return made


def failure(kind: ErrorKind, message: str, sample_id: str | None = None) -> Unprepared:
    return Unprepared(10, Failure(kind, message), sample_id)


def test_images_come_in_the_order_of_the_spec() -> None:
    table = block(
        {
            "left": (pa.large_binary(), [b"L0", b"L1"]),
            "rest": (pa.list_(pa.large_binary()), [[b"a", b"b"], []]),
            "text": (pa.string(), [base64.b64encode(picture()).decode()] * 2),
            "hf": (pa.struct({"bytes": pa.binary(), "path": pa.string()}), [{"bytes": b"h", "path": "x"}] * 2),
            "unused": (pa.large_binary(), [b"u", b"v"]),
        }
    )
    first, second = to_samples(table, ColumnsSpec(images=["rest", "left", "text", "hf"]))
    assert isinstance(first, Sample)
    assert isinstance(second, Sample)
    assert first.images == (b"a", b"b", b"L0", picture(), b"h")
    assert second.images == (b"L1", picture(), b"h")
    assert dict(first.fields) == {"unused": b"u"}
    assert (first.row_id, second.row_id, first.sample_id) == (10, 11, None)


def test_fields_are_python_values_and_json_is_decoded() -> None:
    table = block(
        {
            "id": (pa.int64(), [7]),
            "target": (pa.large_string(), ['{"surface": "wet", "waypoints": [[1.5, 2]]}']),
            "plain": (pa.large_string(), ['{"not": "decoded"}']),
            "nothing": (pa.large_string(), [None]),
            "record": (pa.struct({"x": pa.int64()}), [{"x": 1}]),
        },
        json=("target", "nothing"),
    )
    sample = one(table, ColumnsSpec(sample_id="id", target="target"))
    assert isinstance(sample, Sample)
    assert sample.sample_id == "7"
    assert sample.fields == {
        "id": 7,
        "target": {"surface": "wet", "waypoints": [[1.5, 2]]},
        "plain": '{"not": "decoded"}',
        "nothing": None,
        "record": {"x": 1},
    }
    assert "{plain} {id}".format_map(sample.fields) == '{"not": "decoded"} 7'
    assert "image" not in sample.fields


def test_rows_that_were_not_read_keep_their_fault() -> None:
    table = block(
        {"image": (pa.large_binary(), [None, b"x"])},
        error_kind=["read.missing", None],
        error_message=["a.jsonl, line 1: no such file", None],
    )
    lost, sample = to_samples(table, ColumnsSpec(images=["image"]))
    assert lost == failure(ErrorKind.READ_MISSING, "a.jsonl, line 1: no such file")
    assert isinstance(sample, Sample)


NO_IMAGE = (ErrorKind.PREPARE_FAILED, "no image (null); an empty list says that there is none")


@pytest.mark.parametrize(
    ("type_", "cell", "expected"),
    [
        (pa.large_binary(), None, NO_IMAGE),
        (pa.list_(pa.large_binary()), [b"a", None], NO_IMAGE),
        (pa.list_(pa.large_binary()), None, NO_IMAGE),
        (pa.string(), "a.png", (ErrorKind.PREPARE_DECODE, "neither base64 nor a data URI: 'a.png'")),
        (pa.string(), "data:;base64,?", (ErrorKind.PREPARE_DECODE, "not base64: Only base64 data is allowed: '?'")),
    ],
)
def test_a_wrong_image_cell_costs_its_row(type_: pa.DataType, cell: Any, expected: tuple[ErrorKind, str]) -> None:
    kind, message = expected
    table = block({"image": (type_, [cell]), "key": (pa.string(), ["k"])})
    assert one(table, ColumnsSpec(images=["image"], sample_id="key")) == failure(
        kind, f"column 'image': {message}", "k"
    )


def test_wrong_fields_cost_their_row_only_if_they_are_needed() -> None:
    table = block(
        {"target": (pa.large_string(), ["{", "1"]), "prompt": (pa.string(), ["?", None]), "n": (pa.int64(), [1, 2])},
        json=("target",),
    )
    broken, fine = to_samples(table, ColumnsSpec(target="target"))
    assert broken == failure(ErrorKind.PREPARE_FAILED, "column 'target': not JSON: Input data was truncated")
    assert isinstance(fine, Sample)
    unneeded, promptless = to_samples(table, ColumnsSpec(prompt="prompt"))
    assert isinstance(unneeded, Sample)
    with pytest.raises(FieldError, match="column 'target': not JSON"):
        unneeded.fields["target"]
    assert unneeded.fields["n"] == 1
    assert promptless == Unprepared(11, Failure(ErrorKind.PREPARE_FAILED, "column 'prompt': no prompt (null)"))


def test_values_that_arrow_cannot_give_cost_their_row() -> None:
    bad = pa.array([b"\xff", b"ok"]).view(pa.string())
    table = block({"text": (pa.string(), ["a", "b"])})
    table = table.set_column(len(BLOCK_FIELDS), "text", bad)
    broken, fine = to_samples(table, ColumnsSpec(target="text"))
    assert isinstance(broken, Unprepared)
    assert broken.failure.kind is ErrorKind.PREPARE_FAILED
    assert isinstance(fine, Sample)
    assert isinstance(fine.fields, Fields)
    assert len(fine.fields) == 1


def test_an_mds_row_becomes_a_sample(tmp_path: Path) -> None:
    columns = {"frames": "list[png]", "target": "json", "id": "str_int"}
    with MDSWriter(tmp_path / "data", columns) as writer:
        writer.write({"frames": [picture(1), picture(2)], "target": {"surface": "dry"}, "id": 5})
    (table,) = read_blocks(MDSSource(tmp_path / "data"))
    sample = one(table, ColumnsSpec(images=["frames"], target="target", sample_id="id"))
    assert isinstance(sample, Sample)
    assert (sample.row_id, sample.sample_id, sample.images) == (0, "5", (picture(1), picture(2)))
    assert sample.fields == {"target": {"surface": "dry"}, "id": 5}
