"""The process that measures a sample: ``python -m proctor.capacity.probe RESULT``, its order on stdin.

Nothing but this work happens in it. The order comes from the planner itself, never from data.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from proctor.capacity.memory import measured
from proctor.capacity.rowcost import BlockCost, ImageSize, SampleOrder
from proctor.capacity.sample import Sample
from proctor.images.formats import OPENERS, sniff
from proctor.images.rules import ImageRules
from proctor.images.setup import image_rules
from proctor.prepare import prepare_sample
from proctor.results import write_records
from proctor.rows import ErrorKind, Failure, told
from proctor.rows import Sample as Row
from proctor.rows.records import record_schema
from proctor.sources.base import ReadGroup
from proctor.sources.samples import to_samples
from proctor.storage.connect import is_url
from proctor.tasks import Task
from proctor.tasks.registry import make_task

_KEPT_SIZES = 64
_READINGS = 3
_SHORT_SECONDS = 0.5
_PREPARED = pa.schema(
    [
        pa.field("row_id", pa.int64()),
        pa.field("prompt", pa.large_string()),
        pa.field("target", pa.large_string()),
        pa.field("images", pa.list_(pa.large_binary())),
        pa.field("conversions", pa.string()),
    ]
)


class _Way(NamedTuple):
    """How rows are prepared: by which task, and what is done to their images."""

    task: Task
    rules: ImageRules


class _Prepared:
    """Rows as they go to an engine, and what was seen of them on the way."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.taken = self.failed = self.images = self.prompt_chars = 0

    def add(self, row: Row, way: _Way) -> Failure | None:
        """Prepares a row as a run does."""
        outcome = prepare_sample(row, way.task, way.rules)
        if isinstance(outcome, Failure):
            return outcome
        self.images += len(outcome.images)
        self.rows.append({"row_id": row.row_id, **outcome._asdict()})
        self.prompt_chars = max(self.prompt_chars, len(outcome.prompt))
        return None

    def sizes(self) -> tuple[tuple[ImageSize, ...], ...]:
        """Sizes of the images of the first rows, as they travel, from their headers."""
        return tuple(tuple(map(_size, row["images"])) for row in self.rows[:_KEPT_SIZES])


class _Clock:
    """Seconds and CPU seconds of a block of code; CPU of all threads."""

    def __init__(self) -> None:
        self.seconds = self.cpu = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Counts what happens inside."""
        seconds, cpu = time.perf_counter(), time.process_time()
        yield
        self.seconds, self.cpu = time.perf_counter() - seconds, time.process_time() - cpu


def main(result: Path, order: SampleOrder) -> None:
    """Measures the order's groups one after another and writes what it found."""
    give_up = time.monotonic() + order.seconds
    found: list[BlockCost] = []
    exact, trouble = True, None
    try:
        way = _Way(make_task(order.spec.task, order.spec.source.columns), image_rules(order.spec))
        _warm_up(order, way)
        for group in order.groups:
            if found and time.monotonic() >= give_up:
                break
            cost, was_exact, failure = _measure(order, group, way, give_up)
            exact, trouble = exact and was_exact, trouble or failure
            found.append(cost)
    except Exception as error:  # whatever a source or a task raises, the plan says so
        trouble = Failure(ErrorKind.READ_FAILED, told(error))
    if any(cost.failed < cost.rows for cost in found):
        trouble = None  # rows that are damaged are the run's to tell
    result.write_bytes(msgspec.json.encode(Sample(tuple(found), trouble, exact)))


def _warm_up(order: SampleOrder, way: _Way) -> None:
    """Does everything once with one row: imports and caches are then no part of what is measured."""
    ids = order.groups[0].row_ids
    group = next(iter(order.source.groups(ids[:1], 1)))
    _measure(order, group, way, time.monotonic())


def _measure(order: SampleOrder, group: ReadGroup, way: _Way, give_up: float) -> tuple[BlockCost, bool, Failure | None]:
    reading, preparing, writing = _Clock(), _Clock(), _Clock()
    with measured() as read_peak, reading.running():
        blocks = list(order.source.read(group))
    if not is_url(order.spec.source.path) and reading.seconds < _SHORT_SECONDS:
        _read_again(order, group, reading)
    prepared = _Prepared()
    with measured() as prepare_peak, preparing.running():
        failure = _prepare(blocks, order, way, prepared, give_up)
        table = pa.Table.from_pylist(prepared.rows, schema=_PREPARED)
    with writing.running():
        _write(prepared.rows, way.task, order.folder)
    rows = sum(block.num_rows for block in blocks)
    share = prepared.taken / max(1, rows)
    cost = BlockCost(
        shard=group.shard,
        rows=rows,
        failed=prepared.failed,
        source_bytes=group.size_bytes,
        arrow_bytes=sum(block.nbytes for block in blocks),
        largest_row=max((_known_largest(order, group), *(_largest(block) for block in blocks))),
        read_peak=read_peak.bytes,
        read_seconds=reading.seconds,
        read_cpu=reading.cpu,
        prepared_rows=prepared.taken,
        prepare_source_bytes=round(share * group.size_bytes),
        prepare_peak=prepare_peak.bytes,
        prepare_cpu=preparing.cpu,
        prepared_bytes=table.nbytes,
        write_cpu=writing.cpu,
        images=prepared.images,
        image_rows=prepared.sizes(),
        prompt_chars=prepared.prompt_chars,
    )
    return cost, read_peak.exact and prepare_peak.exact, failure


def _read_again(order: SampleOrder, group: ReadGroup, reading: _Clock) -> None:
    """Keeps the shortest of a few readings: what else the machine does can only lengthen one. (A second reading of
    remote data may come from a cache, and is none.)"""
    for _ in range(_READINGS - 1):
        again = _Clock()
        with again.running():
            for _block in order.source.read(group):
                pass
        if again.seconds < reading.seconds:
            reading.seconds, reading.cpu = again.seconds, again.cpu


def _prepare(
    blocks: Sequence[pa.Table], order: SampleOrder, way: _Way, prepared: _Prepared, give_up: float
) -> Failure | None:
    """Prepares rows until the time is over, at least one; the first failure."""
    first: Failure | None = None
    for row in (row for block in blocks for row in to_samples(block, order.spec.source.columns)):
        if prepared.taken and time.monotonic() >= give_up:
            break
        prepared.taken += 1
        failure = prepared.add(row, way) if isinstance(row, Row) else row.failure
        if failure is not None:
            prepared.failed += 1
            first = first or failure
    return first


def _size(image: bytes) -> ImageSize:
    """Size of an image that was decoded before."""
    opened = OPENERS[sniff(image) or ""](BytesIO(image))
    return ImageSize(opened.height, opened.width)


def _write(rows: Sequence[dict[str, Any]], task: Task, folder: str) -> None:
    """Writes a record for each row, as the last stage does."""
    now = datetime.now(UTC)
    stamped = [
        {"row_id": row["row_id"], "prompt": row["prompt"], "target": row["target"], "answer": "", "finished_at": now}
        for row in rows
    ]
    if stamped:
        schema = record_schema(task.columns)
        table = pa.Table.from_pylist([{**row, "checkpoint": "sample"} for row in stamped], schema=schema)
        write_records(Path(folder) / "records", table)


def _known_largest(order: SampleOrder, group: ReadGroup) -> int:
    """The largest row of the whole shard, where the format tells without reading it."""
    known: Callable[[int], int] | None = getattr(order.source, "largest_row", None)
    return 0 if known is None else known(group.shard)


def _largest(block: pa.Table) -> int:
    return max((block.slice(row, 1).nbytes for row in range(block.num_rows)), default=0)


if __name__ == "__main__":
    os.dup2(2, 1)  # a task that prints must not be taken for an answer
    main(Path(sys.argv[1]), pickle.load(sys.stdin.buffer))  # noqa: S301 (from the planner itself)
