"""The pipeline of the field, the other side of the matrix: ``python -m benchmarks.faults.naive CONFIG.json``.

Read -> prepare -> infer -> score -> write on Ray Data, with the knobs of the field: an actor pool whose actor owns
its engine, ``max_restarts=3``, ``max_task_retries=3``, ``max_errored_blocks=10``, and a watchdog thread in the actor
that ends the process when the engine is silent too long. Written as a competent engineer would; each choice that
decides a cell says so at its place.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import ray
from PIL import Image
from ray.data import ActorPoolStrategy, DataContext

from benchmarks.faults.rays import HEAD_CPUS
from benchmarks.faults.shards import ShardDatasource
from benchmarks.faults.task import Echo
from proctor.engines import EngineConfig, Fault, IterFeed
from proctor.engines.registry import make_engine
from proctor.rows import Prompt, Request, Sample

log = logging.getLogger("naive")


class Config(msgspec.Struct, frozen=True):
    """A cell, as the harness hands it over. `checkpoint`: directory of Ray's own checkpoints, None without them."""

    data: str
    out: str
    state: str
    address: str | None = None
    checkpoint: str | None = None
    engine: dict[str, Any] = {}
    faults: list[Fault] = []
    task: dict[str, Any] = {}
    read_crash: list[int] = []
    replicas: int = 2
    batch_size: int = 16
    stall_seconds: float = 4.0
    no_progress_seconds: int = 60
    store_mb: int | None = None


class Engine:
    """The actor: one engine in its own process, and a watchdog over it."""

    def __init__(self, config: Config) -> None:
        actor = ray.get_runtime_context().get_actor_id()
        Path(config.state, f"engine-{actor}-{os.getpid()}").touch()  # for the harness: which process is the engine
        self._engine = make_engine(
            EngineConfig(
                kind="scripted",
                batch_size=config.batch_size,
                options=config.engine,
                faults=tuple(config.faults),
                fault_state=config.state,
            )
        )
        self._stall_seconds, self._busy_since = config.stall_seconds, 0.0
        self._engine.load()
        threading.Thread(target=self._watch, daemon=True).start()

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Answers a batch. The number of rows is kept whatever happens: downstream code relies on it."""
        rows = batch.to_pylist()
        requests = [
            Request(id=row["row_id"], prompt=msgspec.json.decode(row["prompt"], type=Prompt), images=(row["image"],))
            for row in rows
            if row["prompt"] is not None
        ]
        answers: dict[int, str] = {}
        self._busy_since = time.monotonic()
        try:
            for response in self._engine.stream(IterFeed(iter(requests)), self._alive):
                # The field takes `output.text`; an answer that was refused or is empty is an empty text.
                answers[response.id] = response.text or ""
        except Exception:
            # To raise would abort the job, or drop the whole block without a list of its rows. The field logs the error
            # and goes on, so that the rows stay in the output.
            log.exception("the engine failed at a batch")
        self._busy_since = 0.0
        texts = [answers.get(row["row_id"], "") for row in rows]
        return batch.select(["row_id", "target"]).append_column("answer", pa.array(texts, pa.string()))

    def _alive(self, _tokens: int) -> None:
        self._busy_since = time.monotonic()

    def _watch(self) -> None:
        while True:
            time.sleep(0.5)
            if self._busy_since and time.monotonic() - self._busy_since > self._stall_seconds:
                os._exit(1)  # Ray restarts the actor


def prepare(block: pa.Table, *, task: Echo) -> pa.Table:
    """Checks images and makes prompts. A row that fails is logged and goes on without a prompt."""
    rows = []
    for row in block.to_pylist():
        made = {"row_id": row["row_id"], "target": row["question"], "image": row["image"], "prompt": None}
        try:
            Image.open(pa.BufferReader(row["image"])).verify()
            sample = Sample(row["row_id"], None, (row["image"],), row)
            made["prompt"] = msgspec.json.encode(task.prompt(sample)).decode()
        except Exception:
            log.exception("row %d cannot be prepared", row["row_id"])
        rows.append(made)
    return pa.Table.from_pylist(rows, schema=PREPARED)


def score(block: pa.Table, *, task: Echo) -> pa.Table:
    """Marks the answers. One that cannot be marked is logged and has no mark."""
    marks = []
    for row in block.to_pylist():
        try:
            marks.append(task.score(task.parse(row["answer"]), row["target"])["correct"])
        except Exception:
            log.exception("row %d cannot be marked", row["row_id"])
            marks.append(None)
    return block.append_column("correct", pa.array(marks, pa.bool_()))


PREPARED = pa.schema([("row_id", pa.int64()), ("target", pa.string()), ("image", pa.binary()), ("prompt", pa.string())])


def configure(config: Config) -> None:
    """Ray Data's settings."""
    context = DataContext.get_current()
    context.enable_progress_bars = False
    context.max_errored_blocks = 10
    # Ray's default is 30 minutes; a user who knows of it sets it. It only ever fails the job, it retries nothing.
    context.execution_no_progress_timeout_s = config.no_progress_seconds
    # Not among the field's knobs, but without it one failed load of one engine aborts the job.
    context.actor_init_retry_on_errors = True
    if config.checkpoint is not None:
        from ray.data.checkpoint import CheckpointConfig

        context.checkpoint_config = CheckpointConfig(id_column="row_id", checkpoint_path=config.checkpoint)


def run(config: Config) -> None:
    """The pipeline, from the shards to Parquet files."""
    configure(config)
    task = Echo(**config.task)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # `max_restarts` and `max_task_retries` are deprecated here, without a successor
        rows = (
            ray.data.read_datasource(ShardDatasource(Path(config.data), config.read_crash))
            # Its own number of CPUs keeps Ray from fusing it into the actor, where its faults would kill the engine.
            .map_batches(prepare, batch_size=None, batch_format="pyarrow", fn_kwargs={"task": task}, num_cpus=0.5)
            .map_batches(
                Engine,
                batch_size=config.batch_size,
                batch_format="pyarrow",
                fn_constructor_args=(config,),
                compute=ActorPoolStrategy(size=config.replicas, max_tasks_in_flight_per_actor=4),
                num_cpus=1,
                max_restarts=3,
                max_task_retries=3,
            )
            .map_batches(score, batch_size=None, batch_format="pyarrow", fn_kwargs={"task": task}, num_cpus=0.5)
        )
    # Ray's default appends: the same command again would double every row that was there. Without checkpoints a person
    # starts anew, which is what overwriting does; with them the earlier files are to be kept.
    rows.write_parquet(config.out, mode="append" if config.checkpoint else "overwrite")


def main() -> None:
    """Runs the cell whose configuration is the first argument."""
    config = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Config)
    for folder in (config.state, config.out):
        Path(folder).mkdir(parents=True, exist_ok=True)
    own: dict[str, Any] = {"num_cpus": HEAD_CPUS, "include_dashboard": False}
    if config.store_mb is not None:
        own["object_store_memory"] = config.store_mb * 1_000_000
    ray.init(address=config.address or "local", **({} if config.address else own))
    run(config)
    print(json.dumps({"event": "done"}))


if __name__ == "__main__":
    from benchmarks.faults.naive import main as imported_main  # so that workers import it and nothing is pickled

    imported_main()
