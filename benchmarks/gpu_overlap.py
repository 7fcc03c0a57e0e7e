"""How much of packing runs on a GPU while something is being sent, by the GPU's own events."""

from __future__ import annotations

import time
import warnings
from typing import NamedTuple, cast

import torch

from proctor.transfer.devices.base import Stream
from proctor.transfer.devices.cuda import CudaDevice, CudaEvent, CudaStream
from proctor.transfer.links.ordered import OrderedLink
from proctor.transfer.slots import OneBufferWarning, Ring

BUCKET, BUCKETS, REPEATS = 16 << 20, 40, 8
Interval = tuple[float, float]


class Hidden(NamedTuple):
    """Share of the packing that ran while something was sent, and how long all of it took."""

    share: float
    seconds: float


def hidden(device: CudaDevice, buffers: int) -> Hidden:
    """Packs on the slots' streams and sends by copies to pinned memory on the link's stream."""
    source = torch.ones(BUCKET, dtype=torch.uint8, device=device.name)
    target = pinned_memory(BUCKET)
    packed: list[tuple[CudaEvent, CudaEvent]] = []
    sent: list[tuple[CudaEvent, CudaEvent]] = []

    def carry(stream: Stream, part: torch.Tensor) -> None:
        gpu = cast("CudaStream", stream)
        begun = gpu.mark()
        gpu.copy(target, part)
        sent.append((begun, gpu.mark()))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OneBufferWarning)
        ring = Ring(device, BUCKET, buffers)
    link, ready = OrderedLink(device, carry, lambda: None, "the copies"), device.ready()
    base = device.stream().mark()
    start = time.perf_counter()
    for _ in range(BUCKETS):
        with ring.next() as held:
            gpu = cast("CudaStream", held.stream)
            gpu.wait(ready)
            begun = gpu.mark()
            for _ in range(REPEATS):  # as long as many small tensors would take
                gpu.copy(held.part(BUCKET), source)
            packed.append((begun, gpu.mark()))
            link.send(held, BUCKET)
    ring.drain()
    seconds = time.perf_counter() - start
    pack, send = ([(a.seconds_since(base), b.seconds_since(base)) for a, b in pairs] for pairs in (packed, sent))
    return Hidden(common(pack, send) / max(sum(b - a for a, b in pack), 1e-12), seconds)


def pinned_memory(nbytes: int) -> torch.Tensor:
    """Memory of the host that the GPU copies from and to by itself."""
    return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True).fill_(0)


def common(some: list[Interval], others: list[Interval]) -> float:
    """How long one of `some` and one of `others` ran at once; neither overlap among themselves more than ends do."""
    return sum(max(0.0, min(b, d) - max(a, c)) for a, b in some for c, d in others)
