"""Between torch's tensors and bytes at places: names of types, ties, a manifest of a state dict, views of an arena."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from proctor.rows import UserError
from proctor.transfer.manifest import Entry, Manifest, lay_out

DTYPES: Mapping[str, torch.dtype] = MappingProxyType(
    {
        "BOOL": torch.bool,
        "U8": torch.uint8,
        "I8": torch.int8,
        "F8_E4M3": torch.float8_e4m3fn,
        "F8_E5M2": torch.float8_e5m2,
        "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
        "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
        "F8_E8M0": torch.float8_e8m0fnu,
        "U16": torch.uint16,
        "I16": torch.int16,
        "F16": torch.float16,
        "BF16": torch.bfloat16,
        "U32": torch.uint32,
        "I32": torch.int32,
        "F32": torch.float32,
        "U64": torch.uint64,
        "I64": torch.int64,
        "F64": torch.float64,
        "C64": torch.complex64,
        "C128": torch.complex128,
    }
)
"""Every key of `manifest.ITEM_BYTES`, as torch has it."""
NAMES: Mapping[torch.dtype, str] = MappingProxyType({dtype: name for name, dtype in DTYPES.items()})
"""The same the other way round."""


class Plan(NamedTuple):
    """A state dict, laid out.

    Attributes:
        manifest: places and ties.
        sources: the tensor of every entry, in the manifest's order.
    """

    manifest: Manifest
    sources: tuple[torch.Tensor, ...]


def plan(tensors: Mapping[str, torch.Tensor], *, by_name: bool = False) -> Plan:
    """Lays a state dict out. Of tensors that are one and the same memory, the first named gets a place, and the others
    are its ties.

    Args:
        tensors: any dtype of `DTYPES`, any strides, any device but ``meta``.
        by_name: places in the order of the names, so that they do not depend on the order of the dict.

    Raises:
        UserError: a name that is no text, something that is no tensor, or a tensor that is not plain memory: sparse,
            quantized by torch, ``meta``, of an unknown dtype.
    """
    owners: dict[tuple[Any, ...], str] = {}
    aliases: dict[str, str] = {}
    kept: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        _refuse_odd(name, tensor)
        owner = owners.setdefault(_memory(tensor), name) if tensor.numel() else name
        if owner == name:
            kept[name] = _detached(tensor)
        else:
            aliases[name] = owner
    names = sorted(kept) if by_name else list(kept)
    manifest = lay_out(((name, NAMES[kept[name].dtype], tuple(kept[name].shape)) for name in names), aliases)
    return Plan(manifest, tuple(kept[name] for name in names))


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a tensor in row-major order as a flat uint8 tensor on the same device.

    A view where the tensor is contiguous, else a copy. A lazy conjugate or negation is carried out.
    """
    plain = _detached(tensor)
    if plain.is_conj() or plain.is_neg() or not plain.is_contiguous():
        plain = plain.resolve_conj().resolve_neg().contiguous()
    if not plain.numel():  # an empty one of a wider type cannot be viewed as bytes
        return torch.empty(0, dtype=torch.uint8, device=plain.device)
    # Flat first: a 0-dim tensor cannot be viewed as bytes. With a stride of its own: torch calls a tensor of one
    # element contiguous whatever its strides are, and view(-1) would keep them.
    return plain.as_strided((plain.numel(),), (1,)).view(torch.uint8)


def view(arena: torch.Tensor, entry: Entry) -> torch.Tensor:
    """The tensor at its place in `arena` (uint8, flat, the whole of it): a view, no copy.

    The start of `arena` has to be aligned to 16 bytes, as all allocations are.
    """
    place = arena[entry.offset : entry.end]
    return place.view(DTYPES[entry.dtype]).view(entry.shape)


def views(arena: torch.Tensor, manifest: Manifest) -> dict[str, torch.Tensor]:
    """All tensors of `manifest` as views of `arena`; ties share one tensor object."""
    found = {entry.name: view(arena, entry) for entry in manifest.entries}
    return found | {alias: found[name] for alias, name in manifest.aliases.items()}


def _detached(tensor: torch.Tensor) -> torch.Tensor:
    """Without its gradient, if there is one: it costs some microseconds for each of 10,000 small tensors."""
    return tensor.detach() if tensor.requires_grad else tensor


def _memory(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What two tensors have in common when they are one: where it lies, and how it is read."""
    return (
        tensor.device, tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tensor.dtype,
        tuple(tensor.shape), tensor.stride(), tensor.is_conj(), tensor.is_neg(),
    )  # fmt: skip


def _refuse_odd(name: str, tensor: torch.Tensor) -> None:
    if not isinstance(name, str) or not (name.isascii() or name.encode(errors="replace").decode() == name):
        raise UserError(f"the name {name!r} is no text", fix="name tensors as a state dict does")
    odd = ""
    if not isinstance(tensor, torch.Tensor):
        odd = f"it is a {type(tensor).__name__}"
    elif tensor.layout != torch.strided:
        odd = f"its layout is {tensor.layout}"
    elif tensor.dtype not in NAMES:
        odd = f"its type is {tensor.dtype}"
    elif tensor.device.type == "meta":
        odd = "it has no memory (device meta)"
    if odd:
        raise UserError(f"cannot be transferred: {odd}", where=name, fix="give plain tensors with memory")
