"""The record: a row's final line in the results. One Arrow schema whatever happened to the row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pyarrow as pa

BASE_FIELDS: tuple[pa.Field, ...] = (
    pa.field("row_id", pa.int64(), nullable=False),
    pa.field("checkpoint", pa.string(), nullable=False),
    pa.field("sample_id", pa.string()),
    pa.field("answer", pa.large_string()),
    pa.field("error_kind", pa.string()),
    pa.field("error_message", pa.string()),
    pa.field("finish_reason", pa.string()),
    pa.field("prompt_tokens", pa.int32()),
    pa.field("output_tokens", pa.int32()),
    pa.field("token_ids", pa.list_(pa.int32())),
    pa.field("logprobs", pa.list_(pa.float32())),
    pa.field("n_images", pa.int32()),
    pa.field("conversions", pa.string()),
    pa.field("prompt", pa.large_string()),
    pa.field("target", pa.large_string()),
    pa.field("notice", pa.string()),
    pa.field("attempts", pa.int32()),
    pa.field("sweep", pa.int32()),
    pa.field("engine", pa.string()),
    pa.field("latency_s", pa.float64()),
    pa.field("finished_at", pa.timestamp("ms", tz="UTC")),
    pa.field("parse_error", pa.string()),
)
"""Fields of every record. ``answer`` is null exactly when ``error_kind`` is set. ``prompt`` and ``target`` are JSON.

``conversions`` says what was done to the row's images that a model's input depends on (an EXIF orientation applied).
``notice`` is what the reader saw beyond the row itself (e.g. a shard that holds more rows than its index says).
``parse_error`` says why an answer could not be parsed; such a row is answered but never scored.
"""


def record_schema(task_columns: Mapping[str, pa.DataType]) -> pa.Schema:
    """Schema of a run's records: the base fields, then the task's own columns (all nullable).

    Raises:
        ValueError: a task column has the name of a base field or of another one. Case makes no difference: queries
            (SQL) could not tell the columns apart.
    """
    names = Counter(name.casefold() for name in [*(field.name for field in BASE_FIELDS), *task_columns])
    clashes = sorted(name for name in task_columns if names[name.casefold()] > 1)
    if clashes:
        raise ValueError(f"task columns clash with record fields or each other: {', '.join(clashes)}")
    return pa.schema([*BASE_FIELDS, *(pa.field(name, kind) for name, kind in task_columns.items())])
