from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from proctor.rows import ErrorKind, Failure, Sample, UserError
from proctor.sources.cells import IMAGES
from proctor.sources.jsonl import FIRST_ROWS, JsonlSource
from proctor.sources.samples import Unprepared, check_columns, to_samples
from proctor.spec import ColumnsSpec
from tests.sources.support import column, errors, picture, read_blocks, read_rows, write_jsonl


def test_images_in_every_form(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(picture(1))
    text = base64.b64encode(picture(2)).decode()
    one = ["a.png", text, f"data:image/png;base64,{text}", None, "../x.png", "b.png"]
    many = [["a.png", text], [], None, ["a.png"], ["a.png"], ["a.png"]]
    rows = [{"one": cell, "many": cells} for cell, cells in zip(one, many, strict=True)]
    source = JsonlSource(write_jsonl(tmp_path / "a.jsonl", rows), images=["many", "one"])
    assert source.columns() == pa.schema({"one": IMAGES, "many": IMAGES})
    read = read_rows(source)
    assert column(read, "one") == [[picture(1)], [picture(2)], [picture(2)], None, None, None]
    assert column(read, "many") == [[picture(1), picture(2)], [], None, [picture(1)], None, None]
    assert errors(read) == {4: "read.corrupt", 5: "read.missing"}
    assert read[5]["error_message"] == "a.jsonl, line 6: column 'one', image 1: No such file or directory: 'b.png'"


def image_rows(folder: Path, *cells: Any, before: int = 10) -> list[dict[str, Any]]:
    """Rows of lists, then one row for each cell, then one more list."""
    (folder / "a.png").write_bytes(picture(1))
    rows = [{"images": cell} for cell in [*[["a.png"]] * before, *cells, ["a.png"]]]
    return read_rows(JsonlSource(write_jsonl(folder / "a.jsonl", rows), images=["images"]), max_rows=2000)


TEXT = base64.b64encode(picture(2)).decode()


@pytest.mark.parametrize("before", [10, FIRST_ROWS])
def test_the_forms_of_an_image_may_be_mixed(before: int, tmp_path: Path) -> None:
    rows = image_rows(
        tmp_path,
        "a.png",
        TEXT,
        {"path": "a.png"},
        {"bytes": TEXT, "path": "gone.png"},
        {"bytes": None, "path": "a.png", "width": 4},
        {"bytes": f"data:image/png;base64,{TEXT}"},
        [{"path": "a.png"}, "a.png", {"bytes": TEXT}],
        [],
        None,
        before=before,
    )
    one, two = picture(1), picture(2)
    assert errors(rows) == {}
    expected = [[one], [two], [one], [two], [one], [two], [one, one, two], [], None]
    assert column(rows, "images") == [*[[one]] * before, *expected, [one]]


@pytest.mark.parametrize("before", [10, FIRST_ROWS])
@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (17, "column 'images': Expected str | object | array, got int"),
        (["a.png", 17], "column 'images[1]': Expected str | object, got int"),
        ([["a.png"]], "column 'images[0]': Expected str | object, got array"),
        ({"file": "a.png"}, "column 'images', image 1: an object with neither bytes nor path"),
        (["a.png", {"bytes": None}], "column 'images', image 2: an object with neither bytes nor path"),
        ({"path": 17}, "column 'images.path': Expected str, got int"),
        ({"bytes": "a.png"}, "column 'images', image 1: not base64: Only base64 data is allowed: 'a.png'"),
    ],
)
def test_a_cell_that_is_no_image_costs_its_row_only(cell: Any, message: str, before: int, tmp_path: Path) -> None:
    rows = image_rows(tmp_path, cell, before=before)
    assert errors(rows) == {before: "read.corrupt"}
    assert rows[before]["error_message"] == f"a.jsonl, line {before + 1}: {message}"
    assert column(rows, "images") == [*[[picture(1)]] * before, None, [picture(1)]]


def test_a_null_in_a_list_of_images_costs_its_row_only(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(picture(1))
    cells = [["a.png"], ["a.png", None], "a.png"]
    path = write_jsonl(tmp_path / "a.jsonl", [{"images": cell} for cell in cells])
    (block,) = read_blocks(JsonlSource(path, images=["images"]))
    first, second, third = to_samples(block, ColumnsSpec(images=["images"]))
    assert isinstance(first, Sample)
    assert isinstance(third, Sample)
    message = "column 'images': no image (null); an empty list says that there is none"
    assert second == Unprepared(1, Failure(ErrorKind.PREPARE_FAILED, message))


def test_later_lists_fit_a_column_that_began_with_single_images(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(picture(1))
    cells = [*["a.png"] * FIRST_ROWS, ["a.png"] * 2]
    path = write_jsonl(tmp_path / "a.jsonl", [{"row_id": cell} for cell in cells])
    rows = read_rows(JsonlSource(path, images=["jsonl_row_id"]), max_rows=2000)
    assert column(rows, "jsonl_row_id") == [*[[picture(1)]] * FIRST_ROWS, [picture(1)] * 2]


def test_a_column_of_numbers_is_not_taken_for_images(tmp_path: Path) -> None:
    source = JsonlSource(write_jsonl(tmp_path / "a.jsonl", [{"n": 1}, {"n": None}]), images=["n"])
    with pytest.raises(UserError, match="column 'n' is int64, which cannot be an image"):
        check_columns(source.columns(), ColumnsSpec(images=["n"]))
