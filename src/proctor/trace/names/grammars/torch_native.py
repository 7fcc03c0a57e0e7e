"""PyTorch's own kernels: ``at::native::{kernel}<...>``.

Positions of template arguments are those of PyTorch's sources under ``aten/src/ATen/native/cuda``: ``CUDALoops.cuh``
(elementwise), ``Reduce.cuh``, ``Shape.cu`` (cat), ``PersistentSoftmax.cuh``, ``layer_norm_kernel.cu``.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from proctor.trace.names.decoded import Launch, Reading
from proctor.trace.names.grammars import checks
from proctor.trace.names.normal import parts
from proctor.trace.names.templates import arguments, inside, plain, yes_no

_SOURCE = "PyTorch aten/src/ATen/native/cuda"
_OURS = {"elementwise_kernel_with_index", "softmax_warp_forward", "softmax_warp_backward"}
_WRAPPERS = ("gpu_kernel_impl_nocast", "gpu_kernel_impl")


def read(name: str, launch: Launch) -> Reading | None:
    """Reads PyTorch's kernels; None if it is none."""
    function, inner = parts(name)
    own = function.rpartition("::")[2]
    if not function.startswith("at::native::") and own not in _OURS:
        return None
    values = arguments(inner)
    reading = Reading(family="at::native", source=_SOURCE)
    reader = _READERS.get(own)
    if reader is None:
        reading.add("function", function, "a kernel of PyTorch")
        if values:
            reading.unknown("template arguments", ", ".join(values)[:2_000])
        reading.summary = f"PyTorch {own}"
        return reading
    reader(reading, values, launch)
    return reading


def spoken(functor: str) -> str:
    """What a functor computes, as far as its name says: wrappers, lambdas and namespaces left out."""
    for wrapper in _WRAPPERS:
        wrapped = inside(functor, wrapper)
        if wrapped:
            functor = wrapped[0]
            break
    text = re.sub(r"\{lambda\(\)#\d+\}", "", functor).replace("::operator()", "").replace("(anonymous namespace)::", "")
    text = re.sub(r"(?:::)*\{lambda(\([^()]*\))#\d+\}", r"\1", text)
    return plain(text)[:200]


def _functor(reading: Reading, functor: str) -> str:
    what = spoken(functor)
    meanings = {
        "FillFunctor": "writes one value everywhere; no arithmetic",
        "CUDAFunctor_add": "a + alpha * b",
        "CUDAFunctorOnSelf_add": "a + constant",
    }
    head = re.match(r"\w+", what)
    reading.add("functor", what, meanings.get(head[0] if head else "", "what is done to each element"))
    return what


def _pointers(reading: Reading, text: str) -> None:
    count = inside(text, "array")
    if count and len(count) == 2 and count[1].isdigit():
        reading.add("tensors", text, f"{count[1]} tensors: one result and {int(count[1]) - 1} operands")


def _vectorized(reading: Reading, values: list[str], _: Launch) -> None:
    reading.add("function", "vectorized_elementwise_kernel", "contiguous tensors, read and written in vectors")
    if len(values) < 2:
        return
    reading.add("vector", values[0], f"{values[0]} elements a load or store")
    what = _functor(reading, values[1])
    if len(values) > 2:
        _pointers(reading, values[2])
    reading.summary = f"PyTorch elementwise: {what}, {values[0]} elements a load"


def _unrolled(reading: Reading, values: list[str], _: Launch) -> None:
    reading.add("function", "unrolled_elementwise_kernel", "tensors that need casts or are not aligned for vectors")
    if not values:
        return
    what = _functor(reading, values[0])
    if len(values) > 1:
        _pointers(reading, values[1])
    if len(values) > 2 and values[2].isdigit():
        reading.add("elements a thread", values[2], f"{values[2]} elements a thread")
    casts = [word for word in ("LoadWithCast", "StoreWithCast") if any(word in value for value in values[3:])]
    if casts:
        reading.add("casts", ", ".join(casts), "types differ between tensors: cast on the way")
    reading.summary = f"PyTorch elementwise: {what}{', with casts' if casts else ''}"


def _strided(reading: Reading, values: list[str], launch: Launch) -> None:
    reading.add("function", "elementwise_kernel", "tensors that are broadcast or not contiguous")
    if len(values) < 3:
        return
    reading.add("threads", values[0], f"{values[0]} threads a block")
    if values[0].isdigit():
        checks.threads(reading, launch, int(values[0]), "the first argument")
    reading.add("elements a thread", values[1], f"{values[1]} elements a thread")
    reading.summary = f"PyTorch elementwise: {_functor(reading, values[2])}, strided or broadcast"


def _index(reading: Reading, values: list[str], _: Launch) -> None:
    reading.add("function", "elementwise_kernel_with_index", "values that follow from their index")
    if values:
        reading.add("index", values[0], "type of the index")
    what = _functor(reading, values[1]) if len(values) > 1 else ""
    reading.summary = f"PyTorch: {what or 'values by index'}"


def _reduce(reading: Reading, values: list[str], launch: Launch) -> None:
    reading.add("function", "reduce_kernel", "a reduction over some dimensions; its configuration follows the shape")
    if len(values) < 3:
        return
    reading.add("most threads", values[0], f"at most {values[0]} threads a block")
    if values[0].isdigit() and launch.threads is not None:
        line = f"at most {values[0]} threads a block; the launch has {launch.threads}"
        reading.compare(launch.threads <= int(values[0]), line)
    reading.add("outputs a thread", values[1], f"{values[1]} results a thread")
    operation = inside(values[2], "ReduceOp") or []
    what = ""
    if len(operation) > 1:
        wrapped = inside(operation[1], "func_wrapper_t") or []
        what = spoken(wrapped[1] if len(wrapped) > 1 else operation[1])
        reading.add("operands", operation[0], f"elements {plain(operation[0])}")
        reading.add("operation", what, "what is reduced with")
    reading.summary = f"PyTorch reduction: {what or 'unknown'}"


def _cat(reading: Reading, values: list[str], _: Launch) -> None:
    reading.add("function", "CatArrayBatchedCopy", "concatenation: copies several tensors into one")
    opaque = inside(values[0], "OpaqueType") if values else None
    if opaque:
        reading.add("element", values[0], f"{opaque[0]} bytes an element; the type does not matter to a copy")
    if len(values) > 2:
        reading.add("dimensions", values[2], f"tensors of {values[2]} dimensions")
    if len(values) > 3:
        reading.unknown("further arguments", ", ".join(values[3:]))
    reading.summary = "PyTorch concatenation"


def _softmax(reading: Reading, values: list[str], _: Launch) -> None:
    reading.add("function", "softmax_warp", "softmax of rows that fit one warp")
    if len(values) < 5:
        return
    for label, value in zip(("input", "output", "accumulation"), values, strict=False):
        reading.add(label, value, plain(value))
    if values[3].isdigit() and len(values[3]) < 3:
        reading.add("log2 of a row", values[3], f"rows of up to {2 ** int(values[3]):,} elements")
    reading.add("log softmax", values[4], yes_no(values[4]))
    if len(values) > 5:
        reading.add("masked", values[5], yes_no(values[5]))
    reading.summary = f"PyTorch softmax{' (log)' if values[4] == 'true' else ''}, a warp a row"


def _layer_norm(reading: Reading, values: list[str], _: Launch) -> None:
    reading.add("function", "vectorized_layer_norm_kernel", "layer norm, a row a block")
    for label, value in zip(("elements", "accumulation"), values, strict=False):
        reading.add(label, value, plain(value))
    if len(values) > 2:
        reading.unknown("further arguments", ", ".join(values[2:]))
    reading.summary = "PyTorch layer norm"


_READERS: dict[str, Callable[[Reading, list[str], Launch], None]] = {
    "vectorized_elementwise_kernel": _vectorized,
    "unrolled_elementwise_kernel": _unrolled,
    "elementwise_kernel": _strided,
    "elementwise_kernel_with_index": _index,
    "reduce_kernel": _reduce,
    "CatArrayBatchedCopy": _cat,
    "CatArrayBatchedCopy_vectorized": _cat,
    "CatArrayBatchedCopy_contig": _cat,
    "softmax_warp_forward": _softmax,
    "vectorized_layer_norm_kernel": _layer_norm,
}
