"""Calls made again with the same numbers and the same luck, and what they give in float64.

The reference is a copy of the module with its weights, its inputs and every number format it names in float64: norms
and attention that go through float32 of their own accord stay in float64 there.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from proctor.compile.captured import Caught
from proctor.compile.leaves import leaves, map_tensors

SEED = 20_261
_NARROW = (torch.float16, torch.bfloat16, torch.float32)
_CASTS = {torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16}
FORMATS = (torch.float64, torch.float32)
"""Number formats of references, the best first."""


class Reference(NamedTuple):
    """What a call gives in higher precision.

    Attributes:
        output: None where there is none.
        remark: what is the matter with it: that it is in float32 only, or why there is none; empty for float64.
    """

    output: Any = None
    remark: str = ""


def made(call: Caught) -> Any:
    """What a call gives, apart from everything that may change it later.

    Every time the inputs are fresh copies (a module may write into them), the random numbers start anew, and the output
    is copied to the CPU (replayed graphs overwrite theirs).
    """
    args, kwargs = map_tensors(call.args, torch.clone), map_tensors(call.kwargs, torch.clone)
    with _same_luck(call), torch.inference_mode():
        output = call.module(*args, **kwargs)
    return {name: _kept(value) for name, value in leaves(output).items()}


def references(calls: Sequence[Caught]) -> list[Reference]:
    """Of each call, in their order; one copy of a module at a time is held in memory."""
    found: dict[int, Reference] = {}
    numbers: dict[int, list[int]] = {}
    for number, call in enumerate(calls):
        numbers.setdefault(id(call.module), []).append(number)
    for some in numbers.values():
        outputs = _of_module(calls[some[0]].module, [calls[number] for number in some])
        found.update(zip(some, outputs, strict=True))
    return [found[number] for number in range(len(calls))]


def _of_module(module: Any, calls: Sequence[Caught]) -> list[Reference]:
    found = [Reference()] * len(calls)
    for format_ in FORMATS:
        open_ = [number for number, one in enumerate(found) if one.output is None]
        if open_ and (format_ == torch.float64 or _narrow(module, calls)):
            outputs = _in_format(module, [calls[number] for number in open_], format_)
            for number, output in zip(open_, outputs, strict=True):
                found[number] = _reference(output, format_, found[number].remark)
    return found


def _reference(output: Any, format_: Any, before: str) -> Reference:
    name = str(format_).removeprefix("torch.")
    if isinstance(output, Exception):
        trouble = f"it does not run in {name}: {first_line(output)}"
        return Reference(None, "; ".join(filter(None, [before, trouble])))
    return Reference(output, f"{before}; judged by {name} instead" if before else "")


def _in_format(module: Any, calls: Sequence[Caught], format_: Any) -> list[Any]:
    """Outputs, or what was raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of formats; the outputs are looked at
        try:
            wide = copy.deepcopy(module).to(format_)
        except Exception as error:  # too little memory, or a weight that has no such format
            return [error] * len(calls)
        return [_called(wide, call, format_) for call in calls]


def _called(wide: Any, call: Caught, format_: Any) -> Any:
    try:
        with _widened(format_):
            return made(Caught(wide, *map_tensors((call.args, call.kwargs), _to(format_))))
    except Exception as error:  # whatever a module cannot do in this format
        return error


def _narrow(module: Any, calls: Sequence[Caught]) -> bool:
    """Whether float32 would be higher precision than the module's own."""
    tensors = [*module.state_dict().values(), *leaves([call[1:] for call in calls]).values()]
    sizes = [one.dtype.itemsize for one in tensors if torch.is_tensor(one) and one.dtype.is_floating_point]
    return min(sizes, default=8) < 4


def first_line(error: BaseException) -> str:
    """An error in one line: its class and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


def _kept(value: Any) -> Any:
    return value.detach().cpu().clone() if torch.is_tensor(value) else value


def _to(format_: Any) -> Any:
    return lambda tensor: tensor.to(format_) if tensor.dtype.is_floating_point else tensor


@contextmanager
def _same_luck(call: Caught) -> Iterator[None]:
    devices = {leaf.device.index for leaf in leaves((call.args, call.kwargs)).values() if _on_gpu(leaf)}
    with torch.random.fork_rng(devices=sorted(devices)):
        torch.manual_seed(SEED)
        yield


def _on_gpu(leaf: Any) -> bool:
    return torch.is_tensor(leaf) and leaf.device.type == "cuda"


class _Widen(TorchFunctionMode):
    """Every narrower format that a call of PyTorch names is `format_` instead."""

    def __init__(self, format_: Any) -> None:
        super().__init__()
        self._format = format_

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _CASTS:
            return args[0].to(self._format)
        widened = {name: self._wide(value) for name, value in (kwargs or {}).items()}
        return func(*(self._wide(value) for value in args), **widened)

    def _wide(self, value: Any) -> Any:
        return self._format if isinstance(value, torch.dtype) and value in _NARROW else value


@contextmanager
def _widened(format_: Any) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(format_)
    try:
        with _Widen(format_):
            yield
    finally:
        torch.set_default_dtype(before)
