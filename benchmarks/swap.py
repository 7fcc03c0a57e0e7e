"""A checkpoint swapped into a running engine against an engine started with it, and twenty checkpoints either way."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from proctor import api
from proctor.demo.dataset import write_dataset
from proctor.demo.weights import model_dirs
from proctor.engines import EngineConfig
from proctor.engines.weights import read_weights
from proctor.rows import Event, Message, Request, TextPart
from proctor.spec import build_spec
from proctor.storage.folder import open_folder
from proctor.supervise import Settings, Supervisor
from proctor.supervise.hotswap import HotSwap, SwapSetup

TITLE = "hot swap of checkpoints against cold starts (tiny Qwen3-VL)"
CHECKPOINTS = 20
ROWS = 48
VLLM_PYTHON = Path(__file__).parents[1] / ".venv-vllm" / "bin" / "python"
VLLM_OPTIONS = {"kv_cache_memory_bytes": 2**25, "enforce_eager": True}
ENV = {"OMP_NUM_THREADS": "1"}


def run_engines(rounds: int, folder: Path) -> list[dict[str, Any]]:
    """Seconds of a start, of the swap itself, and of the swap with its proof, for each engine that is installed."""
    figures = []
    engines: dict[str, tuple[str | None, dict[str, Any]]] = {"transformers": (None, {})}
    if VLLM_PYTHON.is_file():
        engines["vllm"] = (str(VLLM_PYTHON), VLLM_OPTIONS)
    models = [str(path) for path in list(model_dirs(folder / "models").values())[:2]]
    for kind, (python, options) in engines.items():
        starts, swaps, proven = _engine(kind, python, options, models, rounds, folder / kind)
        for name, seconds in (("the swap itself", swaps), ("the swap and its proof, weights read ahead", proven)):
            ratios = [start / swap for start, swap in zip(starts, seconds, strict=True)]
            figures.append(_ratio(f"{kind}: a cold start takes so many times as long as {name}", ratios, name))
        figures.append(_seconds(f"{kind}: cold start, until its probes are answered", starts))
        figures.append(_seconds(f"{kind}: the swap and its proof", proven))
    return figures


def _engine(
    kind: str, python: str | None, options: dict[str, Any], models: list[str], rounds: int, folder: Path
) -> tuple[list[float], list[float], list[float]]:
    """Seconds of starts, of bare swaps and of proven swaps, in turn."""
    configs = [EngineConfig(kind, model=model, batch_size=8, options=options) for model in models]
    settings = Settings(120.0, 600.0, 1, 16, folder / "stalls", python=python, env=ENV)
    (folder / "stalls").mkdir(parents=True)
    store = open_folder(str(folder / "fingerprints"))
    events: list[Event] = []
    starts, swaps, proven = [], [], []
    for number in range(rounds):
        began = time.perf_counter()
        supervisor = Supervisor(configs[0], settings, name=f"{kind}-{number}", on_event=events.append)
        supervisor.start()
        hot = HotSwap(supervisor, configs[0], SwapSetup(store), settings, events.append, name=kind)
        hot.to(configs[0])
        starts.append(time.perf_counter() - began)
        if number == 0:
            hot.to(configs[1])  # not known yet: started anew, and its fingerprint is kept
            hot.to(configs[0])
        with_weights = read_weights(configs[1])
        began = time.perf_counter()
        outcome = supervisor.succeed(configs[1], weights=with_weights.path).result()
        swaps.append(time.perf_counter() - began)
        if outcome.how != "swapped":
            raise RuntimeError(f"{kind}: {outcome}")
        with_weights.close()
        hot.config = configs[1]
        hot.read_ahead(configs[0])
        _work(supervisor)
        began = time.perf_counter()
        hot.to(configs[0])
        proven.append(time.perf_counter() - began)
        if events[-1].kind != "engine.swapped":
            raise RuntimeError(f"{kind}: {events[-1].message}")
        supervisor.close()
    return starts, swaps, proven


def _work(supervisor: Supervisor) -> None:
    """What an engine does while the next checkpoint is read."""
    prompt = (Message("user", (TextPart("What is on the road?"),)),)
    for _ in supervisor.answer(Request(row, prompt) for row in range(32)):
        pass


def run_checkpoints(folder: Path) -> list[dict[str, Any]]:
    """A whole run over twenty checkpoints in sequence, and with engines started for each."""
    models = variants(list(model_dirs(folder / "models").values()), CHECKPOINTS, folder / "variants")
    write_dataset(folder / "data", ROWS, first_scene=90_000, corrupt={})
    seconds = {
        "restart": _whole_run(folder, models, "restart"),
        "sequential, every checkpoint for the first time": _whole_run(folder, models, "sequential", "first"),
        "sequential, fingerprints known": _whole_run(folder, models, "sequential"),
    }
    against = seconds.pop("restart")
    return [
        _seconds(f"{CHECKPOINTS} checkpoints, {ROWS} rows each: started for each", [against]),
        *(_seconds(f"{CHECKPOINTS} checkpoints, {ROWS} rows each: {name}", [value]) for name, value in seconds.items()),
        *(_ratio(f"{CHECKPOINTS} checkpoints: {name}", [against / value], name) for name, value in seconds.items()),
    ]


def variants(models: list[Path], count: int, folder: Path) -> list[Path]:
    """So many checkpoints of one architecture: each a copy of a real one whose weights are moved a little."""
    made = []
    for number in range(count):
        source, target = models[number % len(models)], folder / f"ck-{number:02}"
        shutil.copytree(source, target)
        tensors = load_file(target / "model.safetensors")
        random = np.random.default_rng(number)
        moved = {
            name: value + (1e-4 * random.standard_normal(value.shape)).astype(value.dtype)
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


def _ratio(name: str, ratios: list[float], against: str) -> dict[str, Any]:
    return {
        "name": name,
        "figure": statistics.median(ratios),
        "unit": "times",
        "ratio_to": against,
        "rounds": len(ratios),
        "spread": [min(ratios), max(ratios)],
    }


def _seconds(name: str, seconds: list[float]) -> dict[str, Any]:
    return {
        "name": name,
        "figure": statistics.median(seconds),
        "unit": "s",
        "rounds": len(seconds),
        "spread": [min(seconds), max(seconds)],
    }


def run(rounds: int) -> list[dict[str, Any]]:
    """See `TITLE`."""
    with tempfile.TemporaryDirectory(prefix="proctor-swap-") as folder:
        return [*run_engines(rounds, Path(folder)), *run_checkpoints(Path(folder))]
