"""The bytes of a slot as the host sees them, for a checksum: where they are, or in a copy that was there already."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, final

from proctor.transfer.devices.base import Device
from proctor.transfer.patience import patiently
from proctor.transfer.slots import Held

if TYPE_CHECKING:
    import torch


@final
class Staging:
    """One copy, for buffers that are on a GPU.

    Args:
        device: of the slots.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._copy: torch.Tensor | None = None

    def bytes(self, held: Held, nbytes: int, deadline: float, watch: Callable[[], None]) -> memoryview:
        """The first `nbytes` of a slot when all that is on its stream is over; good until the next call.

        Args:
            held: the slot.
            nbytes: how many.
            deadline: of `time.monotonic`, seconds.
            watch: raises if there is nothing to wait for any more.

        Raises:
            TransferError: ``LATE``, or what went wrong on the stream.
        """
        part = held.part(nbytes)
        if part.device.type != "cpu":
            part = self._staged(held, part)
        patiently(held.stream.record().wait, deadline, watch)
        return memoryview(part.numpy())

    def _staged(self, held: Held, part: torch.Tensor) -> torch.Tensor:
        import torch

        if self._copy is None or self._copy.numel() < part.numel():
            self._copy = torch.empty(part.numel(), dtype=torch.uint8, pin_memory=True).fill_(0)
        held.stream.copy(self._copy[: part.numel()], part)
        return self._copy[: part.numel()]
