"""Our reader and writer against files that the public library wrote, and against what its own reader makes of them."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from proctor.sources.mds import MDSSource, MDSWriter
from proctor.sources.mds.encodings import ENCODING_NAMES, SCALARS, Encoding, parse_encoding
from tests.sources.mds.support import FACTS, errors, read_rows

GOLDEN = Path(__file__).parent / "golden"
COMPRESSED = sorted(path.name for path in GOLDEN.glob("compressed-*"))
FILES = {"jpeg", "png"}
FILE_LISTS = {"jpegarray", "jpeg_array", "list[jpeg]", "list[png]"}


def encodings_of(dataset: str) -> dict[str, Encoding]:
    shard = json.loads((GOLDEN / dataset / "index.json").read_text())["shards"][0]
    pairs = zip(shard["column_names"], shard["column_encodings"], strict=True)
    return {name: parse_encoding(text) for name, text in pairs}


def oracle_of(dataset: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((GOLDEN / dataset / "oracle.json").read_text())
    return rows


def as_oracle(encoding: Encoding, value: Any) -> Any:
    """One of our cells in the words of the oracle."""
    name = encoding.name
    if name in FILES:
        return {"file": hashlib.sha256(value).hexdigest()}
    if name in FILE_LISTS:
        return [{"file": hashlib.sha256(item).hexdigest()} for item in value]
    if name in {"pil", "list[pil]"}:
        return pixels(value) if name == "pil" else [pixels(item) for item in value]
    if name == "ndarray":
        return array_as_oracle(encoding, value)
    if name == "bytes":
        return {"hex": value.hex()}
    if name == "json":
        return json.loads(value)
    return {"float": repr(float(value))} if "float" in name else value


def array_as_oracle(encoding: Encoding, value: Any) -> dict[str, Any]:
    if encoding.dtype is None:
        values = np.frombuffer(value["data"], value["dtype"]).tolist()
        return {"dtype": value["dtype"], "shape": value["shape"], "values": values}
    if encoding.shape is None:
        return {"dtype": encoding.dtype, "shape": value["shape"], "values": value["values"]}
    return {"dtype": encoding.dtype, "shape": list(encoding.shape), "values": value}


def pixels(file: bytes) -> dict[str, Any]:
    image = Image.open(io.BytesIO(file))
    return {"mode": image.mode, "size": list(image.size), "pixels": hashlib.sha256(image.tobytes()).hexdigest()}


def test_golden_files_hold_every_encoding() -> None:
    seen = {encoding.name for dataset in ("encodings", "pickled") for encoding in encodings_of(dataset).values()}
    assert seen == set(ENCODING_NAMES)
    assert len(seen) == 28


@pytest.mark.parametrize("dataset", ["encodings", *COMPRESSED])
def test_reads_what_the_public_reader_reads(dataset: str) -> None:
    encodings = encodings_of(dataset)
    rows = read_rows(GOLDEN / dataset)
    assert errors(rows) == {}
    ours = [{name: as_oracle(encoding, row[name]) for name, encoding in encodings.items()} for row in rows]
    assert ours == oracle_of(dataset)


def test_cells_that_do_not_fit_their_encoding() -> None:
    rows, oracle = read_rows(GOLDEN / "odd"), oracle_of("odd")
    assert [row.get("error") for row in oracle] == [None, "UnicodeDecodeError", None, "JSONDecodeError", "ValueError"]
    assert errors(rows) == {1: "read.corrupt"}
    assert "column 'text'" in rows[1]["error_message"]
    assert rows[2]["text"] == ""
    assert rows[3]["data"] == "{not JSON"  # JSON stays text here; whoever parses it meets the fault
    assert rows[4]["views"] == []  # the public reader calls no images "negative number of images"


def test_pickles_stay_bytes() -> None:
    rows = read_rows(GOLDEN / "pickled", allow_pickle=True)
    assert [pickle.loads(row["thing"]) for row in rows] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert MDSSource(GOLDEN / "pickled", allow_pickle=True).columns().field("thing").type == "large_binary"


@pytest.mark.parametrize("dataset", ["encodings", *COMPRESSED])
def test_writes_the_same_bytes_as_the_public_writer(dataset: str, tmp_path: Path) -> None:
    """Rows read here and written again give the public library's shard files, byte for byte."""
    golden = json.loads((GOLDEN / dataset / "index.json").read_text())
    first = golden["shards"][0]
    encodings = encodings_of(dataset)
    columns = {name: encoding.text for name, encoding in encodings.items()}
    with MDSWriter(tmp_path, columns, first["compression"], first["hashes"], first["size_limit"]) as writer:
        for row in read_rows(GOLDEN / dataset):
            writer.write({name: as_value(encodings[name], row[name]) for name in row if name not in FACTS})
    ours = json.loads((tmp_path / "index.json").read_text())
    compressors_may_differ = ["zip_data"]
    for shard in [*ours["shards"], *golden["shards"]]:
        for key in compressors_may_differ:
            shard[key] = shard[key] and shard[key]["basename"]
    assert ours == golden  # among it the digests of every raw shard
    if first["compression"] is None:
        name = first["raw_data"]["basename"]
        assert (tmp_path / name).read_bytes() == (GOLDEN / dataset / name).read_bytes()


def as_value(encoding: Encoding, value: Any) -> Any:
    """One of our cells as a value for the writer."""
    name = encoding.name
    if name == "pil":
        return Image.open(io.BytesIO(value))
    if name == "list[pil]":
        return [Image.open(io.BytesIO(item)) for item in value]
    if name == "ndarray":
        plain = array_as_oracle(encoding, value)
        return np.array(plain["values"], plain["dtype"]).reshape(plain["shape"])
    if name == "json":
        return json.loads(value)
    return Decimal(value) if name == "str_decimal" else value


def test_arrow_types_of_scalars_keep_their_width() -> None:
    schema = MDSSource(GOLDEN / "encodings").columns()
    widths = {name: schema.field(name).type.bit_width for name in SCALARS}
    assert widths == {name: np.dtype(name).itemsize * 8 for name in SCALARS}
    assert schema.field("ndarray_shape").metadata[b"mds.shape"] == b"2,3"
