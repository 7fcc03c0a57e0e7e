"""The rows behind a cell of a confusion matrix, as a filter."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.parquet as pq

from proctor.results import RunDir
from proctor.results.parts import is_damage, parts_of
from proctor.view.browse.filters import name_text, value_text


def text_columns(run: RunDir) -> frozenset[str]:
    """Columns of the records that hold texts, as one part tells; none if it cannot be read.

    A field of a confusion matrix has two (`proctor.tasks.summaries.confusion_of`), one with ``_target`` at its end. A
    task of somebody's own may have made its matrix from anything else: then there is no filter for its cells.

    Raises:
        OSError: storage failed.
    """
    for part in parts_of(run.results, tombstones=False)[:1]:
        try:
            schema = pq.read_schema(run.results.open(part))
        except (OSError, pa.ArrowInvalid) as error:
            if is_damage(error) or isinstance(error, FileNotFoundError):
                return frozenset()
            raise
        kinds = (pa.types.is_string, pa.types.is_large_string)
        return frozenset(field.name for field in schema if any(kind(field.type) for kind in kinds))
    return frozenset()


def has_filter(columns: Collection[str], field: str) -> bool:
    """Whether the cells of a field's matrix can be asked for."""
    return field in columns and f"{field}_target" in columns


def cell_filter(checkpoint: str, field: str, target: str, said: str) -> str:
    """The rows of a checkpoint whose target is `target` and whose answer says `said`."""
    asked = {"checkpoint": checkpoint, f"{field}_target": target, field: said}
    return " and ".join(f"{name_text(name)} = {value_text(value)}" for name, value in asked.items())
