"""Settings that are valid but would have no effect: each is a warning."""

from __future__ import annotations

from proctor.spec.engine import EngineBase, FaultSpec, LocalEngineBase, TransformersEngineSpec
from proctor.spec.run import LimitsSpec, RunSpec
from proctor.spec.task import PythonTaskSpec


def warnings_of(spec: RunSpec) -> list[str]:
    """One line for each setting of `spec` that will have no effect, ``key: why``."""
    return [*_sampling(spec), *_images(spec), *_limits(spec), *_engine(spec), *_faults(spec), *_task(spec)]


def _sampling(spec: RunSpec) -> list[str]:
    found = []
    fields = type(spec.sampling).model_fields
    set_keys = {key for key in fields if getattr(spec.sampling, key) != fields[key].default}
    if spec.sampling.temperature == 0:
        found += [
            f"sampling.{key}: has no effect while sampling.temperature is 0 (greedy)"
            for key in ("top_p", "seed")
            if key in set_keys
        ]
    if spec.engine.kind == "scripted" and set_keys:
        keys = ", ".join(sorted(f"sampling.{key}" for key in set_keys))
        found.append(f"{keys}: the scripted engine does not sample")
    return found


def _images(spec: RunSpec) -> list[str]:
    if spec.images.scale_on_decode and spec.images.resize is None:
        return ["images.scale_on_decode: has no effect without images.resize"]
    return []


def _limits(spec: RunSpec) -> list[str]:
    limits = spec.limits
    if limits.on_error_rate == "continue" and limits.min_rows != LimitsSpec().min_rows:
        return ["limits.min_rows: has no effect without limits.on_error_rate: stop"]
    return []


def _faults(spec: RunSpec) -> list[str]:
    usual, found = FaultSpec.model_fields, []
    for position, fault in enumerate(spec.engine.faults):
        where = f"engine.faults.{position}"
        if fault.kind != "delay" and fault.seconds != usual["seconds"].default:
            found.append(f"{where}.seconds: has no effect on {fault.kind}, only on delay")
        if fault.every is None and fault.below != usual["below"].default:
            found.append(f"{where}.below: has no effect without {where}.every")
    return found


def _engine(spec: RunSpec) -> list[str]:
    engine, found = spec.engine, []
    if isinstance(engine, LocalEngineBase) and engine.device == "cpu" and engine.gpus_per_replica > 0:
        found.append("engine.gpus_per_replica: reserves GPUs for an engine that engine.device keeps on the CPU")
    if isinstance(engine, TransformersEngineSpec) and engine.device == "cuda" and engine.gpus_per_replica == 0:
        found.append("engine.device: cuda without engine.gpus_per_replica; Ray hides GPUs it did not reserve")
    found += [f"engine.{key}: has no effect without engine.mode: sequential" for key in _unused_in_restarts(engine)]
    if engine.mode == "sequential" and len(engine.checkpoints) == 1:
        found.append("engine.mode: has no effect on one checkpoint")
    if engine.kind == "openai" and engine.gpus_per_replica > 0:
        found.append("engine.gpus_per_replica: an openai engine only sends requests")
    return found


def _unused_in_restarts(engine: EngineBase) -> list[str]:
    unset = type(engine).model_fields
    keys = ("fingerprints", "reference") if engine.mode == "restart" else ()
    return [key for key in keys if getattr(engine, key) != unset[key].default]


def _task(spec: RunSpec) -> list[str]:
    found = []
    columns = spec.source.columns
    if not isinstance(spec.task, PythonTaskSpec) and spec.task.prompt is not None and columns.prompt is not None:
        found.append("task.prompt: has no effect, source.columns.prompt gives each row its own prompt")
    if columns.target is None and not isinstance(spec.task, PythonTaskSpec):
        found.append("source.columns.target: not set, so no row can be marked (answers are still stored)")
    return found
