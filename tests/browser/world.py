"""What the browser is shown: runs good and bad, and what else lies beside them."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from proctor.audit import write_audit
from proctor.compile.model import ANSWERS
from proctor.compile.store import write_bench
from proctor.compile.verdict import verdict
from proctor.fleet import words
from proctor.results import RunDir
from proctor.results.attempts import write_attempts
from proctor.rows import Event
from proctor.rows.records import record_schema
from scripts.trace_picture import write as write_trace
from tests.audit.planted import audited
from tests.compile.invented import FASTER, invented
from tests.fleet.staged_cells import YES, fleet_of, make_cells, tell
from tests.view.helpers import BEGAN, CHECKPOINTS, HOSTILE, make_run

ROWS = 100
HUGE = 10_000_000  # characters
SPLIT = {"name": "SPLIT", "default": 1, "values": [0], "env": True}
DUMP = """Thread 0x00007f3a (most recent call first):
  File "model.py", line 88 in decode
  File "loop.py", line 12 in run
"""


def make_world(root: Path) -> Path:
    """Directories of every kind below `root`."""
    dumped(make_run(root / "good", ROWS))
    faulty(root / "faults")
    make_run(root / "evil <b>&\"'", 12, lost=2, hostile=True)
    huge(root / "huge")
    halves(root, root / "good")
    damaged = root / "damaged"
    damaged.mkdir()
    (damaged / "spec.yaml").write_text("source: [")
    (root / "studies").mkdir()
    audit(root / "studies")
    bench(root / "studies" / "bench")
    traces(root / "traces")
    fleet(root / "fleets")
    return root


def faulty(root: Path) -> RunDir:
    """A run with rows that were never answered, tries in vain, a stack dump, and a part that was cut off."""
    run = make_run(root, 60, lost=6)
    name = list(CHECKPOINTS)[-1]
    tries = [_try(name, 54, sweep) for sweep in (1, 2)]
    for one in tries:
        write_attempts(run.attempts, pa.Table.from_pylist([one], schema=record_schema({})))
    dumped(run)
    (run.root / "results" / "part-cut-short-0-0-0.parquet").write_bytes(b"PAR1")
    return run


def dumped(run: RunDir) -> None:
    """An engine of a run stalled, and left its stacks."""
    dump = run.root / "stalls" / "1001-1.txt"
    dump.write_text(DUMP)
    run.append_event(Event("engine.stalled", BEGAN + 100, message="no token for 8.0 s", data={"dump": str(dump)}))


def _try(checkpoint: str, row_id: int, sweep: int) -> dict[str, Any]:
    return {
        "row_id": row_id,
        "checkpoint": checkpoint,
        "sample_id": str(row_id),
        "sweep": sweep,
        "error_kind": "infer.stalled",
        "error_message": "no token for 8.0 s",
        "engine": "host:1003",
        "attempts": 1,
        "finished_at": datetime.fromtimestamp(BEGAN + 190 + sweep, UTC),
    }


def huge(root: Path) -> RunDir:
    """A run of one row whose every text is hostile or far too long."""
    run = make_run(root, 2)
    for part in (run.root / "results").iterdir():
        part.unlink()
    long = f"{HOSTILE}\0\u202e" + "a" * HUGE
    row = {"row_id": 0, "checkpoint": f"c {HOSTILE}", "sample_id": "x" * 4_000, "answer": long, "target": '"\\ud800"'}
    row |= {f"way {HOSTILE}": [1.0], "score": float("nan"), "prompt": "word " * 400_000}
    schema = record_schema({f"way {HOSTILE}": pa.list_(pa.float32()), "score": pa.float64()})
    pq.write_table(pa.Table.from_pylist([row], schema), run.root / "results" / "part-c-0-0-0.parquet")
    return run


def halves(root: Path, whole: Path) -> None:
    """A run that has just been made, and one whose files end in the middle."""
    spec = (whole / "night-drive" / "spec.yaml").read_bytes()
    empty = RunDir(root / "empty")
    empty.folder.write("spec.yaml", spec)
    half = root / "half"
    shutil.copytree(whole / "night-drive", half)
    for file in [*half.glob("*.json"), half / "events.jsonl", *list((half / "results").iterdir())[:2]]:
        content = file.read_bytes()
        file.write_bytes(content[: len(content) // 2])


def audit(folder: Path) -> None:
    """An audit that found an effect of the batch size."""
    effect = {"batch": 5, "nats": 0.6, "knobs": {"SPLIT": 1}}
    found = audited(folder, effect, rows=12, batch_size=8, knobs=[SPLIT], near_ties=0.2)
    write_audit(folder / "audit", *found)


def bench(folder: Path) -> None:
    """A bench of a vision tower that is worth to compile."""
    measured = invented({**FASTER, ANSWERS: (0.5, 0.49)})
    write_bench(folder / "compile.json", measured, verdict(measured))


def traces(folder: Path) -> None:
    """Two ranks, of which one is late for every fourth all-reduce, and the same when it no longer is."""
    folder.mkdir()
    write_trace(folder / "before.sqlite")
    write_trace(folder / "after.sqlite", late=0)


def fleet(folder: Path) -> None:
    """Three checkpoints with two choices: two cells done, one without all of its answers, one in the queue again."""
    folder.mkdir()
    place = fleet_of(folder, ["step-20", "step-3", "step-100"], matrix={"set": {"sampling.max_tokens": [16, 64]}})
    done = {"attempt": 1, "exit_code": 0, "complete": True}
    ended = (words.UNIT_ADMITTED, words.UNIT_STARTED, words.UNIT_ENDED)
    make_cells(place, "step-3--max_tokens=16", {"step-3": YES}, "complete")
    make_cells(place, "step-20--max_tokens=16", {"step-20": ["yes"] * 4}, "complete")
    make_cells(place, "step-20--max_tokens=64", {"step-20": ["yes", ("lost", ""), ("lost", ""), "no"]}, "incomplete")
    tell(place, "step-3--max_tokens=16", *ended, start=BEGAN, **done)
    tell(place, "step-20--max_tokens=16", *ended, start=BEGAN + 600, **done)
    again = (words.UNIT_ADMITTED, words.UNIT_STARTED, words.UNIT_STOPPING, words.UNIT_GONE, words.UNIT_REQUEUED)
    tell(place, "step-100--max_tokens=64", *again, start=BEGAN + 9_000, attempt=1, counts=True)
