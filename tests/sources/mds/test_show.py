"""One row, told to a person."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from proctor.rows import UserError
from proctor.sources.mds.show import in_words, show_row
from tests.sources.mds.support import edit_file, write

COLUMNS = {
    "array": "ndarray",
    "blob": "bytes",
    "frame": "jpeg",
    "frames": "list[png]",
    "fixed": "ndarray:int8:2",
    "n": "int",
    "note": "str",
    "raw": "pil",
}


def image(name: str) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (6, 4), (9, 9, 9)).save(out, format=name)
    return out.getvalue()


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Three rows."""
    row: dict[str, Any] = {
        "array": np.zeros((2, 3), "float32"),
        "blob": bytes(range(40)),
        "frame": image("JPEG"),
        "frames": [image("PNG"), b"no image"],
        "fixed": np.array([1, -1], "int8"),
        "note": "wet [bold]road[/]",
        "raw": Image.new("L", (3, 2)),
    }
    return write(tmp_path / "data", COLUMNS, [{**row, "n": n} for n in range(3)])


def test_a_row(dataset: Path) -> None:
    row = show_row(dataset, 2)
    assert (row.row_id, row.error_kind, row.error_message) == (2, None, None)
    size = len(image("PNG"))
    values = {cell.column: cell.value for cell in row.cells}
    raw = values.pop("raw")
    assert (raw["format"], raw["width"], raw["height"]) == ("PNG", 3, 2)
    assert values == {
        "array": {"dtype": "float32", "shape": [2, 3]},
        "blob": {"bytes": 40, "head": bytes(range(16)).hex()},
        "frame": {"format": "JPEG", "width": 6, "height": 4, "bytes": len(image("JPEG"))},
        "frames": [{"format": "PNG", "width": 6, "height": 4, "bytes": size}, {"bytes": 8, "head": b"no image".hex()}],
        "fixed": [1, -1],
        "n": 2,
        "note": "wet [bold]road[/]",
    }
    assert [in_words(cell.value) for cell in row.cells[:4]] == [
        "float32 array of shape 2 x 3",
        "40 bytes: 000102030405060708090a0b0c0d0e0f...",
        "[1, -1]",
        f"JPEG, 6 x 4, {len(image('JPEG')):,} bytes",
    ]
    assert in_words(values["frames"]) == f"PNG, 6 x 4, {size} bytes\n8 bytes: {b'no image'.hex()}"


def test_a_row_that_is_damaged(dataset: Path) -> None:
    edit_file(dataset / "shard.00000.mds", lambda data: data[:-2])
    row = show_row(dataset, 2)
    assert (row.error_kind, row.cells) == ("read.corrupt", ())
    assert "shard.00000.mds, row 2" in (row.error_message or "")
    assert show_row(dataset, 1).error_kind is None


def test_a_row_that_is_not_there(dataset: Path) -> None:
    with pytest.raises(UserError, match="no row 3: there are 3, counted from 0"):
        show_row(dataset, 3)


@pytest.mark.slow
def test_the_command(dataset: Path) -> None:
    def proctor(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "proctor", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    shown = proctor("mds", "row", dataset, 1)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "wet [bold]road[/]" in shown.stdout
    assert "JPEG, 6 x 4" in shown.stdout
    edit_file(dataset / "shard.00000.mds", lambda data: data[:-2])
    broken = proctor("mds", "row", dataset, 2, "--json")
    line = json.loads(broken.stdout)
    assert (broken.returncode, line["event"], line["error_kind"]) == (2, "row", "read.corrupt")
