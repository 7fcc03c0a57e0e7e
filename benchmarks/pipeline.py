"""Throughput of the whole pipeline against the bare engine loop: the same rows, the same engine, the same batch."""

from __future__ import annotations

import statistics
import time
from typing import Any

from benchmarks.runs import measured_run
from proctor.engines import EngineConfig, IterFeed
from proctor.engines.registry import make_engine
from proctor.rows import Message, Request, TextPart

TITLE = "the whole pipeline against the bare engine loop"
ROWS = 1000
ROW_MS = 20.0
OPTIONS = {"answer": "answer {row_id}", "answers": {}, "row_ms": ROW_MS, "load_seconds": 0.0, "load_failures": 0}


def run(rounds: int) -> list[dict[str, Any]]:
    """Rows a second from the moment the engine is loaded to the last record, as a share of the bare loop's."""
    rounds = min(rounds, 3)
    ratios = []
    for _ in range(rounds):
        bare = _bare_seconds()
        whole = measured_run(ROWS, engine={"row_ms": ROW_MS}, stream={"block_rows": 64})["engine_seconds"]
        ratios.append(bare / whole)
    return [
        {
            "name": f"throughput, {ROW_MS:g} ms a row, {ROWS} rows",
            "figure": statistics.median(ratios),
            "unit": "ratio",
            "ratio_to": "the engine alone in a plain loop",
            "rounds": rounds,
            "spread": [min(ratios), max(ratios)],
        }
    ]


def _bare_seconds() -> float:
    engine = make_engine(EngineConfig(kind="scripted", options=OPTIONS))
    engine.load()
    prompt = (Message("user", (TextPart("?"),)),)
    requests = iter([Request(id=i, prompt=prompt) for i in range(ROWS)])
    began = time.perf_counter()
    answered = sum(1 for _ in engine.stream(IterFeed(requests), lambda _: None))
    seconds = time.perf_counter() - began
    engine.close()
    assert answered == ROWS
    return seconds
