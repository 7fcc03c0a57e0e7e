"""NCCL between GPUs: one broadcast per bucket, in a process group of the transfer's own.

What torch 2.13 does with it (torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp and .cpp):

- With ``asyncOp = False`` the kernel goes to the *current* stream, so a bucket is sent on the link's own stream and an
  event behind it is an event behind the kernel. With True it would go to a stream of the group's.
- A collective cannot be interrupted and has no deadline. Events are looked at until theirs (`CudaEvent.wait`), and then
  `OrderedLink.close` aborts the communicator, which ends the kernels. After that events are over although nothing
  arrived: an aborted link never counts as done, and the checksums say so once more.
- The group's watchdog ends the whole process when a peer dies or its own timeout passes, unless it is told to clean up
  only (``TORCH_NCCL_ASYNC_ERROR_HANDLING=2``, which the constructor reads). Its timeout is longer than any deadline
  here nevertheless: the deadline knows whom to name.
- Two ranks on one GPU are refused by NCCL ("Duplicate GPU detected"): there `links.cuda_ipc` serves.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, cast, final

import torch
import torch.distributed as dist
from typing_extensions import override

from proctor.rows import UserError
from proctor.transfer.devices.base import Device, Stream, deadline_of, seconds_left
from proctor.transfer.devices.cuda import CudaStream, refuse_default
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.links.ordered import Carrier, OrderedLink
from proctor.transfer.links.rendezvous import roll_call

if TYPE_CHECKING:
    from collections.abc import Sequence

PUBLISHER = 0
"""The rank that every broadcast comes from."""
CLEAN_UP_ONLY = ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2")
"""``ErrorHandlingMode::CleanUpOnly``: abort communicators, and let the process live."""
WATCHDOG_FACTOR = 10
"""The group's own timeout is so many times longer than the time that was left when it was made."""


@final
class NcclBroadcast(Carrier):
    """The process group.

    Args:
        store: see `proctor.transfer.links.rendezvous`; a prefix of its own for each group.
        rank: 0 is the publisher.
        names: of all ranks, in their order; they are also how many there are.
        device: the GPU of this rank; each rank has another one.
        deadline: by which all ranks are here, of `time.monotonic`, seconds; None is 60 s from now.

    Raises:
        UserError: torch was built without NCCL.
        TransferError: ``LATE``: a rank did not come; ``EXCEPTION``: NCCL refused.
    """

    def __init__(
        self, store: dist.Store, rank: int, names: Sequence[str], device: Device, deadline: float | None = None
    ) -> None:
        if not dist.is_nccl_available():
            raise UserError("this torch has no NCCL", fix="take the transport gloo, or a torch for CUDA")
        until = deadline_of(deadline)
        roll_call(store, rank, tuple(names), until)
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timedelta(seconds=WATCHDOG_FACTOR * max(seconds_left(until), 1.0))
        try:
            with _environment(*CLEAN_UP_ONLY):
                self._group = dist.ProcessGroupNCCL(store, rank, len(names), options)
            with torch.cuda.device(device.name):
                # Now, where all ranks are known to be here, and not inside the first bucket.
                self._group.eager_connect_single_device(torch.device(device.name))
        except RuntimeError as error:
            raise TransferError(Reason.EXCEPTION, f"NCCL refused: {error}") from error

    @override
    def __call__(self, stream: Stream, part: torch.Tensor) -> None:
        raw = cast("CudaStream", stream).raw
        refuse_default(raw)
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor, options.asyncOp = PUBLISHER, 0, False
        with torch.cuda.stream(raw):
            self._group.broadcast([part], options)
        part.record_stream(raw)

    def abort(self) -> None:
        """Ends what hangs in the group, and the group. From any thread."""
        self._group.abort()


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """With a variable set: the constructor has no argument for it. Groups of others, made later, keep theirs."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def nccl_link(group: NcclBroadcast, device: Device) -> OrderedLink:
    """A link over a group, for one epoch on the publisher; closing it aborts the group."""
    return OrderedLink(device, group, group.abort, "the NCCL link")
