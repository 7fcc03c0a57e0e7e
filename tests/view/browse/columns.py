"""The columns that tests of filters ask."""

from __future__ import annotations

import pyarrow as pa

from proctor.view.browse.filters import Columns

TYPES = {
    "row_id": "BIGINT",
    "answer": "VARCHAR",
    "error_kind": "VARCHAR",
    "latency_s": "DOUBLE",
    "attempts": "INTEGER",
    "exact": "BOOLEAN",
    "finished_at": "TIMESTAMP WITH TIME ZONE",
    "token_ids": "INTEGER[]",
    'my "odd` name': "VARCHAR",
    "and": "DOUBLE",
}
COLUMNS = Columns(TYPES)
SCHEMA = pa.schema(
    [
        ("row_id", pa.int64()),
        ("answer", pa.large_string()),
        ("error_kind", pa.string()),
        ("latency_s", pa.float64()),
        ("attempts", pa.int32()),
        ("exact", pa.bool_()),
        ("finished_at", pa.timestamp("ms", tz="UTC")),
        ("token_ids", pa.list_(pa.int32())),
        ('my "odd` name', pa.string()),
        ("and", pa.float64()),
    ]
)
