"""The shapes in which rows travel between the stages. Each stage hands over a table of a fixed schema, always."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

_CARRIED = (
    pa.field("row_id", pa.int64(), nullable=False),
    pa.field("sample_id", pa.string()),
    pa.field("error_kind", pa.string()),
    pa.field("error_message", pa.string()),
    pa.field("notice", pa.string()),
    pa.field("prompt", pa.large_string()),
    pa.field("target", pa.large_string()),
    pa.field("n_images", pa.int32()),
    pa.field("conversions", pa.string()),
)

PREPARED = pa.schema([*_CARRIED, pa.field("images", pa.list_(pa.large_binary()))])
"""Prepared rows: prompt and target as JSON, images still encoded (decoded pixels are 10 to 70 times as large)."""

INFERRED = pa.schema(
    [
        *_CARRIED,
        pa.field("answer", pa.large_string()),
        pa.field("finish_reason", pa.string()),
        pa.field("prompt_tokens", pa.int32()),
        pa.field("token_ids", pa.list_(pa.int32())),
        pa.field("logprobs", pa.list_(pa.float32())),
        pa.field("attempts", pa.int32()),
        pa.field("engine", pa.string()),
        pa.field("latency_s", pa.float64()),
    ]
)
"""Rows after the engine: an answer or an error, and no images any more."""

TALLY = pa.schema(
    [
        pa.field("rows", pa.int64()),
        pa.field("answered", pa.int64()),
        pa.field("output_tokens", pa.int64()),
        pa.field("errors", pa.string()),
        pa.field("retries", pa.string()),
        pa.field("trouble", pa.string()),
    ]
)
"""What the last stage tells the driver about a block: counts only (`errors`, `retries`: JSON, kind -> rows), and the
`trouble` that kept it from writing, if there was any."""


def table_of(rows: Sequence[dict[str, Any]], schema: pa.Schema, expected_rows: int) -> pa.Table:
    """A table of `rows`; keys that a row lacks are null.

    Raises:
        RuntimeError: a stage made more or fewer rows than it was given.
    """
    if len(rows) != expected_rows:
        raise RuntimeError(f"a stage was given {expected_rows} rows and returned {len(rows)}")
    return pa.Table.from_pylist(list(rows), schema=schema)
