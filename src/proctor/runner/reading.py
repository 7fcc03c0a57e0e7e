"""First stage: reads planned groups of rows, one Ray task each, so that a block is exactly a group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import ray
from ray.data import DataContext, Datasource, ReadTask
from ray.data.block import BlockMetadata
from typing_extensions import override

from proctor.rows import ErrorKind, told
from proctor.runner.hub import HubClient
from proctor.runner.patience import timely
from proctor.sources.base import BLOCK_FIELDS, ReadGroup, Source


class RowsDatasource(Datasource):
    """Feeds planned read groups to Ray, one read task each, so that a block is exactly a group.

    Args:
        alone: given when each group is one row, which is then traced and answers for all that goes wrong.
    """

    def __init__(self, source: Source, groups: Sequence[ReadGroup], alone: HubClient | None) -> None:
        super().__init__()
        self._source, self._groups, self._alone = ray.put(source), groups, alone

    @override
    def get_name(self) -> str:
        """Name in Ray's own displays."""
        return "Rows"

    @override
    def estimate_inmemory_data_size(self) -> int:
        """Bytes of all groups together."""
        return sum(int(group.size_bytes) for group in self._groups)

    @override
    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: DataContext | None = None
    ) -> list[ReadTask]:
        """One task a group. Ray calls this several times: it is pure and cheap."""
        return [_read_task(self._source, group, self._alone) for group in self._groups]


def _read_task(source: ray.ObjectRef, group: ReadGroup, alone: HubClient | None) -> ReadTask:
    """Reads `group`. Its closure carries a reference: a source holds an index, and there are thousands of tasks."""
    metadata = BlockMetadata(
        num_rows=len(group.row_ids), size_bytes=int(group.size_bytes), input_files=None, exec_stats=None
    )

    def read() -> Iterable[pa.Table]:
        opened: Source = ray.get(source)
        return timely(opened.read(group)) if alone is None else _read_alone(opened, group, alone)

    return ReadTask(read, metadata)


def _read_alone(source: Source, group: ReadGroup, hub: HubClient) -> list[pa.Table]:
    """Reads a group of one row; whatever goes wrong is told in its block."""
    (row_id,) = group.row_ids
    with hub.inside(row_id, "read"):
        try:
            return list(timely(source.read(group)))
        except Exception as error:
            row = {"row_id": row_id, "error_kind": ErrorKind.READ_FAILED.value, "error_message": told(error)}
            return [pa.Table.from_pylist([row], schema=pa.schema([*BLOCK_FIELDS, *source.columns()]))]
