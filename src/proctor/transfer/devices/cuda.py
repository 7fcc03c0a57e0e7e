"""An NVIDIA GPU as a device: torch's CUDA streams, made once and used again, and events that are recorded once.

Sources for what is done here: torch/cuda/streams.py (an event that was never recorded counts as over, so there is none
here), vllm #52950 (a fresh stream per call strands the allocator's cache, 2 GiB per weight update), and the CUDA
runtime's rules for asynchronous copies: one from or to pageable memory makes the host wait.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from functools import cache
from typing import final

import torch
from typing_extensions import override

from proctor.rows import UserError
from proctor.transfer.devices.base import Device, Event, Stream, deadline_of, same_length
from proctor.transfer.errors import Reason, TransferError

SPIN_SECONDS = 0.0002
"""How long a wait asks without a pause: most events are over by then, and a nap takes at least 0.06 ms."""
NAP_SECONDS = 0.0001
"""Between two looks afterwards. ``cudaEventSynchronize`` has no deadline, so the host looks instead."""


@final
class CudaEvent(Event):
    """A moment of a stream of the GPU; recorded when it is made, and never again.

    Args:
        stream: torch's stream.
        timed: whether `seconds_since` will be asked for.
    """

    def __init__(self, stream: torch.cuda.Stream, *, timed: bool = False) -> None:
        self.raw = torch.cuda.Event(enable_timing=timed)
        self.raw.record(stream)

    @override
    def done(self) -> bool:
        try:
            return bool(self.raw.query())
        except RuntimeError as error:
            # A CUDA error stays with the process: every later call fails too, and only a new process helps.
            raise TransferError(Reason.EXCEPTION, f"the GPU has failed: {error}") from error

    @override
    def wait(self, deadline: float | None = None) -> None:
        until = deadline_of(deadline)
        spin_until = time.monotonic() + SPIN_SECONDS
        while not self.done():
            now = time.monotonic()
            if now >= until:
                raise TransferError(Reason.LATE, "work of the GPU is not over at the deadline")
            if now >= spin_until:
                time.sleep(NAP_SECONDS)

    def seconds_since(self, earlier: CudaEvent) -> float:
        """GPU time between two timed events that are over, seconds."""
        return float(earlier.raw.elapsed_time(self.raw)) / 1e3


@final
class CudaStream(Stream):
    """One of torch's streams, never the default one.

    Attributes:
        raw: torch's stream.
    """

    def __init__(self, raw: torch.cuda.Stream) -> None:
        refuse_default(raw)
        self.raw = raw

    @override
    def wait(self, event: Event) -> None:
        if isinstance(event, CudaEvent):
            self.raw.wait_event(event.raw)
        else:
            event.wait()

    @override
    def record(self) -> CudaEvent:
        return CudaEvent(self.raw)

    def mark(self) -> CudaEvent:
        """As `record`, with the time."""
        return CudaEvent(self.raw, timed=True)

    @override
    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """See `Stream.copy`.

        Raises:
            ValueError: memory of the host that is not pinned: its copy would run while the host waits.
        """
        same_length(target, source)
        for tensor in (target, source):
            if not tensor.is_cuda and not tensor.is_pinned():
                raise ValueError("a copy from or to pageable memory is no work of a stream: pin it first")
        self.run(lambda: _copy(target, source), target, source)

    @override
    def run(self, call: Callable[[], None], *tensors: torch.Tensor) -> None:
        with torch.cuda.stream(self.raw):
            call()
        for tensor in tensors:
            if tensor.is_cuda:
                # The allocator hands freed memory out again at once to the stream that it came from, and knows of
                # other streams' use only what it is told.
                tensor.record_stream(self.raw)

    @override
    def host(self, call: Callable[[], None]) -> None:
        self.record().wait()
        call()


def _copy(target: torch.Tensor, source: torch.Tensor) -> None:
    target.copy_(source, non_blocking=True)


def refuse_default(stream: torch.cuda.Stream) -> None:
    """Raises: RuntimeError: it is the default stream of its GPU, which waits for all others and they for it."""
    if stream == torch.cuda.default_stream(stream.device):
        raise RuntimeError("transfers never run on the default stream: it serialises with every other one")


@final
class CudaDevice(Device):
    """One GPU. `cuda_device` gives the one of an index; two would have two sets of streams.

    Args:
        index: as torch counts.
        pinned: whether buffers are pinned memory of the host instead of the GPU's own, for links that read bytes on
            the host: a slot is then filled by a copy of the GPU, in the order of a stream.

    Raises:
        UserError: there is no such GPU.
    """

    def __init__(self, index: int, *, pinned: bool = False) -> None:
        if not torch.cuda.is_available() or index >= torch.cuda.device_count():
            raise UserError(f"there is no GPU {index} here", fix="leave the device at cpu")
        self.name = f"cuda:{index}"
        self.index, self._pinned = index, pinned
        self._free: list[torch.cuda.Stream] = []

    @override
    def buffer(self, nbytes: int) -> torch.Tensor:
        if self._pinned:
            return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True).fill_(0)
        made = torch.zeros(nbytes, dtype=torch.uint8, device=self.name)
        self.ready().wait()  # filled on the caller's stream, and used on others
        return made

    @override
    def stream(self) -> CudaStream:
        """One that nobody uses any more, or a new one. Torch has 32 for a GPU and then gives the same ones again."""
        try:
            raw = self._free.pop()
        except IndexError:
            raw = torch.cuda.Stream(device=self.index)
        made = CudaStream(raw)
        weakref.finalize(made, self._free.append, raw)
        return made

    @override
    def ready(self) -> CudaEvent:
        return CudaEvent(torch.cuda.current_stream(self.index))


@cache
def cuda_device(index: int = 0, *, pinned: bool = False) -> CudaDevice:
    """The device of a GPU, always the same one.

    Raises:
        UserError: there is no such GPU.
    """
    return CudaDevice(index, pinned=pinned)
