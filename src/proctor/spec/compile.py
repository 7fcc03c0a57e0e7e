"""What an engine compiles of its vision encoder."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from proctor.spec.model import MOST, SpecModel


class CompileSpec(SpecModel):
    """``transformers``: parts of the vision encoder run as code that ``torch.compile`` makes of them, each apart.

    Whether that is worth it depends on model, machine and images: ``proctor compile bench`` measures it. An empty block
    (``compile: {}``) compiles the encoder's blocks. Compiling happens while the engine starts, on pictures made up for
    it; a size of batch that the graphs do not cover is compiled when it comes.
    """

    targets: list[Annotated[str, Field(min_length=1, max_length=200)]] = ["blocks"]
    """Names of targets of the model's preset, such as ``blocks``, ``merger``, ``patch_embed``, or patterns of names of
    its modules, such as ``model.visual.blocks.*.mlp``. A name that fits nothing is answered with those there are; parts
    of the language model are refused."""
    backend: Literal["inductor", "aot_eager", "eager"] = "inductor"
    """What makes code of a graph. ``aot_eager`` and ``eager`` gain no speed; they show where a difference arises."""
    dynamic: bool | None = True
    """Whether one graph serves all sizes (``true``), each size has its own (``false``), or sizes are generalised once
    they are seen to change (``null``)."""
    fullgraph: bool = True
    """A target has to be one graph: the engine does not start with one that breaks, and says where. ``false`` runs such
    a target in pieces."""
    recompile_limit: int = Field(default=8, ge=1, le=256)
    """Graphs that one target may have. When it needs one more it runs eagerly from then on, which is an event."""

    @model_validator(mode="after")
    def _names_targets(self) -> CompileSpec:
        if not self.targets:
            raise ValueError("`targets` is empty; leave out `compile` to compile nothing")
        return self


class VllmCompileSpec(SpecModel):
    """``vllm``: its own switches for the vision encoder.

    They are refused where the installed version does not have them or they cannot work, and an event after the start
    says of each whether it is in effect.
    """

    encoder: bool = False
    """Compile the encoder's blocks (``compilation_config.compile_mm_encoder``)."""
    graphs: bool = False
    """Replay the encoder from CUDA graphs (``compilation_config.cudagraph_mm_encoder``)."""
    graph_budgets: list[Annotated[int, Field(ge=1, le=MOST)]] = []
    """Sizes in encoder tokens to record graphs for; images beyond the largest run eagerly. Default: vLLM's own."""
    graph_max_images: int | None = Field(default=None, ge=1, le=MOST)
    """Most images in one replay. Default: vLLM's own."""
    graph_max_frames: int | None = Field(default=None, ge=0, le=MOST)
    """Most video frames in one replay. Default: vLLM's own."""
    parallel: Literal["weights", "data"] | None = None
    """With tensor parallelism: split the encoder's weights over the GPUs, or give each GPU the whole encoder and a part
    of the images (``mm_encoder_tp_mode``). Default: vLLM's own, ``weights``."""

    @model_validator(mode="after")
    def _budgets_need_graphs(self) -> VllmCompileSpec:
        sized = [name for name in ("graph_budgets", "graph_max_images", "graph_max_frames") if getattr(self, name)]
        if sized and not self.graphs:
            raise ValueError(f"`{sized[0]}` has no effect without `graphs: true`")
        return self
