"""Twenty checkpoints evaluated one after another in the same engine, against a started engine for each."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from benchmarks.swap import ENV, ratio, seconds_of
from proctor import api
from proctor.demo.dataset import write_dataset
from proctor.demo.weights import model_dirs
from proctor.spec import build_spec

TITLE = "many checkpoints in one engine against cold starts (tiny Qwen3-VL, transformers)"
CHECKPOINTS = 20
ROWS = 16


def run_checkpoints(folder: Path, count: int = CHECKPOINTS) -> list[dict[str, Any]]:
    """A whole run over twenty checkpoints in sequence, and with engines started for each."""
    models = variants(list(model_dirs(folder / "models").values()), count, folder / "variants")
    write_dataset(folder / "data", ROWS, first_scene=90_000, corrupt={})
    seconds = {
        "restart": _whole_run(folder, models, "restart"),
        "sequential, every checkpoint for the first time": _whole_run(folder, models, "sequential", "first"),
        "sequential, fingerprints known": _whole_run(folder, models, "sequential"),
    }
    against = seconds.pop("restart")
    return [
        seconds_of(f"{count} checkpoints, {ROWS} rows each: started for each", [against]),
        *(seconds_of(f"{count} checkpoints, {ROWS} rows each: {name}", [value]) for name, value in seconds.items()),
        *(ratio(f"{count} checkpoints: {name}", [against / value], name) for name, value in seconds.items()),
    ]


def variants(models: list[Path], count: int, folder: Path) -> list[Path]:
    """So many checkpoints of one architecture: each a copy of a real one whose weights are moved a little."""
    made = []
    for number in range(count):
        source, target = models[number % len(models)], folder / f"ck-{number:02}"
        shutil.copytree(source, target)
        tensors = load_file(target / "model.safetensors")
        draw = torch.Generator().manual_seed(number)
        moved = {
            name: value + (1e-4 * torch.randn(value.shape, generator=draw)).to(value.dtype)
            for name, value in tensors.items()
        }
        save_file(moved, target / "model.safetensors", metadata={"format": "pt"})
        made.append(target)
    return made


def _whole_run(folder: Path, models: list[Path], mode: str, known: str = "known") -> float:
    run_dir = folder / f"run-{mode}-{known}"
    spec = build_spec(
        {
            "run_dir": str(run_dir),
            "source": {
                "kind": "mds",
                "path": str(folder / "data"),
                "columns": {"images": ["frames"], "target": "target"},
            },
            "engine": {
                "kind": "transformers",
                "checkpoints": [str(model) for model in models],
                "batch_size": 16,
                "env": ENV,
                "mode": mode,
                **({"fingerprints": str(folder / "fingerprints")} if mode == "sequential" else {}),
            },
            "task": {"kind": "driving"},
            "sampling": {"max_tokens": 20},
        }
    )
    began = time.perf_counter()
    outcome = api.run(spec)
    seconds = time.perf_counter() - began
    if outcome.exit_code:
        raise RuntimeError(f"the run over {len(models)} checkpoints ended with {outcome.exit_code}: {outcome.reasons}")
    return seconds


def run(rounds: int, count: int = CHECKPOINTS) -> list[dict[str, Any]]:
    """See `TITLE`. One round, whatever is asked for: each has twice as many starts as there are checkpoints."""
    del rounds
    with tempfile.TemporaryDirectory(prefix="proctor-sequence-") as folder:
        return run_checkpoints(Path(folder), count)


if __name__ == "__main__":
    for figure in run(1, int(sys.argv[1]) if len(sys.argv) > 1 else CHECKPOINTS):
        print(figure)
