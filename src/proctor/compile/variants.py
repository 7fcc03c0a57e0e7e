"""Calls beside those that were caught: other sizes, other values, and without inputs that may be left out.

A compiled module may be right for exactly what it saw first. What it has to be tried with besides: a few rows fewer and
more than the call it was compiled for, other values in tensors of the same sizes, and each optional input left out.
Whether a variant is one that the module takes, the module itself says: one at which it fails as it was written is none.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from proctor.compile.captured import Caught
from proctor.compile.leaves import leaves, map_tensors

STEPS = (1, 4, 16, 64)
"""By so many rows a size is changed, the first that the module takes: merging modules need a multiple of theirs."""
_MASKED = 1e4
"""A tensor with larger values is a mask of logits: it is left as it is."""


class Variant(NamedTuple):
    """A call that was changed.

    Attributes:
        label: what was changed.
        tries: the changed calls; the first that the module takes counts.
        left_out: the optional input that it is without.
    """

    label: str
    tries: tuple[Caught, ...]
    left_out: str = ""


def variants(call: Caught) -> list[Variant]:
    """All of one call."""
    found = [Variant(label, tuple(_sizes(call, sign))) for label, sign in (("fewer rows", -1), ("more rows", 1))]
    found.append(Variant("other values", (other_values(call),)))
    found += [Variant(f"without {name}", (less,), name) for name, less in without(call)]
    return [one for one in found if one.tries]


def other_values(call: Caught) -> Caught:
    """The same with the values of every floating-point tensor moved on by one place, so that each is another."""
    return Caught(call.module, *map_tensors((call.args, call.kwargs), _moved))


def _moved(tensor: Any) -> Any:
    if not tensor.dtype.is_floating_point or not tensor.numel() or not bool(tensor.abs().max() < _MASKED):
        return tensor
    return tensor.flatten().roll(1).reshape(tensor.shape)


def without(call: Caught) -> Iterator[tuple[str, Caught]]:
    """The same with one optional input left out: for each that ``forward`` has None for when it is not given."""
    for name, number in _optional(call).items():
        if number < len(call.args):
            args = (*call.args[:number], None, *call.args[number + 1 :])
            yield name, Caught(call.module, args, call.kwargs)
        else:
            yield name, Caught(call.module, call.args, {**call.kwargs, name: None})


def given(call: Caught) -> tuple[str, ...]:
    """The optional inputs that a call has."""
    return tuple(_optional(call))


def _optional(call: Caught) -> dict[str, int]:
    """Those that are not None, with their places among the arguments."""
    parameters = list(inspect.signature(call.module.forward).parameters.values())
    values = {one.name: value for one, value in zip(parameters, call.args, strict=False)} | dict(call.kwargs)
    optional = {one.name: number for number, one in enumerate(parameters) if one.default is None}
    return {name: number for name, number in optional.items() if values.get(name) is not None}


def _main(call: Caught) -> Any:
    """The tensor whose rows are counted: the first one of numbers with a point."""
    tensors = [leaf for leaf in leaves((call.args, call.kwargs)).values() if torch.is_tensor(leaf) and leaf.ndim]
    return next((tensor for tensor in tensors if tensor.dtype.is_floating_point), None)


def _axis(tensor: Any) -> int:
    """Where its rows are: in a batch of one sequence, along that sequence."""
    return 1 if tensor.ndim == 3 and len(tensor) == 1 else 0


def _rows(call: Caught) -> int:
    main = _main(call)
    return 0 if main is None else int(main.shape[_axis(main)])


def _sizes(call: Caught, sign: int) -> Iterator[Caught]:
    """The same with another number of rows; whole images where it says how large each is."""
    rows = _rows(call)
    if not rows:
        return
    for sizes in leaves((call.args, call.kwargs)).values():
        if torch.is_tensor(sizes) and _grid(sizes, rows):
            image = sizes[:1] if sign > 0 else sizes[-1:]
            if sign > 0 or len(sizes) > 1:
                yield _resized(call, sign * int(image.prod()))
            return
    yield from (_resized(call, sign * step) for step in STEPS if rows + sign * step > 0)


def _grid(tensor: Any, rows: int) -> bool:
    """Whether a tensor says how large each image is, as Qwen's encoders are told: (images, 3), patches by axis."""
    whole = tensor.dtype in (torch.int32, torch.int64) and tensor.ndim == 2 and tensor.shape[1] == 3
    return whole and rows > 0 and int(tensor.prod(1).sum()) == rows


def _resized(call: Caught, by: int) -> Caught:
    """The same with `by` rows more (repeated from the front) or fewer, in every tensor that has as many rows."""
    main = _main(call)
    axis, rows = _axis(main), _rows(call)

    def changed(tensor: Any) -> Any:
        if _starts(tensor, rows):
            return _moved_starts(tensor, rows + by)
        if _grid(tensor, rows):
            return tensor[:-1] if by < 0 else torch.cat([tensor, tensor[:1]])
        if tensor.ndim > axis and tensor.shape[axis] == rows and tensor.shape[:axis] == main.shape[:axis]:
            return tensor.index_select(axis, torch.arange(rows + by, device=tensor.device) % rows)
        return tensor

    return Caught(call.module, *map_tensors((call.args, call.kwargs), changed))


def _starts(tensor: Any, rows: int) -> bool:
    """Whether a tensor says where sequences start and end: whole numbers from 0 to `rows`, in order."""
    if tensor.dtype not in (torch.int32, torch.int64) or tensor.ndim != 1 or len(tensor) < 2:
        return False
    values: Sequence[int] = tensor.tolist()
    return values[0] == 0 and values[-1] == rows and all(a <= b for a, b in itertools.pairwise(values))


def _moved_starts(tensor: Any, rows: int) -> Any:
    """The last sequence ends earlier, or another follows it."""
    starts = [start for start in tensor.tolist() if start < rows]
    return torch.tensor([*starts, rows], dtype=tensor.dtype, device=tensor.device)
