"""What the links through the host's memory have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor.rows import UserError

if TYPE_CHECKING:
    import torch


def host_bytes(part: torch.Tensor) -> memoryview:
    """The bytes of a part of a buffer, where they are.

    Raises:
        UserError: they are not in the host's memory.
    """
    if part.device.type != "cpu":
        raise UserError(
            f"this transport moves the host's memory, and the buffers are on {part.device}",
            fix="take the device cpu: tensors on a GPU are packed into its buffers, too",
        )
    return memoryview(part.numpy())
