"""Where a receiver puts what comes: an arena of its own for each epoch, or tensors that are there already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol, final

import torch
from typing_extensions import override

from proctor.rows import UserError
from proctor.transfer.devices.base import Device, Event, Stream
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.manifest import Bucket, Manifest
from proctor.transfer.memory import free_bytes
from proctor.transfer.packing import differences
from proctor.transfer.slots import Held, Ring, Slot
from proctor.transfer.tensors import NAMES, as_bytes, views
from proctor.transfer.wire import Parameters

Form = tuple[str, tuple[int, ...]]
"""Type (a key of `manifest.ITEM_BYTES`) and shape of a tensor."""


class Destination(Protocol):
    """Takes one epoch after the other.

    Attributes:
        torn: what was readable before is not any more, and nothing else is yet.
    """

    torn: bool

    def prepare(self, manifest: Manifest, parameters: Parameters) -> None:
        """Before the first byte.

        Raises:
            TransferError: ``MISMATCH``: this is not what is wanted here.
        """

    def slot(self, bucket: Bucket, deadline: float) -> Held:
        """Where the bytes of `bucket` go first.

        Raises:
            TransferError: ``LATE``.
        """

    def take(self, bucket: Bucket, held: Held) -> None:
        """The bytes are in the slot, and have been checked."""

    def finish(self, deadline: float) -> None:
        """Waits until all that was taken is in its place.

        Raises:
            TransferError: ``LATE``, or what went wrong.
        """

    def commit(self) -> dict[str, torch.Tensor]:
        """The epoch is complete on all sides: its tensors."""

    def drop(self) -> None:
        """The epoch has failed."""


@final
class OwnArena(Destination):
    """A new arena for each epoch; the one before is freed when nobody has a view of it any more.

    Args:
        device: where it lies.
        expects: type and shape of every name that has to come, and of no other; None takes whatever comes.
        allocate: gives the memory: so many bytes, uint8.
    """

    torn = False

    def __init__(
        self,
        device: Device,
        expects: Mapping[str, Form] | None = None,
        allocate: Callable[[int], torch.Tensor] | None = None,
    ) -> None:
        self._device, self._expects = device, expects
        self._allocate = allocate or (_plain if device.name == "cpu" else device.buffer)
        self._manifest: Manifest | None = None
        self._arena: torch.Tensor | None = None

    @override
    def prepare(self, manifest: Manifest, parameters: Parameters) -> None:
        if self._expects is not None and (told := differences(self._expects, manifest)):
            raise TransferError(Reason.MISMATCH, told)
        self._manifest, self._arena = manifest, self._allocate(manifest.nbytes)

    @override
    def slot(self, bucket: Bucket, deadline: float) -> Held:
        assert self._arena is not None
        place = self._arena[bucket.start : bucket.stop]
        # The bytes of a bucket lie as they will lie: they are received at their place, and nothing is copied.
        return Slot(_Place(self._device, place), bucket.nbytes, bucket.sequence).acquire(deadline)

    @override
    def take(self, bucket: Bucket, held: Held) -> None:
        pass

    @override
    def finish(self, deadline: float) -> None:
        pass

    @override
    def commit(self) -> dict[str, torch.Tensor]:
        assert self._manifest is not None
        assert self._arena is not None
        tensors = views(self._arena, self._manifest)
        self.drop()
        return tensors

    @override
    def drop(self) -> None:
        self._manifest = self._arena = None


@final
class _Place(Device):
    """A device whose only buffer is a place in an arena."""

    def __init__(self, device: Device, place: torch.Tensor) -> None:
        self.name, self._device, self._place = device.name, device, place

    @override
    def buffer(self, nbytes: int) -> torch.Tensor:
        return self._place

    @override
    def stream(self) -> Stream:
        return self._device.stream()

    @override
    def ready(self) -> Event:
        return self._device.ready()


@final
class InPlace(Destination):
    """The tensors of a model that stays where it is.

    They are overwritten bucket by bucket, so an epoch that fails in the middle leaves neither the old nor the new ones
    (`torn`), until one is complete.

    Args:
        device: where the slots lie.
        tensors: every name has to come, and no other.

    Raises:
        UserError: a tensor is not contiguous, of no type that can be sent, or overlaps with another one.
    """

    def __init__(self, device: Device, tensors: Mapping[str, torch.Tensor]) -> None:
        self.torn = False
        self._device, self._tensors = device, dict(tensors)
        self._bytes = {name: _flat(name, tensor) for name, tensor in tensors.items()}
        self._forms = {name: (NAMES[tensor.dtype], tuple(tensor.shape)) for name, tensor in tensors.items()}
        self._ties = _ties(self._bytes)
        self._manifest: Manifest | None = None
        self._ring: Ring | None = None
        self._read: Event | None = None
        self._copies: dict[str, list[str]] = {}

    @override
    def prepare(self, manifest: Manifest, parameters: Parameters) -> None:
        told = differences(self._forms, manifest) or self._wrongly_tied(manifest)
        if told:
            raise TransferError(Reason.MISMATCH, told)
        nbytes = max(min(parameters.bucket_bytes, manifest.nbytes), 1)
        if self._ring is None or (self._ring.slots[0].nbytes, len(self._ring.slots)) != (nbytes, parameters.buffers):
            self._ring = Ring(self._device, nbytes, parameters.buffers)
        self._read = self._device.ready()
        self._manifest, self._copies = manifest, {}
        for alias, name in manifest.aliases.items():
            if self._ties[alias] != self._ties[name]:
                self._copies.setdefault(name, []).append(alias)

    @override
    def slot(self, bucket: Bucket, deadline: float) -> Held:
        assert self._ring is not None
        return self._ring.next(deadline)

    @override
    def take(self, bucket: Bucket, held: Held) -> None:
        assert self._manifest is not None
        assert self._read is not None
        held.stream.wait(self._read)  # what the caller has enqueued on the tensors still finds the old ones
        self.torn = True
        buffer = held.part(bucket.nbytes)
        pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        for entry in self._manifest.entries[bucket.first : bucket.first + bucket.count]:
            start, stop = max(entry.offset, bucket.start), min(entry.end, bucket.stop)
            if start < stop:
                source = buffer[start - bucket.start : stop - bucket.start]
                names = (entry.name, *self._copies.get(entry.name, ()))
                targets = (self._bytes[name][start - entry.offset : stop - entry.offset] for name in names)
                pairs.extend((target, source) for target in targets)
        held.stream.run(partial(_copy_all, pairs), *(target for target, _ in pairs))

    @override
    def finish(self, deadline: float) -> None:
        if self._ring is not None:
            self._ring.drain(deadline)

    @override
    def commit(self) -> dict[str, torch.Tensor]:
        self.torn = False
        return dict(self._tensors)

    @override
    def drop(self) -> None:
        # Its slots may still be written to by a transport that hangs.
        self._ring = None

    def _wrongly_tied(self, manifest: Manifest) -> str:
        """Names that are one memory here and two tensors there: the second would overwrite the first."""
        first: dict[str, str] = {}
        for name, tie in self._ties.items():
            owner = manifest.aliases.get(name, name)
            if first.setdefault(tie, owner) != owner:
                return f"{name} is tied to {first[tie]} here, and a tensor of its own there"
        return ""


def _copy_all(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    for target, source in pairs:
        target.copy_(source)


def _plain(nbytes: int) -> torch.Tensor:
    free = free_bytes()
    if nbytes > free:  # the system would give it, and kill some process when it is written to
        raise TransferError(Reason.EXCEPTION, f"no room for {nbytes:,} bytes: {free:,} are free")
    return torch.empty(nbytes, dtype=torch.uint8)


def _flat(name: str, tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype not in NAMES or tensor.device.type == "meta":
        raise UserError(f"{tensor.dtype} on {tensor.device} cannot be written to", where=name)
    if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
        raise UserError("not contiguous: bytes cannot be received in place", where=name, fix="make it contiguous")
    return as_bytes(tensor)


def _ties(flat: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """For every name the first one with the same memory.

    Raises:
        UserError: two share a part of their memory only.
    """
    ties: dict[str, str] = {}
    filled = {name: data for name, data in flat.items() if data.numel()}
    order = sorted(filled, key=lambda name: (str(filled[name].device), filled[name].data_ptr()))
    end, last = 0, ""
    for name in order:
        data, near = filled[name], last and filled[name].device == filled[last].device
        same = near and data.data_ptr() == filled[last].data_ptr() and data.numel() == filled[last].numel()
        if near and not same and data.data_ptr() < end:
            raise UserError(f"shares a part of its memory with {last}", where=name, fix="give each memory of its own")
        ties[name] = ties[last] if same else name
        end, last = data.data_ptr() + data.numel(), name
    return {name: ties.get(name, name) for name in flat}
