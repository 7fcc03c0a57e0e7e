"""Takes a row's target from its column."""

from __future__ import annotations

from typing import Any

from proctor.rows import Sample


def column_target(sample: Sample, column: str | None) -> Any:
    """The value of the target column; None when no column is named or the row's value is null.

    Raises:
        ValueError: the row has no such column.
    """
    if column is None:
        return None
    if column not in sample.fields:
        raise ValueError(f"the target column {column!r} is not in the row; it has {', '.join(sample.fields) or 'none'}")
    return sample.fields[column]
