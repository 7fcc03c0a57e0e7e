"""Four checkpoints over one preparation (`stream.checkpoints_at_once`), against a run for each.

The scripted engine answers at once, so that what is measured is what comes before and after it. Preparation is timed in
Ray's workers, around the stage itself: seconds of processor time that its thread took. What lies in the object store is
told by Ray: bytes that were made there in a run, whatever became of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.mds import ratios, result
from proctor.demo.dataset import write_dataset
from proctor.spec import build_spec

TITLE = "four checkpoints over one preparation against a run for each"
CHECKPOINTS = ["a", "b", "c", "d"]
ROWS = 400
MOST_ROUNDS = 2
ROOT = Path(__file__).parents[1]
_COST = "PROCTOR_BENCHMARK_COST"


def run(rounds: int, rows: int = ROWS) -> list[dict[str, Any]]:
    """See `TITLE`."""
    with tempfile.TemporaryDirectory(prefix="proctor-parallel-") as folder:
        write_dataset(Path(folder, "data"), rows, first_scene=91_000, corrupt={})
        env = {**os.environ, "PYTHONPATH": str(ROOT), _COST: str(Path(folder, "cost"))}
        command = [sys.executable, "-m", "benchmarks.parallel", folder, str(min(rounds, MOST_ROUNDS))]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=env)
    if done.returncode:
        raise RuntimeError(f"the measured runs failed:\n{done.stderr[-2000:]}")
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    cpu, store, rows_prepared = ([one[name] for one in found] for name in ("cpu", "store", "rows"))
    apart = [sum(each[:-1]) for each in cpu]
    more = [(each[-1] - each[0]) / (len(CHECKPOINTS) - 1) / each[0] for each in store]
    return [
        result("preparation, 4 runs", "CPU s", apart, digits=2),
        result("preparation, 4 checkpoints in one run", "CPU s", [each[-1] for each in cpu], digits=2),
        result("preparation: CPU of 4 runs", "x", ratios(apart, [each[-1] for each in cpu]), "one run", digits=2),
        result(
            "rows prepared, 4 runs", "x", [sum(e[:-1]) / e[-1] for e in map(list, rows_prepared)], "one run", digits=2
        ),
        result("object store: growth for a further checkpoint", "x", more, "a run with one", digits=3),
        result("seconds of 4 runs", "x", [sum(one["seconds"][:-1]) / one["seconds"][-1] for one in found], "one run"),
    ]


def count_preparation() -> None:
    """In each of Ray's workers: preparing a block leaves a line with its processor seconds and its rows."""
    from proctor.runner import prepare as stage

    plain: Callable[..., Any] = stage.prepare

    def counted(block: Any, *, setup: Any) -> Any:
        begun = time.thread_time()
        table = plain(block, setup=setup)
        with Path(os.environ[_COST]).open("a") as file:
            file.write(f"{time.thread_time() - begun} {block.num_rows}\n")
        return table

    stage.prepare = counted


def _spec(folder: Path, name: str, checkpoints: list[str]) -> Any:
    return build_spec(
        {
            "run_dir": str(folder / name),
            "source": {
                "kind": "mds",
                "path": str(folder / "data"),
                "columns": {"images": ["frames"], "target": "target"},
            },
            "engine": {"kind": "scripted", "checkpoints": checkpoints, "cpus_per_replica": 0.5},
            "stream": {"checkpoints_at_once": len(checkpoints), "prepare_cpus": 0.5, "block_rows": 32},
            "task": {"kind": "driving"},
        }
    )


def _store_bytes() -> int:
    """Bytes that were ever made in this node's object store."""
    import ray
    from ray._private.internal_api import node_stats

    (node,) = ray.nodes()
    reply = node_stats(node["NodeManagerAddress"], node["NodeManagerPort"])
    return int(reply.store_stats.cumulative_created_bytes)


def _measured(spec: Any) -> dict[str, float]:
    from proctor import api

    cost = Path(os.environ[_COST])
    cost.write_text("")
    before, begun = _store_bytes(), time.perf_counter()
    outcome = api.run(spec)
    seconds = time.perf_counter() - begun
    if not outcome.reconciliation.complete:
        raise RuntimeError(f"not every row was answered: {outcome.reconciliation}")
    lines = [line.split() for line in cost.read_text().splitlines()]
    return {
        "cpu": sum(float(cpu) for cpu, _ in lines),
        "rows": sum(int(rows) for _, rows in lines),
        "store": _store_bytes() - before,
        "seconds": seconds,
    }


def main(folder: Path, rounds: int) -> None:
    """Prints a line of figures for each round: those of a run for each checkpoint, and then of the one for all."""
    import ray

    hook = {"worker_process_setup_hook": "benchmarks.parallel.count_preparation"}
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, runtime_env=hook)
    _measured(_spec(folder, "warm", CHECKPOINTS[:1]))  # workers start
    for number in range(rounds):
        specs = [_spec(folder, f"{number}-{name}", [name]) for name in CHECKPOINTS]
        found = [_measured(spec) for spec in [*specs, _spec(folder, f"{number}-together", CHECKPOINTS)]]
        print(json.dumps({name: [each[name] for each in found] for name in found[0]}), flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
