"""What a GPU can show of transfers, in one table and less than four minutes: ``python -m benchmarks.gpu_transfer``.

Copies, packing and sending that overlap by the GPU's own events, races under load with the waits and without them,
NCCL, and CUDA IPC between two processes. Without an NVIDIA GPU it says so and ends with 1.

With one GPU there is no NCCL between two ranks: NCCL refuses two ranks on one device. What it does then is a broadcast
with a single rank, which is its launch and no wire.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.gpu_overlap import hidden, pinned_memory
from proctor.transfer.devices.base import Device
from proctor.transfer.devices.cpu import CpuDevice
from proctor.transfer.devices.cuda import cuda_device
from proctor.transfer.links.nccl import NcclBroadcast
from proctor.transfer.links.rendezvous import serve
from proctor.transfer.publisher import Publisher
from proctor.transfer.receiver import Receiver
from proctor.transfer.slots import Ring

LIMIT_SECONDS = 230
"""When the whole process ends, whatever hangs."""
LAST_START_SECONDS = 150
"""No part begins later than this."""
BIG, BUCKET = 1 << 30, 16 << 20
GPU = "cuda:0"
ROUNDS, EPOCHS, TRIALS = 5, 6, 30
WAIT_SECONDS = 20.0
SLEEP_CYCLES = 2_000_000
"""About 1 ms of the GPU."""


class Row(NamedTuple):
    what: str
    figure: str
    unit: str
    note: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--receive", nargs=3, metavar=("ADDRESS", "DEVICE", "EPOCHS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.receive:
        address, name, epochs = arguments.receive
        print(json.dumps(receiving(address, device_named(name), int(epochs))), flush=True)
        return 0
    if not torch.cuda.is_available():
        print("gpu_transfer needs an NVIDIA GPU and a torch for CUDA: there is none here", file=sys.stderr)
        return 1
    faulthandler.dump_traceback_later(LIMIT_SECONDS, exit=True)
    for line in table(rows(PARTS)):
        print(line, flush=True)
    return 0


def rows(parts: tuple[Callable[[], list[Row]], ...]) -> Iterator[Row]:
    """The rows of all parts; one that fails or comes too late is a row that says so."""
    begun = time.monotonic()
    for part in parts:
        name = part.__name__.replace("_", " ")
        if time.monotonic() - begun > LAST_START_SECONDS:
            yield Row(name, "-", "", "not run: out of time")
            continue
        try:
            yield from part()
        except Exception as error:
            yield Row(name, "FAILED", "", f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    yield Row("all of it", f"{time.monotonic() - begun:.0f}", "s")


def table(found: Iterable[Row]) -> Iterator[str]:
    """The lines of one table of Markdown, each as soon as it is known, below the machine's name."""
    machine = f"torch {torch.__version__}"
    if torch.cuda.is_available():
        machine += f", {torch.cuda.get_device_name(0)} x{torch.cuda.device_count()}, CUDA {torch.version.cuda}"
    yield from (machine, "", "| what | figure | unit | note |", "| --- | ---: | --- | --- |")
    for row in found:
        yield f"| {row.what} | {row.figure} | {row.unit} | {row.note} |"


def device_named(name: str) -> Device:
    return CpuDevice() if name == "cpu" else cuda_device(int(name.partition(":")[2]))


def copies() -> list[Row]:
    device = cuda_device(0)
    on_gpu, other = (torch.empty(BIG, dtype=torch.uint8, device=GPU) for _ in range(2))
    pinned = pinned_memory(BIG)
    pageable = torch.empty(BIG, dtype=torch.uint8).fill_(0)
    there, back = device.stream(), device.stream()
    up = timed(lambda: there.copy(on_gpu, pinned))
    down = timed(lambda: back.copy(pinned, other))
    both = timed(lambda: (there.copy(on_gpu, pinned), back.copy(pinned, other)))
    return [
        Row("GPU to GPU, one stream", rate(BIG, timed(lambda: there.copy(on_gpu, other))), "GB/s"),
        Row("pinned memory to GPU", rate(BIG, up), "GB/s"),
        Row("GPU to pinned memory", rate(BIG, down), "GB/s"),
        Row("pageable memory to GPU", rate(BIG, timed(lambda: on_gpu.copy_(pageable))), "GB/s", "by torch"),
        Row("both ways at once", rate(2 * BIG, both), "GB/s", f"{(up + down - both) / min(up, down):.0%} hidden"),
    ]


def timed(call: Callable[[], Any]) -> float:
    """Seconds until all of the work that `call` enqueues on any stream is over; the median of some rounds."""
    found = []
    for _ in range(ROUNDS + 1):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        call()
        torch.cuda.synchronize()
        found.append(time.perf_counter() - begun)
    return sorted(found[1:])[ROUNDS // 2]


def rate(nbytes: int, seconds: float) -> str:
    return f"{nbytes / seconds / 1e9:.1f}"


def overlap() -> list[Row]:
    found = {buffers: hidden(cuda_device(0), buffers) for buffers in (1, 2, 3)}
    return [
        Row(f"packing hidden behind sending, {buffers} buffers", f"{each.share:.0%}", "of GPU time",
            f"{each.seconds * 1e3:.1f} ms in all, by events")
        for buffers, each in found.items()
    ]  # fmt: skip


def races() -> list[Row]:
    with load(GPU):
        kept, left_out = wrong_copies(wait=True), wrong_copies(wait=False)
    return [
        Row("wrong copies under load", f"{kept} of {TRIALS}", "", "must be 0"),
        Row("the same without the source-ready wait", f"{left_out} of {TRIALS}", "", "how real the race is here"),
    ]


def wrong_copies(*, wait: bool) -> int:
    """How often a slot gets bytes that the caller's stream had not written yet."""
    device = cuda_device(0)
    ring, wrong = Ring(device, BUCKET), 0
    for trial in range(TRIALS):
        source = torch.zeros(BUCKET, dtype=torch.uint8, device=GPU)
        torch.cuda._sleep(SLEEP_CYCLES)
        source.fill_(trial % 250 + 1)
        ready, found = device.ready(), torch.empty(BUCKET, dtype=torch.uint8, device=GPU)
        with ring.next() as held:
            if wait:
                held.stream.wait(ready)
            held.stream.copy(held.part(BUCKET), source)
            held.stream.copy(found, held.part(BUCKET))
        ring.drain()
        wrong += not bool((found == trial % 250 + 1).all())
    return wrong


@contextlib.contextmanager
def load(device: str) -> Iterator[None]:
    """Multiplies matrices on a stream of its own meanwhile."""
    stop = threading.Event()

    def work() -> None:
        stream = torch.cuda.Stream(device)
        with torch.cuda.stream(stream):
            matrix = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16)
            while not stop.is_set():
                for _ in range(8):
                    matrix @ matrix
                stream.synchronize()

    thread = threading.Thread(target=work) if device != "cpu" else None
    if thread:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        if thread:
            thread.join()


def memory() -> list[Row]:
    used = []
    for _ in range(50):
        ring = Ring(cuda_device(0), BUCKET)
        with ring.next() as held:
            held.stream.run(partial(held.buffer.fill_, 1))
        ring.drain()
        del ring, held
        used.append(torch.cuda.memory_reserved(0))
    return [
        Row("growth of reserved memory over 50 transfers", f"{(used[-1] - used[4]) / 2**20:.0f}", "MiB", "must be 0")
    ]


def nccl_with_one_rank() -> list[Row]:
    device, buffer = cuda_device(0), torch.empty(BIG, dtype=torch.uint8, device=GPU)
    store, _ = serve()
    group = NcclBroadcast(store, 0, ("publisher",), device)
    stream = device.stream()
    seconds = timed(lambda: group(stream, buffer))
    group.abort()
    return [Row("NCCL broadcast of 1 GiB, a single rank", f"{seconds * 1e3:.3f}", "ms", "no wire: launch only")]


def nccl() -> list[Row]:
    if torch.cuda.device_count() < 2:
        return [Row("NCCL between two ranks", "-", "", "not run: one GPU, and NCCL refuses two ranks on one")]
    return between_processes("nccl", GPU, "cuda:1")


def cuda_ipc() -> list[Row]:
    return between_processes("cuda_ipc", GPU, GPU)


def weights(device: str, epoch: int, nbytes: int) -> dict[str, torch.Tensor]:
    """Tensors of many sizes whose bytes say which epoch they are of."""
    sizes = [nbytes // 2, nbytes // 4, *[nbytes // 4 // 1000] * 1000]
    made = {}
    for index, size in enumerate(sizes):
        made[f"w{index}"] = torch.full((size,), (epoch * 7 + index) % 251, dtype=torch.uint8, device=device)
    return made


def between_processes(transport: str, mine: str, theirs: str, nbytes: int = BIG, epochs: int = EPOCHS) -> list[Row]:
    """Publishes some epochs to a process of its own while both GPUs compute; every tensor is compared there."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{Path(folder) / 'socket'}"
        command = [sys.executable, "-m", "benchmarks.gpu_transfer", "--receive", address, theirs, str(epochs)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            with (
                load(mine),
                Publisher(
                    [address],
                    transport=transport,
                    bucket_bytes=BUCKET,
                    deadline=WAIT_SECONDS,
                    device=device_named(mine),
                ) as publisher,
            ):
                seconds = [publisher.publish(weights(mine, epoch, nbytes)).seconds for epoch in range(epochs)]
            told = json.loads(process.communicate(timeout=WAIT_SECONDS)[0])
        finally:
            process.kill()
            process.wait()
    best = f"best of {epochs} epochs, checksums included, both sides under load"
    return [
        Row(f"{transport}, {mine} to {theirs}", rate(nbytes, min(seconds)), "GB/s", best),
        Row(f"{transport}: wrong tensors", str(told["wrong"]), "", f"of {told['tensors']}; must be 0"),
    ]


def receiving(address: str, device: Device, epochs: int) -> dict[str, int]:
    """The other process: how many tensors came, and how many of them with bytes of another epoch."""
    wrong = tensors = 0
    receiver = Receiver(address, rank="r1", deadline=WAIT_SECONDS, device=device)
    with load(device.name):
        for epoch in range(epochs):
            received = receiver.receive(WAIT_SECONDS)
            for index in range(len(received.tensors)):
                tensors += 1
                wrong += not bool((received.tensors[f"w{index}"] == (epoch * 7 + index) % 251).all())
    receiver.close()
    return {"wrong": wrong, "tensors": tensors}


PARTS = (copies, overlap, races, memory, nccl_with_one_rank, nccl, cuda_ipc)

if __name__ == "__main__":
    sys.exit(main())
