"""Brings the tensors of a state dict into buckets: one call of torch for many of them, into a buffer that was there.

What is lazily conjugated or negated, strided or on another device is copied piece by piece to its place, so that no
tensor is ever in memory twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple, final

import torch

from proctor.transfer.control import PUBLISHER
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.manifest import ALIGN, ITEM_BYTES, Bucket, Entry, Manifest
from proctor.transfer.slots import Held
from proctor.transfer.tensors import DTYPES, as_bytes, plan

Tensors = Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]]
"""A state dict, or pairs of names and tensors in the order of a manifest, made one after another."""


class _Source(NamedTuple):
    """A tensor on its way: its bytes as a view where it has one, else None."""

    tensor: torch.Tensor
    flat: torch.Tensor | None


@final
class Packer:
    """Packs the buckets of one epoch, in their order.

    Args:
        manifest: of what is agreed.
        tensors: see `Tensors`. Each is compared with the manifest when its turn comes (and of a mapping the names, at
            once): a source that changes type or shape on the way would have its bytes read as others.

    Raises:
        TransferError: ``MISMATCH``: names are missing or too many, or ties are others.
    """

    def __init__(self, manifest: Manifest, tensors: Tensors) -> None:
        self._manifest = manifest
        self._next = _by_name(manifest, tensors) if isinstance(tensors, Mapping) else _in_order(manifest, tensors)
        self._at = -1
        self._source: _Source | None = None
        self._zeros: torch.Tensor | None = None

    def pack(self, bucket: Bucket, held: Held, ready: Callable[[], None]) -> None:
        """Enqueues the bytes of `bucket`, gaps as zeros, on the slot's stream.

        Args:
            bucket: the next one.
            held: the slot that takes it.
            ready: called when the tensors of the bucket are there and before one of them is read: has to make the
                slot's stream wait for what the caller has enqueued.

        Raises:
            TransferError: ``MISMATCH``: a tensor is not what the manifest says; ``EXCEPTION``: the source raised.
        """
        target = held.part(bucket.nbytes)
        parts = [(entry, self._tensor(index)) for index, entry in self._entries(bucket)]
        if self._zeros is None:
            self._zeros = torch.zeros(ALIGN, dtype=torch.uint8, device=target.device)
        ready()
        self._fill(bucket, held, target, parts)

    def finish(self) -> None:
        """To be called after the last bucket: empty tensors are compared too, and nothing may be left over.

        Raises:
            TransferError: see `pack`.
        """
        if self._manifest.entries:
            self._tensor(len(self._manifest.entries) - 1)
        left = _guarded(self._next)
        if left is not None:
            raise _mismatch(f"{left[0]} came behind the last tensor")

    def _entries(self, bucket: Bucket) -> Iterator[tuple[int, Entry]]:
        for index in range(bucket.first, bucket.first + bucket.count):
            entry = self._manifest.entries[index]
            if entry.nbytes:
                yield index, entry

    def _tensor(self, index: int) -> _Source:
        while self._at < index:
            self._at += 1
            entry = self._manifest.entries[self._at]
            found = _guarded(self._next)
            if found is None:
                raise _mismatch(f"{entry.name} did not come")
            self._source = _compared(entry, *found)
        assert self._source is not None
        return self._source

    def _fill(self, bucket: Bucket, held: Held, target: torch.Tensor, parts: list[tuple[Entry, _Source]]) -> None:
        assert self._zeros is not None
        row: list[torch.Tensor] = []
        begun = at = bucket.start
        for entry, source in parts:
            start, stop = max(entry.offset, bucket.start), min(entry.end, bucket.stop)
            row.append(self._zeros[: start - at])
            at = stop
            if source.flat is not None and source.flat.device == target.device:
                row.append(source.flat[start - entry.offset : stop - entry.offset])
                continue
            _join(held, target[begun - bucket.start : start - bucket.start], row)
            _copy(held, target[start - bucket.start : stop - bucket.start], entry, source.tensor, start, stop)
            row, begun = [], at
        row.append(self._zeros[: bucket.stop - at])
        _join(held, target[begun - bucket.start :], row)


def _join(held: Held, target: torch.Tensor, row: list[torch.Tensor]) -> None:
    """Pieces, one behind the other, in one call: the cheapest way to move many small tensors (0.7 us each,
    a third of slicing and copying)."""
    pieces = [piece for piece in row if piece.numel()]
    if pieces:
        held.stream.run(partial(_cat, target, pieces), target, *pieces)


def _cat(target: torch.Tensor, pieces: list[torch.Tensor]) -> None:
    torch.cat(pieces, out=target)


def _assign(place: torch.Tensor, block: torch.Tensor) -> None:
    # Into pinned memory the GPU copies by itself, behind what is on the stream; into other memory the host waits.
    place.copy_(block, non_blocking=block.is_cuda and place.is_pinned())


def _copy(held: Held, target: torch.Tensor, entry: Entry, tensor: torch.Tensor, start: int, stop: int) -> None:
    item = ITEM_BYTES[entry.dtype]
    elements = target.view(DTYPES[entry.dtype])
    at = 0
    for block in blocks(tensor, (start - entry.offset) // item, (stop - entry.offset) // item):
        place = elements[at : at + block.numel()].view(block.shape)
        held.stream.run(partial(_assign, place, block), place, block)
        at += block.numel()


def blocks(tensor: torch.Tensor, first: int, stop: int) -> Iterator[torch.Tensor]:
    """Views that are, one behind the other, the elements [first, stop) of `tensor` in row-major order."""
    if not tensor.dim():
        tensor = tensor.view(1)
    if tensor.dim() == 1:
        yield tensor[first:stop]
        return
    each = tensor[0].numel()
    row, skip = divmod(first, each)
    last, rest = divmod(stop, each)
    if row == last:
        yield from blocks(tensor[row], skip, rest)
        return
    if skip:
        yield from blocks(tensor[row], skip, each)
        row += 1
    if row < last:
        yield tensor[row:last]
    if rest:
        yield from blocks(tensor[last], 0, rest)


def differences(expected: Mapping[str, tuple[str, tuple[int, ...]]], manifest: Manifest) -> str:
    """What is missing, what is too much, and what is of another type or shape than `expected`; empty if nothing."""
    offered = described(manifest)
    missing = sorted(expected.keys() - offered.keys())
    extra = sorted(offered.keys() - expected.keys())
    other = [
        f"{name} is {_form(offered[name])}, not {_form(form)}"
        for name, form in expected.items()
        if name in offered and offered[name] != form
    ]
    told = [f"missing: {_some(missing)}"] * bool(missing) + [f"not expected: {_some(extra)}"] * bool(extra)
    return "; ".join([*told, _some(other)] if other else told)


def described(manifest: Manifest) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Type and shape of every name, tied ones included."""
    forms = {entry.name: (entry.dtype, entry.shape) for entry in manifest.entries}
    return forms | {alias: forms[name] for alias, name in manifest.aliases.items()}


def _some(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _form(form: tuple[str, tuple[int, ...]]) -> str:
    return f"{form[0]}{list(form[1])}"


def _by_name(manifest: Manifest, tensors: Mapping[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    mine = plan(tensors).manifest
    if told := differences(described(manifest), mine):
        raise _mismatch(told)
    untied = [
        name
        for name, owner in manifest.aliases.items()
        if mine.aliases.get(name, name) != mine.aliases.get(owner, owner) and tensors[name].numel()
    ]
    if untied:
        raise _mismatch(f"no longer tied: {_some(untied)}")
    return ((entry.name, tensors[entry.name]) for entry in manifest.entries)


def _in_order(manifest: Manifest, tensors: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
    owners = dict.fromkeys(manifest.aliases.values(), -1)
    for name, tensor in tensors:
        owner = manifest.aliases.get(name)
        if owner is None:
            if name in owners:
                owners[name] = tensor.data_ptr()
            yield name, tensor
        elif tensor.data_ptr() != owners[owner]:
            raise _mismatch(f"no longer tied: {name}")


def _guarded(source: Iterator[tuple[str, torch.Tensor]]) -> tuple[str, torch.Tensor] | None:
    try:
        return next(source, None)
    except TransferError:
        raise
    except Exception as error:
        message = f"the source of the tensors raised {type(error).__name__}: {error}"
        raise TransferError(Reason.EXCEPTION, message, rank=PUBLISHER) from error


def _compared(entry: Entry, name: str, tensor: torch.Tensor) -> _Source:
    if name != entry.name:
        raise _mismatch(f"{name} came where {entry.name} was due")
    if tensor.dtype != DTYPES[entry.dtype] or tuple(tensor.shape) != entry.shape:
        now = f"{tensor.dtype}{list(tensor.shape)}"
        raise _mismatch(f"{name} is {now}, and was announced as {_form((entry.dtype, entry.shape))}")
    tensor = tensor.detach()
    plain = tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()
    return _Source(tensor, as_bytes(tensor) if plain else None)


def _mismatch(message: str) -> TransferError:
    return TransferError(Reason.MISMATCH, message, rank=PUBLISHER)
