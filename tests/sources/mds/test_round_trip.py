"""Whatever the writer takes, the reader gives back: every encoding, compression, digest and shard size."""

from __future__ import annotations

import io
import json
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image
from pyroaring import BitMap64

from proctor.sources.mds import MDSSource
from proctor.sources.mds.encodings import SCALARS
from proctor.sources.mds.hashing import hash_names
from tests.sources.mds.support import FACTS, errors, read_rows, write

BLOBS = st.binary(max_size=40)
TEXTS = st.text(max_size=30)
JSON = st.recursive(st.none() | st.booleans() | st.integers() | TEXTS, lambda inner: st.lists(inner, max_size=3))


def arrays(dtype: str, shape: Any = None) -> st.SearchStrategy[Any]:
    return hnp.arrays(dtype, shape or hnp.array_shapes(max_dims=4, max_side=5))


def scalar(name: str) -> st.SearchStrategy[Any]:
    if name.startswith("float"):
        return st.floats(width=int(name[5:]), allow_nan=False)  # type: ignore[arg-type]
    return st.integers(int(np.iinfo(name).min), int(np.iinfo(name).max))


VALUES: dict[str, st.SearchStrategy[Any]] = {
    **{name: scalar(name) for name in SCALARS},
    "int": scalar("int64"),
    "bytes": BLOBS,
    "jpeg": BLOBS,
    "png": BLOBS,
    "str": TEXTS,
    "json": JSON,
    "str_int": scalar("int64"),
    "str_float": st.floats(allow_nan=False),
    "str_decimal": st.decimals(allow_nan=False),
    "jpegarray": st.lists(BLOBS, max_size=4),
    "jpeg_array": st.lists(BLOBS, max_size=4),
    "list[jpeg]": st.lists(BLOBS, max_size=4),
    "list[png]": st.lists(BLOBS, max_size=4),
    "ndarray": st.sampled_from(SCALARS).flatmap(arrays),
    "ndarray:uint16": arrays("uint16"),
    "ndarray:float64": arrays("float64"),
    "ndarray:int8:3": arrays("int8", (3,)),
    "ndarray:float32:2,1,2": arrays("float32", (2, 1, 2)),
}


def expected(encoding: str, value: Any) -> Any:
    """What the reader should give for a value that was written."""
    if encoding == "json":
        return json.dumps(value)
    if isinstance(value, Decimal):
        return str(value)
    if not isinstance(value, np.ndarray):
        return value
    if encoding == "ndarray":
        return {"dtype": value.dtype.name, "shape": list(value.shape), "data": value.tobytes()}
    values = value.ravel().tolist()
    return values if encoding.count(":") == 2 else {"shape": list(value.shape), "values": values}


@st.composite
def datasets(draw: st.DrawFn) -> tuple[dict[str, str], list[dict[str, Any]], dict[str, Any]]:
    encodings = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4))
    columns = {f"c{number}": encoding for number, encoding in enumerate(encodings)}
    row = st.fixed_dictionaries({name: VALUES[encoding] for name, encoding in columns.items()})
    options = {
        "compression": draw(st.sampled_from([None, "zstd", "gz:1", "br:1", "bz2", "snappy"])),
        "hashes": draw(st.lists(st.sampled_from(["sha1", "xxh64", "sha3_256"]), unique=True)),
        "size_limit": draw(st.sampled_from([300, 1000, 1 << 20])),
    }
    return columns, draw(st.lists(row, max_size=25)), options


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(datasets(), st.integers(1, 9), st.sets(st.integers(0, 24)))
def test_rows_come_back(
    dataset: tuple[dict[str, str], list[dict[str, Any]], dict[str, Any]], max_rows: int, some: set[int]
) -> None:
    columns, rows, options = dataset
    with tempfile.TemporaryDirectory() as place:
        path = write(Path(place), columns, rows, **options)
        wanted = BitMap64(row for row in some if row < len(rows))
        for todo in (BitMap64(range(len(rows))), wanted):
            read = read_rows(path, todo, max_rows)
            assert errors(read) == {}
            for row in read:
                source_row = rows[row["row_id"]]
                ours = {name: value for name, value in row.items() if name not in FACTS}
                assert_same(ours, {name: expected(columns[name], source_row[name]) for name in columns})


MODES = {"1": 1, "L": 8, "LA": 16, "I;16": 16, "RGB": 24, "RGBA": 32, "CMYK": 32, "I": 32, "F": 32}


@st.composite
def pictures(draw: st.DrawFn) -> Image.Image:
    mode, width, height = draw(st.sampled_from(sorted(MODES))), draw(st.integers(1, 9)), draw(st.integers(1, 5))
    size = (width * MODES[mode] + 7) // 8 * height
    return Image.frombytes(mode, (width, height), draw(st.binary(min_size=size, max_size=size)))


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(pictures(), st.lists(pictures(), max_size=3)), min_size=1, max_size=4))
def test_raw_images_come_back_as_files_of_the_same_pixels(rows: list[tuple[Image.Image, list[Image.Image]]]) -> None:
    with tempfile.TemporaryDirectory() as place:
        columns = {"many": "list[pil]", "one": "pil"}
        path = write(Path(place), columns, [{"one": one, "many": many} for one, many in rows])
        for row, (one, many) in zip(read_rows(path), rows, strict=True):
            files = [row["one"], *row["many"]]
            assert [pixels(Image.open(io.BytesIO(file))) for file in files] == [pixels(image) for image in (one, *many)]


def pixels(image: Image.Image) -> tuple[str, tuple[int, int], bytes]:
    return image.mode, image.size, image.tobytes()


def assert_same(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    # Arrays may hold NaN, which equals nothing; their text is compared instead.
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("name", sorted(hash_names()))
def test_every_hash(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, {"text": "str"}, [{"text": "some"}], hashes=[name])
    assert errors(read_rows(path)) == {}
    index = json.loads((path / "index.json").read_text())
    digest = index["shards"][0]["raw_data"]["hashes"][name]
    (path / "index.json").write_text(json.dumps(index).replace(digest, "0" * len(digest)))
    assert errors(read_rows(path)) == {0: "read.corrupt"}


def test_a_dataset_without_rows(tmp_path: Path) -> None:
    source = MDSSource(write(tmp_path, {"text": "str"}, []))
    assert len(source.expected()) == 0
    assert list(source.groups(source.expected(), 10)) == []
