"""A model of the transformers engine with the calls of its vision encoder, caught while it answered real rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import torch

from proctor.compile.captured import Caught, catching
from proctor.compile.model import ENCODER, Shape
from proctor.compile.orders import Unit
from proctor.engines.base import EngineConfig
from proctor.engines.compiling.targets import Target, encoder_of, find_targets
from proctor.engines.hf_model import HFModel
from proctor.engines.prepare import Prepared, prepare
from proctor.engines.torchvision_shim import declare_missing_operators
from proctor.rows import Response, UserError


class Scene(NamedTuple):
    """One unit of the workload as this model sees it.

    Attributes:
        shape: with the encoder's patches in it.
        rows: ready for the model.
        calls: by target, and by `ENCODER`, the calls of its modules that the unit takes.
    """

    shape: Shape
    rows: list[Prepared]
    calls: dict[str, list[Caught]]


class Loaded:
    """The model, its targets, and the units of the workload; nothing is compiled.

    Args:
        config: of the transformers engine, with nothing compiled.
        wanted: names of targets, or patterns; empty: all.

    Raises:
        UserError: the model has no such targets, or takes no images.
    """

    def __init__(self, config: EngineConfig, wanted: Sequence[str]) -> None:
        declare_missing_operators()
        self.hf = HFModel(config)
        self.model: Any = self.hf._model
        if not self.hf.chat.takes_images:
            raise UserError("the model takes no images: it has no vision encoder", where="engine.checkpoints")
        self.encoder = encoder_of(self.model)
        self.targets: list[Target] = find_targets(self.model, wanted or None)

    @property
    def device(self) -> Any:
        """Where the model is: a ``torch.device``."""
        return self.model.device

    def scene(self, unit: Unit) -> Scene:
        """Has the unit answered up to its first token, and catches what the encoder and the targets are given.

        Raises:
            UserError: the model refuses one of the rows, or its encoder was not called.
        """
        rows = [prepare(request, self.hf.chat) for request in unit.requests]
        wanted = {target.name: target.modules for target in self.targets}
        with catching(self.model, {**wanted, ENCODER: (self.encoder,)} if self.encoder else wanted) as calls:
            self.answers([_cut(row) for row in rows])
        encoder = calls.get(ENCODER, [])
        if self.encoder and not encoder:
            what = f"the vision encoder ({self.encoder}) was not called for {unit.shape.name}"
            raise UserError(what, where="engine.checkpoints")
        shape = msgspec.structs.replace(unit.shape, patches=sum(call.rows for call in encoder))
        return Scene(shape, rows, {name: made for name, made in calls.items() if made})

    def inputs(self, scene: Scene, target: Target) -> list[Caught]:
        """What the target's modules are given in a unit as the model is set now; empty if the encoder has none of them.

        An encoder that is compiled in part may prepare more for its blocks than it does otherwise.
        """
        with catching(self.model, {target.name: target.modules}) as calls:
            for call in scene.calls.get(ENCODER, ()):
                call()
        return calls[target.name]

    def answers(self, rows: Sequence[Prepared]) -> list[Response]:
        """The model's answers.

        Raises:
            UserError: it refuses a row.
        """
        responses = self.hf.answers(rows, lambda _: None)
        for response in responses:
            if response.failure is not None:
                raise UserError(f"the model refuses a row of the sample: {response.failure.message}", where="source")
        return responses

    def subject(self) -> dict[str, str | int | float | bool | None]:
        """What a reader needs to know about where figures hold."""
        return {
            "architecture": type(self.model).__name__,
            "encoder": type(self.model.get_submodule(self.encoder)).__name__ if self.encoder else None,
            "parameters of the encoder": _parameters(self.model.get_submodule(self.encoder)) if self.encoder else None,
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "attention": getattr(self.model.config, "_attn_implementation", None),
            "device": str(self.device),
            "processor": _processor(self.device),
            "threads": torch.get_num_threads(),
            "torch": str(torch.__version__),
        }


def _cut(row: Prepared) -> Prepared:
    """The row with an answer of one token."""
    sampling = msgspec.structs.replace(row.request.sampling, max_tokens=1, forced=())
    return Prepared(msgspec.structs.replace(row.request, sampling=sampling), row.text, row.images)


def _parameters(module: Any) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _processor(device: Any) -> str:
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    capability = torch.backends.cpu.get_cpu_capability()
    return f"CPU with {capability}"
