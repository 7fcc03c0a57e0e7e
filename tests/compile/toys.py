"""Small modules in the likeness of vision encoders, and compilers that break them in the ways that were reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from proctor.compile.captured import Caught, catching
from proctor.compile.gate import Switch

WIDTH = 16
SHAPES = {"2 images": 24, "1 image": 12, "5 images": 60}
"""By name of a shape, rows: never as many as a row is wide, or the compiler takes both for one size."""


class Block(nn.Module):
    """Norm, two layers, and what a deepstack gives it, if anything."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, rows: Any, deepstack: Any = None) -> Any:
        changed = rows + self.down(nn.functional.gelu(self.up(self.norm(rows))))
        return changed if deepstack is None else changed + deepstack


class Embed(nn.Module):
    """Patches become rows."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, 12) / 4)

    def forward(self, pixels: Any) -> Any:
        return nn.functional.linear(pixels, self.weight)


class Merger(nn.Module):
    """Four rows become one; the norm comes before (over `width`) or after that (over four times `width`)."""

    def __init__(self, width: int = WIDTH, *, after: bool = False) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * width if after else width)
        self.after = after
        self.out = nn.Linear(4 * width, 8)

    def forward(self, rows: Any) -> Any:
        if self.after:
            return self.out(self.norm(rows.reshape(-1, self.out.in_features)))
        return self.out(self.norm(rows).reshape(-1, self.out.in_features))


class Tower(nn.Module):
    """An embedding, four blocks, the main merger and two of a deepstack, which are of its class and another width."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed = Embed()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.merger = Merger()
        self.deepstack = nn.ModuleList(Merger(after=True) for _ in range(2))

    def forward(self, pixels: Any) -> Any:
        rows = self.embed(pixels)
        kept = rows
        deep = []
        for number, block in enumerate(self.blocks):
            rows = block(rows, deepstack=kept if number == 2 else None)
            if number < 2:
                deep.append(self.deepstack[number](rows))
        return self.merger(rows), deep


def pixels(rows: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(rows, 12, generator=torch.Generator().manual_seed(rows)).to(dtype)


def tower(dtype: Any = torch.float32) -> Tower:
    return Tower().to(dtype).eval()


def caught(model: Tower, modules: Sequence[str], shapes: Mapping[str, int] = SHAPES) -> dict[str, list[Caught]]:
    """What the modules are called with at every shape."""
    found = {}
    dtype = model.embed.weight.dtype
    for name, rows in shapes.items():
        with catching(model, {"mine": modules}) as calls, torch.inference_mode():
            model(pixels(rows, dtype))
        found[name] = calls["mine"]
    return found


def switch(
    modules: Sequence[nn.Module], backends: Mapping[str, Any] | Callable[..., Any] = MappingProxyType({})
) -> Switch:
    """Compiles the modules with PyTorch alone; `backends` stand in for those of some levels, or one for all."""

    @contextmanager
    def compiled(level: str) -> Iterator[Callable[[], str]]:
        torch.compiler.reset()
        backend = backends if callable(backends) else backends.get(level, level)
        for module in modules:
            module.compile(backend=backend, dynamic=True, fullgraph=True)
        try:
            yield lambda: ""
        finally:
            for module in modules:
                module._compiled_call_impl = None
            torch.compiler.reset()

    return compiled


def replacing(modules: Sequence[nn.Module], wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Switch:
    """No compiler at all: while it is on, what `wrap` makes of a module's call runs in place of it."""

    @contextmanager
    def compiled(level: str) -> Iterator[Callable[[], str]]:
        for module in modules:
            module._compiled_call_impl = wrap(module._call_impl)
        try:
            yield lambda: ""
        finally:
            for module in modules:
                module._compiled_call_impl = None

    return compiled


def drops(name: str) -> Callable[..., Any]:
    """A backend that loses an input: zeros go into the graph in its place."""

    def backend(graph: Any, examples: Any) -> Any:
        names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
        lost = [number for number, one in enumerate(names) if name in one]

        def run(*inputs: Any) -> Any:
            changed = [torch.zeros_like(one) if number in lost else one for number, one in enumerate(inputs)]
            return graph(*changed)

        return run

    return backend


def right_at_first(graph: Any, examples: Any) -> Any:
    """A backend whose code is right for as many rows as it ran on first; at others, rows beyond stay zero."""
    first: list[int] = []

    def run(*inputs: Any) -> Any:
        outputs = graph(*inputs)
        rows = max(len(one) for one in outputs if torch.is_tensor(one))
        first[:] = first or [rows]
        if rows == first[0]:
            return outputs
        return tuple(_cut(one, min(first[0], rows - 1)) if torch.is_tensor(one) else one for one in outputs)

    return run


def blank(graph: Any, examples: Any) -> Any:
    """A backend that makes a model blind: zeros come out."""
    return lambda *inputs: tuple(torch.zeros_like(one) if torch.is_tensor(one) else one for one in graph(*inputs))


def _cut(tensor: Any, rows: int) -> Any:
    kept = tensor.clone()
    kept[rows:] = 0
    return kept


def coarse(graph: Any, examples: Any) -> Any:
    """A backend that keeps four bits fewer of every output than the format has."""

    def run(*inputs: Any) -> Any:
        return tuple(_rounded(one) if torch.is_tensor(one) else one for one in graph(*inputs))

    return run


def _rounded(tensor: Any) -> Any:
    mantissa, exponent = torch.frexp(tensor.double())
    steps = 1 / (16 * torch.finfo(tensor.dtype).eps)
    return torch.ldexp((mantissa * steps).round() / steps, exponent).to(tensor.dtype)
