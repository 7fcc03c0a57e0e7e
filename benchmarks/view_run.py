"""A finished run of many rows, as a driving task leaves one: for the benchmark of the browser."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from proctor.demo.dataset import write_dataset
from proctor.demo.scenes import SYSTEM_TEXT, answer, scene, target
from proctor.results import RunDir, write_records
from proctor.rows import ImagePart, Message, TextPart
from proctor.rows.records import record_schema
from proctor.spec import build_spec
from proctor.tasks.driving import QUESTION
from proctor.tasks.marking import mark
from proctor.tasks.registry import make_task

CHECKPOINT = "step-6400"
PARTS = 400
KINDS = 2_000
"""Different records that the rows are drawn from; ids, times and lengths are each row's own."""
IMAGES = 200
"""Rows that have images, the first ones."""
_BEGAN = datetime(2026, 11, 30, tzinfo=UTC)
_PROMPT = (
    Message("system", (TextPart(SYSTEM_TEXT),)),
    Message("user", (ImagePart(), TextPart(QUESTION))),
)


def make_run(home: Path, rows: int) -> RunDir:
    """The run of `rows` rows below `home`, in `PARTS` parts; one that is there already is used again."""
    run = RunDir(home / f"run-{rows}")
    done = Path(home) / f"run-{rows}" / "made"
    if done.exists():
        return run
    data = Path(home) / f"scenes-{rows}"
    if not (data / "index.json").exists():
        write_dataset(data, IMAGES)
    columns = {"images": ["frames"], "sample_id": "scene", "target": "target"}
    spec = build_spec(
        {
            "run_dir": str(run.root),
            "source": {"kind": "mds", "path": str(data), "columns": columns},
            "engine": {"kind": "scripted", "checkpoints": [CHECKPOINT]},
            "task": {"kind": "driving", "system": SYSTEM_TEXT},
        }
    )
    run.create(spec)
    task = make_task(spec.task, spec.source.columns)
    schema = record_schema(task.columns)
    kinds = pa.Table.from_pylist([_record(task, number) for number in range(KINDS)], schema)
    edges = np.linspace(0, rows, min(PARTS, rows) + 1).astype(np.int64)
    for first, last in itertools.pairwise(edges):
        write_records(run.results, _part(kinds, int(first), int(last)))
    done.touch()
    return run


def _record(task: Any, number: int) -> dict[str, Any]:
    """A record: nine of ten answers are right, two of a hundred rows fail, in six ways."""
    truth = target(scene(number))
    record: dict[str, Any] = {
        "checkpoint": CHECKPOINT,
        "prompt": msgspec.json.encode(_PROMPT).decode(),
        "target": msgspec.json.encode(truth).decode(),
        "n_images": 1 + number % 3,
        "sweep": 1,
        "row_id": 0,
    }
    if number % 50 == 0:
        kind = ("infer.crashed", "infer.stalled", "prepare.decode", "infer.oom", "read.corrupt", "infer.empty")[
            number // 50 % 6
        ]
        return {**record, "error_kind": kind, "error_message": f"{kind} with this row, after 3 tries"}
    said = answer(scene(number if number % 10 else number + 1))
    marked = mark(task, said, truth)
    return {**record, "answer": said, "finish_reason": "stop", "parse_error": marked.parse_error, **marked.scores}


def _part(kinds: pa.Table, first: int, last: int) -> pa.Table:
    """The records of rows `first` to `last` (excluded)."""
    random, count = np.random.default_rng(first), last - first
    table = kinds.take(pa.array(random.integers(0, kinds.num_rows, count)))
    ids = np.arange(first, last)
    tokens = random.integers(12, 60, count)
    own = {
        "row_id": pa.array(ids),
        "sample_id": pa.array([f"scene-{number:08d}" for number in ids]),
        "latency_s": pa.array(random.gamma(2.0, 0.4, count)),
        "output_tokens": pa.array(tokens, pa.int32()),
        "prompt_tokens": pa.array(300 + tokens, pa.int32()),
        "attempts": pa.array(1 + (random.random(count) < 0.01), pa.int32()),
        "engine": pa.array([f"host-{number}:7001" for number in random.integers(0, 8, count)]),
        "finished_at": pa.array(np.datetime64(_BEGAN.replace(tzinfo=None), "ms") + ids * 3, pa.timestamp("ms")).cast(
            table.schema.field("finished_at").type
        ),
        "token_ids": _tokens(random, tokens),
    }
    for name, values in own.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(place), values.cast(table.schema.field(place).type))
    return table


def _tokens(random: np.random.Generator, counts: np.ndarray) -> pa.Array:
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    ids = random.integers(0, 150_000, int(offsets[-1])).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids))
