"""A Datasource over MDS shards as the field writes one: a read task for each shard, row by row as the public library
reads (its `MDSReader.get_item`, re-implemented), and an exception for what cannot be read.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from ray.data import DataContext, Datasource, ReadTask
from ray.data.block import BlockMetadata
from typing_extensions import override

from benchmarks.mds import get_item

SCHEMA = pa.schema([("row_id", pa.int64()), ("image", pa.binary()), ("question", pa.string())])


class ShardDatasource(Datasource):
    """Rows of the MDS data set at `path`. `crash_rows`: rows at which the reader's process dies by SIGSEGV."""

    def __init__(self, path: Path, crash_rows: Sequence[int]) -> None:
        super().__init__()
        self._path, self._crash_rows = path, frozenset(crash_rows)
        self._shards: list[dict[str, Any]] = json.loads((path / "index.json").read_text())["shards"]

    @override
    def estimate_inmemory_data_size(self) -> int:
        """Bytes of all shards."""
        return sum(shard["raw_data"]["bytes"] for shard in self._shards)

    @override
    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: DataContext | None = None
    ) -> list[ReadTask]:
        """One task a shard."""
        tasks, first = [], 0
        for shard in self._shards:
            tasks.append(self._task(shard, first))
            first += shard["samples"]
        return tasks

    def _task(self, shard: dict[str, Any], first: int) -> ReadTask:
        path, crash_rows = self._path, self._crash_rows

        def read() -> Iterable[pa.Table]:
            rows = []
            file = path / shard["raw_data"]["basename"]
            for row in range(shard["samples"]):
                if first + row in crash_rows:
                    os.kill(os.getpid(), signal.SIGSEGV)
                item = get_item(file, shard, row)
                rows.append({"row_id": item["id"], "image": item["image"], "question": item["question"]})
            return [pa.Table.from_pylist(rows, schema=SCHEMA)]

        size = shard["raw_data"]["bytes"]
        return ReadTask(
            read, BlockMetadata(num_rows=shard["samples"], size_bytes=size, input_files=None, exec_stats=None)
        )
