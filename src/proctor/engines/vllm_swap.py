"""The engine's side of a swap in vLLM: may it be, the workers' part, and the caches that hold what old weights made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from proctor.engines.base import EngineConfig, SwapRefused
from proctor.engines.surroundings import Site
from proctor.engines.swap_check import Outline, differing_files
from proctor.engines.swap_reasons import vllm_reason

_USED = ("collective_rpc", "reset_prefix_cache", "reset_mm_cache", "reset_encoder_cache", "has_unfinished_requests")
_RELOADING = Path("v1", "worker", "gpu_worker.py")
_NO_RELOAD = "this vLLM cannot reload weights"


def why_no_swap(config: EngineConfig, site: Site) -> str:
    """Why this vLLM cannot be swapped with this configuration; empty if nothing is known against it."""
    home = site.home("vllm")
    if home is None:
        return "vLLM is not installed"
    source = home / _RELOADING
    if not source.is_file() or "def reload_weights" not in source.read_text(encoding="utf-8"):
        return _NO_RELOAD
    return vllm_reason(config)


def check_files(own: Outline | None, wanted: Outline) -> None:
    """vLLM reads tokenizer, processor, template and generation settings at its start only: they have to be the same.

    Raises:
        SwapRefused: names the first file that differs.
    """
    changed = differing_files(own, wanted)
    if changed:
        raise SwapRefused(f"{changed[0]} differs, and vLLM reads it only when it starts")


def check_ready(engine: Any, weights: str) -> None:
    """The engine has what a swap needs, and so have all its workers.

    Args:
        engine: vLLM's `LLMEngine`.
        weights: path of published weights, or empty.

    Raises:
        SwapRefused: what is missing, or requests are in flight.
    """
    missing = [name for name in _USED if not hasattr(engine, name)]
    if missing:
        raise SwapRefused(f"this vLLM's engine has no {missing[0]}")
    if engine.has_unfinished_requests():
        raise SwapRefused("requests are in flight")
    for why in engine.collective_rpc("proctor_why_no_swap", args=(weights,)):
        if why:
            raise SwapRefused(why)


def replace_weights(engine: Any, model: str, weights: str) -> None:
    """Has every worker take over the weights, then empties every cache of what the old ones made.

    Raises:
        RuntimeError: a cache could not be emptied. After this or any other exception the engine must not answer.
    """
    engine.collective_rpc("proctor_swap", args=(model, weights))
    reset_caches(engine)


def reset_caches(engine: Any) -> None:
    """Empties the caches of prompts (key-value blocks), of processed images, and of image embeddings.

    All through the engine, which has a part in each: a worker's own reset leaves the scheduler believing that an
    image's embedding is still there.
    """
    if not engine.reset_prefix_cache():
        raise RuntimeError("vLLM did not empty its prefix cache: blocks are still in use")
    engine.reset_mm_cache()
    engine.reset_encoder_cache()
