"""What one engine takes: memory of its node, and of its GPUs."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from proctor.capacity.figures import Figure
from proctor.capacity.model import Model, read_model
from proctor.capacity.overhead import (
    ACTOR_BYTES,
    CHARS_PER_TOKEN,
    ENGINE_BYTES,
    GPU_ENGINE_BYTES,
    ROW_COPIES,
)
from proctor.capacity.sample import Sample
from proctor.capacity.sequence import swap_memory
from proctor.engines.vllm_arguments import CPU_KV_CACHE_BYTES
from proctor.spec import RunSpec
from proctor.spec.engine import LocalEngineBase, VllmEngineSpec

_FLOAT32_RGB = 12


@dataclass(frozen=True, slots=True)
class RowNeed:
    """What the largest sampled row asks of an engine.

    Attributes:
        tokens: tokens of its prompt, images included; None if the model's image tokens are not known.
        patches: patches of its images.
        pixel_bytes: bytes of its images as the model's processor returns them.
    """

    tokens: int | None
    patches: int
    pixel_bytes: int


def read_models(spec: RunSpec) -> list[Model]:
    """The models of all checkpoints, for engines that load one.

    Raises:
        UserError: a model directory is not there.
    """
    engine = spec.engine
    if not isinstance(engine, LocalEngineBase):
        return []
    vllm = isinstance(engine, VllmEngineSpec)
    return [read_model(c.path, engine.dtype, vllm=vllm, options=engine.options) for c in engine.checkpoints]


def row_need(model: Model, sample: Sample) -> RowNeed:
    """What the largest row of a sample asks of an engine with this model."""
    text = math.ceil(sample.prompt_chars / CHARS_PER_TOKEN)
    images = model.image_tokens(sample.image_rows)
    if images is not None:
        tokens, patches, pixels = images
        return RowNeed(text + tokens, patches, pixels)
    pixels = max((sum(s.height * s.width for s in row) for row in sample.image_rows), default=0) * _FLOAT32_RGB
    return RowNeed(None if pixels else text, 0, pixels)


def on_gpu(spec: RunSpec) -> bool:
    """Whether the engine computes on GPUs."""
    engine = spec.engine
    return isinstance(engine, LocalEngineBase) and engine.device != "cpu" and engine.gpus_per_replica > 0


def host_memory(
    spec: RunSpec, sample: Sample, models: list[Model], block: float, given: float | None = None
) -> list[Figure]:
    """Memory of a node that one engine takes, with its actor, the rows it is working on, and what is read ahead for it;
    the last is the sum.

    Args:
        spec: the run.
        sample: of its rows.
        models: of its checkpoints; empty for engines that load none.
        block: bytes of a prepared block.
        given: bytes of the engine's own process, if they are known.
    """
    stream, batch = spec.stream, spec.engine.batch_size
    rows = ROW_COPIES * stream.blocks_in_flight * block
    window = 2 * batch * sample.mean_row * sample.f_prepared
    formula = f"actor {ACTOR_BYTES / 1e6:.0f} MB + {ROW_COPIES} x {stream.blocks_in_flight} blocks + 2 x {batch} rows"
    parts = [Figure("an engine's actor and rows", ACTOR_BYTES + rows + window, "B", formula, "measured")]
    process = _process(spec, sample, models)
    if given is not None:
        process = [Figure("an engine's process", given, "B", "as given", "given")]
    parts += [*process, *swap_memory(spec, models, sum(part.value or 0.0 for part in process))]
    total = sum(part.value or 0.0 for part in parts)
    return [*parts, Figure("memory of an engine", total, "B", "sum of the above", "computed")]


def _process(spec: RunSpec, sample: Sample, models: list[Model]) -> list[Figure]:
    base = ENGINE_BYTES[spec.engine.kind]
    if not models:
        return [Figure("an engine's process", base, "B", "with everything imported", "measured")]
    batch = spec.engine.batch_size
    needs = [row_need(model, sample) for model in models]
    pixels = batch * max(need.pixel_bytes for need in needs)
    found = [Figure("pixels of a batch", pixels, "B", f"{batch} rows x 12 or 24 bytes a pixel, float32", "computed")]
    if on_gpu(spec):
        return [Figure("an engine's process", GPU_ENGINE_BYTES, "B", "CUDA context, pinned memory", "assumed"), *found]
    found.append(Figure("an engine's process", base, "B", "with everything imported", "measured"))
    most = max(range(len(models)), key=lambda at: models[at].weight_bytes)
    model, need = models[most], needs[most]
    weights = f"{model.weights.source}, as {model.dtype}"
    found.append(Figure("weights", model.weight_bytes or None, "B", weights, "config"))
    found.append(_cpu_cache(spec, model, need))
    tokens = batch * (need.tokens or 0)
    activations = model.activation_bytes(tokens, batch, batch * need.patches)
    formula = f"{tokens:,} tokens x (4 x hidden + 3 x intermediate) + logits + image patches"
    return [*found, Figure("activations", None if model.missing else activations, "B", formula, "assumed")]


def _cpu_cache(spec: RunSpec, model: Model, need: RowNeed) -> Figure:
    """vLLM sets its cache aside at the start; transformers lets it grow with the batch."""
    engine = spec.engine
    assert isinstance(engine, LocalEngineBase)
    if isinstance(engine, VllmEngineSpec):
        said = engine.env.get("VLLM_CPU_KVCACHE_SPACE") or os.environ.get("VLLM_CPU_KVCACHE_SPACE")
        option = engine.options.get("kv_cache_memory_bytes")
        if isinstance(option, int):
            return Figure("key-value cache", option, "B", "engine.options.kv_cache_memory_bytes", "given")
        if said and said.replace(".", "", 1).isdigit():
            return Figure("key-value cache", float(said) * 2**30, "B", "VLLM_CPU_KVCACHE_SPACE, in GiB", "given")
        return Figure("key-value cache", CPU_KV_CACHE_BYTES, "B", "the engine's default on a CPU", "config")
    length = (need.tokens or 0) + spec.sampling.max_tokens
    formula = f"{engine.batch_size} rows x {length:,} tokens x {model.kv_token_bytes:,} B"
    cache = None if model.missing else engine.batch_size * length * model.kv_token_bytes
    return Figure("key-value cache", cache, "B", formula, "computed")
