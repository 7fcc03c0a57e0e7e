"""Cells of any bytes in columns of every encoding: each row is data or an error, and has no part in its neighbours."""

from __future__ import annotations

import random
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from proctor.sources.mds.encodings import ENCODING_NAMES, parse_encoding
from proctor.sources.mds.format import ShardLayout, decode_blocks
from proctor.sources.mds.index import Column
from proctor.sources.mds.layout import read_row_table
from proctor.sources.mds.windows import MappedData

ENCODINGS = sorted({*ENCODING_NAMES, "ndarray:uint16", "ndarray:float64", "ndarray:int8:3", "ndarray:float32:2,2"})
WORDS = [0, 1, 2, 3, 4, 8, 12, 255, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1]
PARTS = [
    b"",
    *(word.to_bytes(4, "little") for word in WORDS),
    *(b"RGB", b"L", b"1", b"CMYK", b"\x22\x08\x04", b"\x08\x05\x03", b"-17", b"1e400", b"nan", b"{}", b"\xff\xfe"),
]


def some_cell(chance: random.Random) -> bytes:
    parts = (chance.choice([chance.choice(PARTS), chance.randbytes(chance.randrange(12))]) for _ in range(5))
    return b"".join(part for part in parts if chance.random() < 0.7)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_any_bytes_in_any_column(encoding: str) -> None:
    for seed in range(30):
        chance = random.Random(f"{encoding} {seed}")
        rows = [[bytes([n]) * n, some_cell(chance), f"row {n}".encode()] for n in range(chance.randrange(1, 12))]
        together = decoded(encoding, rows, chance.randrange(1, 9))
        assert len(together) == len(rows)
        for row, found in zip(rows, together, strict=True):
            if isinstance(found, list):
                assert (found[0], found[2].encode()) == (row[0], row[2])
        # Text, since NaN equals nothing.
        assert repr(decoded(encoding, rows[:1], 1)[0]) == repr(together[0]), seed


def decoded(encoding: str, rows: list[list[bytes]], max_rows: int) -> list[list[Any] | str]:
    """Each row's cells, or what is wrong with it."""
    columns = tuple(Column(str(n), parse_encoding(text)) for n, text in enumerate(["bytes", encoding, "str"]))
    data = shard_of(rows)
    sizes = (None, None, None)
    table = read_row_table(data, len(rows), sizes)
    found: list[list[Any] | str] = []
    layout = ShardLayout(columns, sizes)
    for block in decode_blocks(MappedData(data), table, layout, np.arange(len(rows)), 1 << 20, max_rows):
        batch = pa.RecordBatch.from_arrays(block.columns, names=["a", "b", "c"])
        batch.validate(full=True)
        for position, row in enumerate(batch.to_pylist()):
            assert position not in block.faults or set(row.values()) == {None}
            found.append(block.faults.get(position) or list(row.values()))
    return found


def shard_of(rows: list[list[bytes]]) -> Any:
    """A shard file of rows whose cells all say their sizes."""
    bodies = [struct.pack(f"<{len(cells)}I", *map(len, cells)) + b"".join(cells) for cells in rows]
    offsets = np.cumsum([4 + 4 * (len(rows) + 1), *map(len, bodies)])
    head = struct.pack(f"<{len(offsets) + 1}I", len(rows), *offsets.tolist())
    return np.frombuffer(head + b"".join(bodies), np.uint8)
