"""CUDA IPC: receivers on the publisher's GPU, or on one that reaches it, read its buffers in its memory.

The handles are those that torch's own sharing between processes makes (torch/multiprocessing/reductions.py,
``UntypedStorage._share_cuda_`` and ``_new_shared_cuda``), sent as MessagePack instead of pickle. torch counts the
openings: a buffer returns to the publisher's allocator when every receiver has dropped its view, and one share may be
opened once, so every receiver gets its own.
"""

from __future__ import annotations

from typing import final

import msgspec
import torch
from typing_extensions import override

from proctor.rows import UserError
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.links.mapped import Sharing


class Handle(msgspec.Struct, frozen=True, array_like=True):
    """What ``_share_cuda_`` returns, in its order, but for the device: that is told by what it is, not by how this
    process counts.

    Attributes:
        uuid: of the GPU.
        handle: of the allocation that the storage lies in.
        storage_bytes: length of the storage.
        storage_offset: its place in the allocation, bytes.
        counter: name of the file with the counter of openings.
        counter_offset: place in it.
        event: of the moment from which the memory may be read.
        event_needed: whether to wait for it.
        start: place of the buffer in the storage, bytes.
        nbytes: length of the buffer.
    """

    uuid: str
    handle: bytes
    storage_bytes: int
    storage_offset: int
    counter: bytes
    counter_offset: int
    event: bytes
    event_needed: bool
    start: int
    nbytes: int


@final
class CudaSharing(Sharing):
    """Shares memory of a GPU."""

    @override
    def share(self, buffer: torch.Tensor) -> bytes:
        if not buffer.is_cuda:
            raise UserError(
                f"CUDA IPC shares memory of a GPU, and the buffers are on {buffer.device}",
                fix="give publisher and receiver a device (cuda_device), or take the transport shm",
            )
        index, handle, length, offset, counter, counter_offset, event, needed = buffer.untyped_storage()._share_cuda_()
        return msgspec.msgpack.encode(
            Handle(
                _uuid(index), handle, length, offset, counter, counter_offset, event, needed,
                int(buffer.storage_offset()), buffer.numel(),
            )
        )  # fmt: skip

    @override
    def open(self, shared: bytes) -> torch.Tensor:
        try:
            told = msgspec.msgpack.decode(shared, type=Handle)
        except msgspec.DecodeError as error:
            raise TransferError(Reason.MISMATCH, f"not a handle of CUDA IPC: {error}", rank="publisher") from None
        index = _index(told.uuid)
        try:
            torch.cuda.init()
            storage = torch.UntypedStorage._new_shared_cuda(
                index, told.handle, told.storage_bytes, told.storage_offset, told.counter, told.counter_offset,
                told.event, told.event_needed,
            )  # fmt: skip
        except RuntimeError as error:
            raise TransferError(Reason.MISMATCH, f"the publisher's memory cannot be opened: {error}") from error
        whole = torch.empty(0, dtype=torch.uint8, device=f"cuda:{index}").set_(storage)
        return whole[told.start : told.start + told.nbytes]


def _uuid(index: int) -> str:
    return str(torch.cuda.get_device_properties(index).uuid)


def _index(uuid: str) -> int:
    for index in range(torch.cuda.device_count()):
        if _uuid(index) == uuid:
            return index
    raise TransferError(Reason.MISMATCH, f"the publisher's GPU {uuid} is not visible here", rank="publisher")
