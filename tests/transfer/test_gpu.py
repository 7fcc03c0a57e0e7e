"""What only a GPU can show: copies, events, real overlap of orders, CUDA IPC between processes, NCCL.

The same logic runs without one on the virtual device (test_virtual_device.py, test_mapped_link.py).
"""

from __future__ import annotations

import multiprocessing
import socket
import time
from typing import Any

import pytest
import torch

from proctor.transfer.devices.cuda import CudaDevice, cuda_device
from proctor.transfer.errors import TransferError
from proctor.transfer.links.cuda_ipc import CudaSharing
from proctor.transfer.links.mapped import MappedReceiver, MappedSender
from proctor.transfer.links.nccl import NcclBroadcast, nccl_link
from proctor.transfer.links.rendezvous import join, serve
from proctor.transfer.slots import Ring
from tests.transfer.pipelines import publish, receive

GPUS = torch.cuda.device_count()
needs_gpu = pytest.mark.skipif(not GPUS, reason="NO GPU HERE: the CUDA device and its links were not run at all")
needs_gpus = pytest.mark.skipif(GPUS < 2, reason="NCCL WAS NOT RUN: it takes two GPUs, it refuses two ranks on one")
BUCKET, BUCKETS, SECONDS = 1 << 20, 9, 60.0
SLEEP_CYCLES = 20_000_000
"""About 0.01 s on the GPU: whatever does not wait is wrong."""


def values(device: str, count: int = BUCKETS) -> list[torch.Tensor]:
    return [torch.full((BUCKET,), index + 1, dtype=torch.uint8, device=device) for index in range(count)]


def empties(device: str) -> list[torch.Tensor]:
    return [torch.zeros(BUCKET, dtype=torch.uint8, device=device) for _ in range(BUCKETS)]


def slow_sources(device: CudaDevice) -> list[torch.Tensor]:
    """Tensors that the caller's stream is still going to write when this returns."""
    sources = empties(device.name)
    torch.cuda._sleep(SLEEP_CYCLES)
    for source, value in zip(sources, values(device.name), strict=True):
        source.copy_(value)
    return sources


@needs_gpu
@pytest.mark.parametrize("pinned", [False, True])
def test_packing_waits_for_the_source_and_a_slot_for_its_last_use(pinned: bool) -> None:
    device = cuda_device(0, pinned=pinned)
    ring, targets = Ring(device, BUCKET), empties("cuda:0")
    sources, ready = slow_sources(device), device.ready()
    for source, target in zip(sources, targets, strict=True):
        with ring.next() as held:
            held.stream.wait(ready)
            held.stream.copy(held.part(BUCKET), source)
            held.stream.run(lambda: torch.cuda._sleep(SLEEP_CYCLES // 10))
            held.stream.copy(target, held.part(BUCKET))
    ring.drain()
    for target, value in zip(targets, values("cuda:0"), strict=True):
        assert torch.equal(target, value)


@needs_gpu
def test_a_wait_for_the_gpu_ends_at_its_deadline() -> None:
    stream = cuda_device(0).stream()
    stream.run(lambda: torch.cuda._sleep(SLEEP_CYCLES * 100))
    event = stream.record()
    with pytest.raises(TransferError, match="not over at the deadline"):
        event.wait(time.monotonic() + 0.01)
    event.wait()


@needs_gpu
def test_memory_does_not_grow_with_the_number_of_transfers() -> None:
    device, used = cuda_device(0), []
    for _ in range(20):
        ring, sources = Ring(device, BUCKET), values("cuda:0")
        for source in sources:
            with ring.next() as held:
                held.stream.copy(held.part(BUCKET), source)
        ring.drain()
        del ring, held
        used.append(torch.cuda.memory_reserved(0))
    assert used[-1] == used[3]


def _ipc_receiver(sock: socket.socket, result: Any) -> None:
    device, link = cuda_device(0), MappedReceiver(CudaSharing(), sock)
    targets = empties("cuda:0")
    receive(device, Ring(device, BUCKET), link, targets)
    result.send([int(target.unique().item()) for target in targets])
    link.close()


@needs_gpu
@pytest.mark.slow
def test_ipc_between_two_processes_on_one_gpu() -> None:
    context = multiprocessing.get_context("spawn")
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    inbox, outbox = context.Pipe(duplex=False)
    process = context.Process(target=_ipc_receiver, args=(theirs, outbox))
    process.start()
    theirs.close()
    device = cuda_device(0)
    link = MappedSender(CudaSharing(), [("r0", mine)], SECONDS)
    publish(device, Ring(device, BUCKET), link, slow_sources(device))
    assert inbox.poll(SECONDS)
    assert inbox.recv() == list(range(1, BUCKETS + 1))
    process.join(SECONDS)
    assert process.exitcode == 0
    link.close()


def _nccl_receiver(port: int, result: Any) -> None:
    device = cuda_device(1)
    torch.cuda.set_device(1)
    link = nccl_link(NcclBroadcast(join("127.0.0.1", port), 1, ("publisher", "r1"), device), device)
    targets = empties("cuda:1")
    receive(device, Ring(device, BUCKET), link, targets)
    result.send([int(target.unique().item()) for target in targets])
    link.close()


@needs_gpus
@pytest.mark.slow
def test_nccl_between_two_gpus() -> None:
    context = multiprocessing.get_context("spawn")
    inbox, outbox = context.Pipe(duplex=False)
    store, port = serve()
    process = context.Process(target=_nccl_receiver, args=(port, outbox))
    process.start()
    device = cuda_device(0)
    link = nccl_link(NcclBroadcast(store, 0, ("publisher", "r1"), device), device)
    publish(device, Ring(device, BUCKET), link, slow_sources(device))
    assert inbox.poll(SECONDS)
    assert inbox.recv() == list(range(1, BUCKETS + 1))
    link.close()
    process.join(SECONDS)
    assert process.exitcode == 0


def _late_receiver(port: int, go: Any) -> None:
    torch.cuda.set_device(1)
    link = nccl_link(NcclBroadcast(join("127.0.0.1", port), 1, ("publisher", "r1"), cuda_device(1)), cuda_device(1))
    go.recv()  # never calls receive
    link.close()


@needs_gpus
@pytest.mark.slow
def test_nccl_whose_receiver_skips_a_bucket_ends_at_the_deadline() -> None:
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    store, port = serve()
    process = context.Process(target=_late_receiver, args=(port, theirs))
    process.start()
    device = cuda_device(0)
    link = nccl_link(NcclBroadcast(store, 0, ("publisher", "r1"), device), device)
    ring = Ring(device, BUCKET)
    with ring.next() as held:
        event = link.send(held, BUCKET)
    with pytest.raises(TransferError, match="not over at the deadline"):
        event.wait(time.monotonic() + 1.0)
    link.close()
    event.wait(time.monotonic() + SECONDS)  # aborting has ended the kernel
    mine.send("go")
    process.join(SECONDS)
    if process.is_alive():
        process.kill()
