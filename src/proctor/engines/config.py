"""From the spec's engine to the plain configuration that a child process takes."""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.engines.base import EngineConfig, Fault
from proctor.engines.compiling.settings import Compile, EncoderSwitches
from proctor.spec import (
    Checkpoint,
    EngineSpec,
    OpenAIEngineSpec,
    ScriptedEngineSpec,
    TransformersEngineSpec,
    VllmEngineSpec,
)
from proctor.spec.engine import LocalEngineBase


def engine_config(spec: EngineSpec, checkpoint: Checkpoint, fault_state: str = "") -> EngineConfig:
    """The configuration of the engine that evaluates `checkpoint`.

    Args:
        spec: the spec's ``engine`` part.
        checkpoint: one of its checkpoints.
        fault_state: local directory where planted faults keep their counts.
    """
    faults = tuple(
        Fault(f.kind, tuple(f.rows), f.every, f.below, f.times, f.seconds)
        for f in spec.faults
        if f.checkpoint in (None, checkpoint.name)
    )
    common: dict[str, Any] = {"kind": spec.kind, "model": checkpoint.path, "batch_size": spec.batch_size}
    if isinstance(spec, ScriptedEngineSpec):
        keys = {"answer", "answers", "row_ms", "load_seconds", "load_failures", "close_seconds", "helpers", "numerics"}
        keys |= {"swap", "swap_at", "swap_times"}
        own: dict[str, Any] = {
            "dtype": spec.dtype,
            "options": spec.model_dump(include=keys, exclude_none=True, exclude_defaults=False),
        }
    elif isinstance(spec, OpenAIEngineSpec):
        keys = {"base_url", "api_key_env", "timeout_seconds", "max_retries", "token_ids"}
        own = {"options": spec.model_dump(include=keys)}
    else:
        own = spec.model_dump(include={"dtype", "device", "max_model_len", "multiprocessing", "options"})
        own |= _compiling(spec)
    return EngineConfig(**common, **own, faults=faults, fault_state=fault_state)


def _compiling(spec: TransformersEngineSpec | VllmEngineSpec) -> dict[str, Compile | EncoderSwitches]:
    if spec.compile is None:
        return {}
    block = spec.compile.model_dump()
    if spec.kind == "transformers":
        return {"compile": msgspec.convert(block, Compile)}
    return {"encoder": msgspec.convert(block, EncoderSwitches)}


def environment(spec: EngineSpec) -> tuple[str | None, dict[str, str]]:
    """The interpreter of the engine's process (None: the one that runs Proctor) and its environment variables."""
    return (spec.python, spec.env) if isinstance(spec, LocalEngineBase) else (None, {})
