"""What to compile, as plain values that travel to the engine's process. Imports no torch."""

from __future__ import annotations

from typing import Literal

import msgspec

RECOMPILE_LIMIT = 8
"""PyTorch's own default."""


class Compile(msgspec.Struct, frozen=True):
    """How the transformers engine compiles parts of its vision encoder; the fields are those of the spec.

    Attributes:
        targets: names of targets, or patterns of module names; empty: every target that there is.
        backend: a backend of ``torch.compile``.
        dynamic: whether sizes are symbols from the first graph on (True), constants (False), or become symbols when
            they are seen to change (None).
        fullgraph: a target has to be one graph; one that breaks is refused.
        recompile_limit: graphs that one target may have before it runs eagerly.
    """

    targets: tuple[str, ...] = ()
    backend: str = "inductor"
    dynamic: bool | None = True
    fullgraph: bool = True
    recompile_limit: int = RECOMPILE_LIMIT


class EncoderSwitches(msgspec.Struct, frozen=True):
    """vLLM's own switches for its vision encoder; the fields are those of the spec.

    Attributes:
        encoder: ``compilation_config.compile_mm_encoder``.
        graphs: ``compilation_config.cudagraph_mm_encoder``.
        graph_budgets: ``encoder_cudagraph_token_budgets``; empty: vLLM's own.
        graph_max_images: ``encoder_cudagraph_max_vision_items_per_batch``; None: vLLM's own.
        graph_max_frames: ``encoder_cudagraph_max_frames_per_batch``; None: vLLM's own.
        parallel: ``mm_encoder_tp_mode``; None: vLLM's own.
    """

    encoder: bool = False
    graphs: bool = False
    graph_budgets: tuple[int, ...] = ()
    graph_max_images: int | None = None
    graph_max_frames: int | None = None
    parallel: Literal["weights", "data"] | None = None
