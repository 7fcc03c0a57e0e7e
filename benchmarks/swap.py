"""A checkpoint swapped into a running engine against an engine started with it."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from proctor.demo.weights import model_dirs
from proctor.engines import EngineConfig
from proctor.engines.weights import read_weights, stamps
from proctor.rows import Event, Message, Request, TextPart
from proctor.storage.folder import open_folder
from proctor.supervise import Settings, Supervisor
from proctor.supervise.hotswap import HotSwap, SwapSetup

TITLE = "hot swap of checkpoints against cold starts (tiny Qwen3-VL)"
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
            figures.append(ratio(f"{kind}: a cold start takes so many times as long as {name}", ratios, name))
        figures.append(seconds_of(f"{kind}: cold start, until its probes are answered", starts))
        figures.append(seconds_of(f"{kind}: the swap and its proof", proven))
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
        seen = stamps(configs[0])
        supervisor = Supervisor(configs[0], settings, name=f"{kind}-{number}", on_event=events.append)
        supervisor.start()
        hot = HotSwap(supervisor, configs[0], SwapSetup(store), settings, events.append, name=kind, seen=seen)
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


def ratio(name: str, ratios: list[float], against: str) -> dict[str, Any]:
    return {
        "name": name,
        "figure": statistics.median(ratios),
        "unit": "times",
        "ratio_to": against,
        "rounds": len(ratios),
        "spread": [min(ratios), max(ratios)],
    }


def seconds_of(name: str, seconds: list[float]) -> dict[str, Any]:
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
        return run_engines(rounds, Path(folder))
