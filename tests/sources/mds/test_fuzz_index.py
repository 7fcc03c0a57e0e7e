"""Mutated indexes: refused in one line, or every row that they claim comes out once, as data or as an error."""

from __future__ import annotations

import copy
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from proctor.rows import UserError
from proctor.sources.mds import MDSSource
from proctor.sources.mds.verify import inspect
from tests.sources.mds.support import read_blocks, write

ROWS = 20
COLUMNS = {"a": "str", "b": "list[jpeg]", "c": "int", "d": "ndarray:uint8:2"}
VALUES: list[Any] = [
    None, True, 0, -1, 1, 7, 250, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, 1 << 63, 1 << 80, 1.5, "", "x", ".",
    "..", "../x", "/etc/passwd", "\0", "x" * 300, "é\ud800", "index.json", "shard.00001.mds", "zstd", "zstd:99",
    "snappy", "pkl", "ndarray:uint8:99999999999,99999999999", "ndarray:uint8:0", "ndarray:float64:2", "bytes", "uint64",
    "mds", "sha1", [], {}, [None], [0, 0, 0, 0], {"sha1": "0"}, {"basename": "shard.00000.mds"},
]  # fmt: skip


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    rows = [{"a": f"row {n}", "b": [b"x" * n], "c": n, "d": np.array([n, 1], "uint8")} for n in range(ROWS)]
    path = write(tmp_path_factory.mktemp("index") / "data", COLUMNS, rows, size_limit=600, hashes=["xxh64"])
    index = json.loads((path / "index.json").read_text())
    assert len(index["shards"]) > 2
    return path, index


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of everything in a JSON tree."""
    keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else []
    return [*([path] if path else []), *(place for key in keys for place in places(node[key], (*path, key)))]


@st.composite
def mutations(draw: st.DrawFn, index: dict[str, Any]) -> bytes:
    """The index with one to three changes to its tree, or to its text."""
    index = copy.deepcopy(index)
    for _ in range(draw(st.integers(0, 3))):
        *above, key = draw(st.sampled_from(places(index)))
        node = index
        for step in above:
            node = node[step]
        kind = draw(st.sampled_from(["set", "set", "set", "delete", "repeat", "copy"]))
        if kind == "set":
            node[key] = copy.deepcopy(draw(st.sampled_from(VALUES)))
        elif kind == "delete":
            del node[key]
        elif kind == "repeat" and isinstance(node, list):
            node.append(copy.deepcopy(node[key]))
        else:
            node[key] = copy.deepcopy(
                node[draw(st.sampled_from(list(node) if isinstance(node, dict) else range(len(node))))]
            )
        if not places(index):
            break
    text = bytearray(json.dumps(index).encode())
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, len(text) - 1))
        if draw(st.booleans()):
            text[at] ^= 1 << draw(st.integers(0, 7))
        else:
            del text[at:]
    return bytes(text)


@settings(max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_row_comes_out_once_or_the_index_is_refused(
    original: tuple[Path, dict[str, Any]], data: st.DataObject
) -> None:
    path, index = original
    content = data.draw(mutations(index))
    with tempfile.TemporaryDirectory() as place:
        for file in path.glob("*.mds"):
            (Path(place) / file.name).hardlink_to(file)
        (Path(place) / "index.json").write_bytes(content)
        try:
            source = MDSSource(place)
        except UserError as error:
            told = str(error)
            assert (told.count("\n"), f"{place}/index.json" in told) == (0, True)
            return
        inspect(place)
        expected = source.expected()
        ends = [*range(min(100, len(expected))), *range(max(0, len(expected) - 100), len(expected))]
        wanted = BitMap64(ends)
        seen = [row for block in read_blocks(source, wanted) for row in block.to_pylist()]
        assert [row["row_id"] for row in seen] == list(wanted)
        assert {row["error_kind"] for row in seen} <= {None, "read.corrupt", "read.missing", "read.failed"}
