"""Every compared token as a table, and as a Parquet file that is written arm by arm."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from proctor.audit.compare.align import align
from proctor.audit.compare.columns import Columns, columns_of
from proctor.audit.compare.equality import above_floor, ulp_distance
from proctor.audit.compare.leaders import NO_TOKEN
from proctor.audit.compare.logprobs import compared
from proctor.audit.compare.pairs import Pairing, pair_repeats, pair_rounds
from proctor.audit.model import Observation

ROWS_A_GROUP = 65_536

_NAME = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema([
    ("arm", _NAME), ("against", _NAME),
    ("round", pa.int32()), ("against_round", pa.int32()), ("row_id", pa.int64()), ("position", pa.int32()),
    ("token", pa.int64()), ("against_token", pa.int64()),
    ("logprob", pa.float64()), ("against_logprob", pa.float64()),
    ("difference", pa.float64()), ("ulp", pa.int64()), ("equal", pa.bool_()),
    ("top1", pa.int64()), ("against_top1", pa.int64()), ("top1_equal", pa.bool_()), ("margin", pa.float64()),
])  # fmt: skip
"""Columns of the table, one row a compared position.

``position`` counts from 0 and goes up to and including the first token that differs. ``difference`` is absolute (nats).
``ulp`` is in units of float32 and null below `ULP_FLOOR`. ``equal`` is about the log-probabilities, at the precision
that was transported; null where the tokens differ or are not told. ``margin`` is that of the two most likely tokens of
`against` (nats). What an engine does not tell is null; what is not a number is NaN.
"""


def token_table(
    ours: Sequence[Observation],
    theirs: Sequence[Observation],
    /,
    *,
    arm: str | None = None,
    against: str | None = None,
) -> pa.Table:
    """Every compared token of an arm against another, as `SCHEMA`. Tokens that were replayed need nothing else.

    Args:
        ours, theirs: observations of one arm each, in any order.
        arm, against: names of the two arms; read from the observations where left out.

    Raises:
        ValueError: observations of several arms on a side, or a row twice in a round.
    """
    return _table(pair_rounds(ours, theirs, arm, against))


def token_tables(
    ours: Sequence[Observation],
    theirs: Sequence[Observation],
    /,
    *,
    arm: str | None = None,
    against: str | None = None,
) -> Iterator[pa.Table]:
    """`token_table` in pieces of bounded size; equality is still judged over all of them."""
    table = token_table(ours, theirs, arm=arm, against=against)
    for start in range(0, table.num_rows, ROWS_A_GROUP):
        yield table.slice(start, ROWS_A_GROUP)


def repeat_table(observations: Sequence[Observation]) -> pa.Table:
    """Every compared token of the sittings of one way of asking, as `SCHEMA`; pairs as in `compare_repeats`.

    Raises:
        ValueError: a row twice in a round of an arm.
    """
    return _table(pair_repeats(observations))


def write_tokens(path: Path, tables: Iterable[pa.Table]) -> int:
    """Writes tables one after another to a Parquet file, which appears when it is whole.

    Args:
        path: of the file; its directory exists.
        tables: of `SCHEMA`, made one at a time, so memory is that of the largest.

    Returns:
        Rows written.
    """
    unfinished, rows = path.with_name(f".{path.name}.{os.getpid()}"), 0
    try:
        with pq.ParquetWriter(unfinished, SCHEMA, compression="zstd") as writer:
            for table in tables:
                writer.write_table(table, row_group_size=ROWS_A_GROUP)
                rows += table.num_rows
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return rows


def _table(pairing: Pairing) -> pa.Table:
    aligned = [align(pair) for pair in pairing.pairs]
    columns = columns_of(aligned)
    rounds = np.array([[side.round for side in item.pair] for item in aligned], dtype=np.int32).reshape(-1, 2)
    n = len(columns.pair)
    difference, ulp, equal = _differences(columns)
    arm, against = columns.arm, columns.against
    arrays = [
        _name(pairing.arm, n), _name(pairing.against, n),
        rounds[columns.pair, 0], rounds[columns.pair, 1], columns.row, columns.position,
        _or_null(arm.tokens, arm.tokens != NO_TOKEN), _or_null(against.tokens, against.tokens != NO_TOKEN),
        _or_null(arm.logprobs, arm.told), _or_null(against.logprobs, against.told),
        difference, ulp, equal,
        _or_null(arm.leaders, arm.leaders != NO_TOKEN), _or_null(against.leaders, against.leaders != NO_TOKEN),
        _or_null(columns.led_alike == 1, columns.led_alike >= 0),
        _or_null(against.margins, ~np.isnan(against.margins)),
    ]  # fmt: skip
    converted = [pa.array(array, field.type) if isinstance(array, np.ndarray) else array.cast(field.type)
                 for array, field in zip(arrays, SCHEMA, strict=True)]  # fmt: skip
    return pa.Table.from_arrays(converted, schema=SCHEMA)


def _differences(columns: Columns) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Absolute difference, distance in float32 units, and equality; null where there is none."""
    found = compared(columns)
    n = len(columns.pair)
    difference, equal = np.full(n, np.nan), np.zeros(n, dtype=bool)
    difference[found.at], equal[found.at] = found.shift, found.equality.equal
    known = found.at & ~np.isnan(difference)
    ulp, counted = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=bool)
    if found.equality.bitwise:
        arm, against = columns.arm.logprobs[known], columns.against.logprobs[known]
        ulp[known], counted[known] = ulp_distance(arm, against), above_floor(arm, against)
    return _or_null(difference, known), _or_null(ulp, counted), _or_null(equal, found.at)


def _or_null(values: NDArray[np.generic], known: NDArray[np.bool_]) -> pa.Array:
    return pa.array(values, mask=~known, from_pandas=False)


def _name(name: str, n: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, dtype=np.int32)), pa.array([name]))
