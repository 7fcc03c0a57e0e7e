"""What a module gives, taken apart: tensors and plain values by name, whatever they are wrapped in."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

PLAIN = (str, bytes, bool, int, float, type(None), torch.dtype, torch.device)


def leaves(output: Any) -> dict[str, Any]:
    """Tensors and plain values of an output, by the way to them, such as ``hidden_states[2]``.

    Numbers with a point become tensors of no dimensions (float64); arrays of NumPy become tensors. Tuples, lists and
    mappings (transformers' outputs among them), data classes and other objects are gone into; one that has nothing in
    it is a value by itself.
    """
    return dict(_walk("", output, ()))


def _walk(name: str, value: Any, above: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, float):
        yield name, torch.tensor(value, dtype=torch.float64)
    elif torch.is_tensor(value):
        yield name, value.to_dense() if value.layout is not torch.strided else value
    elif isinstance(value, PLAIN) or id(value) in above:
        yield name, value
    elif type(value).__module__ == "numpy":
        yield name, torch.as_tensor(value)
    else:
        parts = list(_parts(value))
        if not parts:
            yield name, value
        for step, part in parts:
            yield from _walk(_joined(name, step), part, (*above, id(value)))


def _parts(value: Any) -> Iterator[tuple[str | int, Any]]:
    if isinstance(value, Mapping):
        yield from ((str(key), part) for key, part in value.items())
    elif isinstance(value, tuple | list):
        yield from enumerate(value)
    elif dataclasses.is_dataclass(value):
        yield from ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    else:
        yield from vars(value).items() if hasattr(value, "__dict__") else ()


def _joined(name: str, step: str | int) -> str:
    if isinstance(step, int):
        return f"{name}[{step}]"
    return f"{name}.{step}" if name else step


def map_tensors(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same arguments with every tensor changed; tuples, lists and dictionaries are gone into."""
    if torch.is_tensor(value):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(part, change) for part in value))
    if isinstance(value, tuple | list):
        return type(value)(map_tensors(part, change) for part in value)
    if isinstance(value, dict):
        return {key: map_tensors(part, change) for key, part in value.items()}
    return value
