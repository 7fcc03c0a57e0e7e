"""The rows of the soak, what is wrong with some of them, and how each must therefore end."""

from __future__ import annotations

import io
import json
import os
import random
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from PIL import Image

from benchmarks.faults.systems import ROOT
from proctor.sources.mds import MDSWriter

CHECKPOINT = "model"
IMAGE_EVERY = 3
STALL_SECONDS = 4.0
REPLICAS = 2
BATCH = 16
ENDS = {
    "crash": "infer.crashed",
    "kill": "infer.crashed",
    "exit": "infer.crashed",
    "stall": "infer.stalled",
    "stop": "infer.stalled",
    "hold_gil": "infer.stalled",
    "raise": "infer.failed",
    "oom": "infer.oom",
    "reject": "infer.rejected",
    "blank": "infer.empty",
    "truncate": None,
    "image": "prepare.decode",
    "prompt_raise": "prepare.failed",
    "prompt_crash": "prepare.crashed",
    "parse_raise": "score.failed",
}
"""What may be planted in a row, and the error kind that the row must end with; None: with an answer."""
_ENGINE = frozenset(
    {"crash", "kill", "exit", "stall", "stop", "hold_gil", "raise", "oom", "reject", "blank", "truncate"}
)
_BREAKS = frozenset({"crash", "kill", "exit", "stall", "stop", "hold_gil", "raise", "oom"})
_SHARES = {
    "crash": 10_000,
    "kill": 25_000,
    "exit": 25_000,
    "stall": 25_000,
    "stop": 50_000,
    "hold_gil": 50_000,
    "raise": 25_000,
    "oom": 25_000,
    "reject": 5_000,
    "blank": 2_500,
    "truncate": 5_000,
    "image": 5_000,
    "prompt_raise": 10_000,
    "parse_raise": 25_000,
}
"""One row in so many, but at least one."""
_LEFT_OUT = frozenset({"kill", "exit", "stop", "hold_gil", "oom"})
"""Of small data sets, below `_SMALL_ROWS`: each costs seconds, and its like is planted too."""
_SMALL_ROWS = 5_000


class Truth(NamedTuple):
    """How a row must end: with this answer, or with this error kind.

    Attributes:
        breaks: the row breaks its engine. The chaos may hit the engine while such a row stands alone in it, and the row
            then ends with the kind of that death: guilty all the same.
    """

    answer: str | None
    error: str | None
    breaks: bool = False


@dataclass(frozen=True, slots=True)
class Data:
    """A data set that was written.

    Attributes:
        planted: what is wrong -> the rows.
        truth: how each row must end.
    """

    path: Path
    planted: Mapping[str, list[int]]
    truth: Mapping[int, Truth]


def question_of(row: int) -> str:
    """The question of a row, which is also its right answer: the scripted engine repeats it."""
    return f"answer {row:06d}"


def write_data(path: Path, rows: int, seed: int) -> Data:
    """Writes `rows` rows in about 200 shards, one of which is then cut off and one removed."""
    rng = random.Random(f"{seed} data")
    order = rng.sample(range(1, rows), rows - 1)
    planted = {what: sorted(order.pop() for _ in range(_count(what, rows))) for what in _SHARES}
    planted["prompt_crash"] = [order.pop()]
    broken = frozenset(planted["image"])
    images = [_image(rng) for _ in range(16)]
    shard_rows = max(50, rows // 200)
    size = shard_rows * (len(images[0]) // IMAGE_EVERY + 60)
    with MDSWriter(path, {"frames": "list[png]", "question": "str"}, size_limit=size) as writer:
        for row in range(rows):
            frames = [images[row % len(images)]] if row % IMAGE_EVERY == 0 else []
            writer.write({"frames": [b"no image"] if row in broken else frames, "question": question_of(row)})
    for row, error in _damage(path, rng, {row for of in planted.values() for row in of}).items():
        planted.setdefault(error, []).append(row)
    return Data(path, planted, _truth(rows, planted))


def write_spec(file: Path, data: Data, run_dir: Path, row_ms: float, block_rows: int) -> Path:
    """The spec of the run."""
    faults = [{"kind": what, "rows": rows} for what, rows in data.planted.items() if what in _ENGINE and rows]
    task = {what: data.planted[what] for what in ("prompt_crash", "prompt_raise", "parse_raise")}
    spec: dict[str, Any] = {
        "run_dir": str(run_dir),
        "source": {"kind": "mds", "path": str(data.path), "columns": {"images": ["frames"]}},
        "engine": {
            "kind": "scripted",
            "checkpoints": [CHECKPOINT],
            "answer": "{prompt}",
            "row_ms": row_ms,
            "batch_size": BATCH,
            "replicas": REPLICAS,
            "helpers": 1,
            "faults": faults,
        },
        "task": {
            "kind": "python",
            "python": "benchmarks.soak.task:SometimesSeen",
            "directory": str(ROOT),
            "options": task,
        },
        # Chaos uses up sweeps that a calm run does not need.
        "limits": {
            "stall_seconds": STALL_SECONDS,
            "load_seconds": 60.0,
            "init_attempts": 5,
            "sweeps": 12,
            "max_error_rate": 1.0,
        },
        "stream": {"block_rows": block_rows},
        "ray": {"cpus": REPLICAS + 2},
    }
    file.write_text(yaml.safe_dump(spec))
    return file


def _count(what: str, rows: int) -> int:
    if rows < _SMALL_ROWS and what in _LEFT_OUT:
        return 0
    return max(1, rows // _SHARES[what])


def _truth(rows: int, planted: Mapping[str, Iterable[int]]) -> dict[int, Truth]:
    truth = {row: Truth(question_of(row), None) for row in range(rows)}
    for what, of in planted.items():
        for row in of:
            error = ENDS.get(what, what)
            text = question_of(row)
            truth[row] = (
                Truth(text[: (len(text) + 1) // 2], None) if what == "truncate" else Truth(None, error, what in _BREAKS)
            )
    return truth


def _damage(path: Path, rng: random.Random, planted: set[int]) -> dict[int, str]:
    """Cuts one shard off in the middle of a row and removes another, none of whose rows has something planted.

    Returns:
        The error kind of each row that is hit.
    """
    shards = json.loads((path / "index.json").read_text())["shards"]
    firsts = [sum(shard["samples"] for shard in shards[:number]) for number in range(len(shards))]
    held = [range(first, first + shard["samples"]) for first, shard in zip(firsts, shards, strict=True)]
    cut, gone = rng.sample([number for number, of in enumerate(held) if planted.isdisjoint(of)], 2)
    lost = {firsts[gone] + row: "read.missing" for row in range(shards[gone]["samples"])}
    (path / shards[gone]["raw_data"]["basename"]).unlink()
    file, row = path / shards[cut]["raw_data"]["basename"], shards[cut]["samples"] // 2
    begin, end = struct.unpack_from("<2I", file.read_bytes(), 4 * (1 + row))
    os.truncate(file, (begin + end) // 2)
    return lost | {firsts[cut] + number: "read.corrupt" for number in range(row, shards[cut]["samples"])}


def _image(rng: random.Random) -> bytes:
    file = io.BytesIO()
    Image.frombytes("RGB", (8, 8), rng.randbytes(3 * 8 * 8)).save(file, "png")
    return file.getvalue()
