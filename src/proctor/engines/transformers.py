"""Runs a model in Hugging Face transformers, in micro-batches."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from proctor.engines.base import EngineConfig, Feed, Reporter, SwapRefused, unheard
from proctor.engines.fallback import Batches
from proctor.engines.installed import check_installed
from proctor.engines.model_directory import check_model_directory
from proctor.engines.options import check_options
from proctor.engines.prepare import Prepared, prepare
from proctor.engines.published_weights import agreed
from proctor.engines.refusal import Refused
from proctor.engines.swap_check import (
    GENERATION,
    Outline,
    check_configuration,
    differing_files,
    known_outline,
)
from proctor.engines.swap_reasons import transformers_reason
from proctor.engines.torchvision_shim import declare_missing_operators
from proctor.rows import Request, Response, UserError

if TYPE_CHECKING:
    from proctor.engines.hf_model import HFModel

OPTIONS = (
    "attn_implementation",
    "device_map",
    "experts_implementation",
    "max_memory",
    "mm_processor_kwargs",
    "offload_folder",
    "pad_to_multiple_of",
    "trust_remote_code",
    "use_safetensors",
    "variant",
)
"""Options that `from_pretrained` gets; `mm_processor_kwargs` and `pad_to_multiple_of` are for the processor."""
RESERVED = {"dtype": "engine.dtype", "torch_dtype": "engine.dtype", "device": "engine.device"}
FILL_SECONDS = 0.005
"""How long a batch that is not full waits for further rows."""


class TransformersEngine:
    """Image-text-to-text models (any number of images a row) and text models, greedy or sampled.

    A failing batch is tried again row by row, so a row costs itself only. Sampled rows draw from generators of their
    own: the same row draws the same numbers whatever shares its batch, though the scores that the draw is made from
    may differ in their last bits, as everywhere in batched arithmetic.
    """

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._model: HFModel | None = None
        self._outline: Outline | None = None
        self._batches: Batches[Prepared] | None = None
        self._report: Reporter = unheard

    def check(self) -> None:
        """Looks at the model directory and the names of the options.

        Raises:
            UserError: what is wrong.
        """
        check_model_directory(self._config.model)
        check_installed("torch", "transformers", extra="transformers")
        check_options(self._config.options, OPTIONS, engine="the transformers engine", reserved=RESERVED)

    def load(self) -> None:
        """Loads processor and weights."""
        declare_missing_operators()
        from proctor.engines import torch_faults
        from proctor.engines.hf_model import HFModel

        self._outline = known_outline(self._config.model)
        self._model = HFModel(self._config)
        self._batches = Batches(
            self._run,
            out_of_memory=torch_faults.out_of_memory,
            # What is compiled when a row comes may turn out to be impossible: that is no fault of the row.
            broken=lambda error: isinstance(error, UserError) or torch_faults.broken(error),
            free=torch_faults.free,
        )

    def stream(self, feed: Feed, report: Reporter) -> Iterator[Response]:
        """Answers every request of `feed`, a micro-batch at a time."""
        if self._batches is None:
            raise RuntimeError("stream() before load()")
        self._report = report
        while requests := _next_batch(feed, self._config.batch_size):
            rows: list[Prepared] = []
            for request in requests:
                try:
                    rows.append(prepare(request, self._loaded.chat))
                except Refused as refusal:
                    yield refusal.response(request.id)
            for alike in _with_and_without_images(rows):
                yield from self._batches.answers(alike)

    def swap(self, config: EngineConfig, weights: str = "") -> None:
        """Takes over another checkpoint of the same architecture: on a CPU the published weights as they lie in shared
        memory, on a GPU by copying into the weights that are there. Tokenizer, processor and template are loaded anew
        where their files differ, and generation settings always.

        Raises:
            SwapRefused: another architecture, other tensors, quantized weights, no safetensors files, or an option
                that stands in the way; nothing has changed.
        """
        check_configuration(self._config, config)
        if why := transformers_reason(config):
            raise SwapRefused(why)
        with agreed(self._outline, config, weights) as (outline, published):
            changed = differing_files(self._outline, outline)
            tensors = None if published is None else published.tensors()
            self._model = self._loaded.successor(config, tensors, same_processor=set(changed) <= {GENERATION})
        self._config, self._outline = config, outline

    def close(self) -> None:
        """Forgets the model."""
        self._model = self._batches = None
        gc.collect()

    @property
    def _loaded(self) -> HFModel:
        if self._model is None:
            raise RuntimeError("the engine has no model: load() first")
        return self._model

    def _run(self, rows: Sequence[Prepared]) -> list[Response]:
        try:
            return self._loaded.answers(rows, self._report)
        except Refused as refusal:  # only a row that is alone is ever refused here
            return [refusal.response(row.request.id) for row in rows]


def _next_batch(feed: Feed, size: int) -> list[Request]:
    """Up to `size` requests: waits for the first, and a moment for the others. Empty at the end of the feed."""
    batch = feed.take(size, wait=True)
    deadline = time.monotonic() + FILL_SECONDS
    while batch and len(batch) < size and time.monotonic() < deadline:
        more = feed.take(size - len(batch), wait=False)
        batch += more
        if not more:
            time.sleep(FILL_SECONDS / 5)
    return batch


def _with_and_without_images(rows: Sequence[Prepared]) -> Iterator[list[Prepared]]:
    # Many processors take a batch with images or one without, not a mixture.
    for alike in ([row for row in rows if row.images], [row for row in rows if not row.images]):
        if alike:
            yield alike
