"""Weights between two processes: each transport against one memory copy; packed against one by one; what overlaps.

Every round copies the same bytes once from memory to memory, and then sends them by each transport; a ratio is taken
within a round, and the figure is the median over rounds with the extremes beside it. Receivers write in place; a
*publish* into shared memory has no receiver: others attach to it without a copy. It makes new memory, unless that was
reserved ahead, and so is also compared with a copy into new memory: to make pages costs as much as to fill them.
*Seconds of processor time* are those of both processes. The paced link sleeps 20 ms for each bucket, and packing 10 ms.
"""

from __future__ import annotations

import queue
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from benchmarks.mds import rates, ratios, result
from benchmarks.transfer_child import SETS, group, one_by_one
from proctor.transfer.devices.base import Event
from proctor.transfer.devices.cpu import CpuDevice, HostEvent
from proctor.transfer.links.base import Link
from proctor.transfer.links.rendezvous import serve
from proctor.transfer.manifest import Bucket, Manifest
from proctor.transfer.pipeline import Pipeline
from proctor.transfer.publishing import draft_for, publish
from proctor.transfer.slots import Held, OneBufferWarning, Ring
from proctor.transfer.tensors import plan
from proctor.transfer.weights import Publisher

TITLE = "weights between processes"

GB = 1e9
TRANSPORTS = ("stream", "shm", "gloo")
PACK_SECONDS, SEND_SECONDS, PACED = 0.010, 0.020, 24


def run(rounds: int) -> list[dict[str, Any]]:
    """Measures everything and returns one dict a figure: name, figure, unit, ratio_to, rounds, spread."""
    return [*transports(rounds), *small_tensors(rounds), *overlap(rounds)]


def transports(rounds: int) -> list[dict[str, Any]]:
    """GB/s of each, and of a memory copy; processor seconds a GB of both sides."""
    tensors = SETS["large"]()
    manifest = plan(tensors).manifest
    seconds: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {name: [] for name in TRANSPORTS}
    with Child("large", TRANSPORTS) as child, ExitStack() as stack:
        publishers = {name: stack.enter_context(child.publisher(name)) for name in TRANSPORTS}
        copy = Copy(manifest)
        for number in range(rounds + 1):
            taken = {"memory copy": copy.seconds(), "memory copy into new memory": copy.seconds(new=True)}
            taken["publish"] = published(tensors, prefault=False)
            taken["publish, memory reserved ahead"] = published(tensors, prefault=True)
            for name, publisher in publishers.items():
                taken[name], busy = child.epoch(name, publisher, tensors)
                cpu[name] += [busy / manifest.nbytes * GB] if number else []
            for name, value in taken.items() if number else ():
                seconds.setdefault(name, []).append(value)
    ceiling = seconds.pop("memory copy")
    fresh = ratios(seconds["memory copy into new memory"], seconds["publish"])
    size = manifest.nbytes / GB
    return [
        result("one memory copy", "GB/s", rates(size, ceiling), digits=2),
        *(result(name, "GB/s", rates(size, taken), digits=2) for name, taken in seconds.items()),
        *(
            result(f"{name}: speed", "x", ratios(ceiling, taken), "the copy", digits=2)
            for name, taken in seconds.items()
        ),
        result("publish: speed", "x", fresh, "the copy into new memory", digits=2),
        *(result(f"{name}: both sides", "CPU s/GB", busy, digits=2) for name, busy in cpu.items()),
    ]


def small_tensors(rounds: int) -> list[dict[str, Any]]:
    """Processor seconds of both sides for 10,000 tensors, packed and one by one."""
    tensors = SETS["small"]()
    packed, single = [], []
    store, port = serve()
    with Child("small", ("gloo",)) as child, child.publisher("gloo") as publisher:
        child.say(f"single {port}")
        made = group(store, 0)
        one_by_one(made, tensors)
        child.answer()
        for number in range(rounds + 1):
            _, cpu = child.epoch("gloo", publisher, tensors)
            begun = time.process_time()
            child.say(f"single {port}")
            one_by_one(made, tensors)
            other = time.process_time() - begun + child.answer()
            if number:
                packed.append(cpu)
                single.append(other)
    return [
        result("10,000 small tensors by gloo, packed", "CPU s", packed, digits=3),
        result("10,000 small tensors by gloo, one by one", "CPU s", single, digits=3),
        result("10,000 small tensors: CPU of one by one", "x", ratios(single, packed), "packed", digits=1),
    ]


def overlap(rounds: int) -> list[dict[str, Any]]:
    """How much of packing is hidden behind sending on the paced link."""
    hidden: dict[int, list[float]] = {buffers: [] for buffers in (1, 2, 3, 8)}
    for _ in range(rounds):
        for buffers, found in hidden.items():
            found.append(paced(buffers))
    return [
        result(f"paced link, {buffers} buffer{'s' * (buffers > 1)}: hidden", "x", found, "packing", digits=2)
        for buffers, found in hidden.items()
    ]


class Copy:
    """From memory to memory, pages of both there already unless the target's are to be new."""

    def __init__(self, manifest: Manifest) -> None:
        self._source, self._target = (torch.empty(manifest.nbytes, dtype=torch.uint8).fill_(1) for _ in range(2))

    def seconds(self, *, new: bool = False) -> float:
        begun = time.perf_counter()
        target = torch.empty_like(self._source) if new else self._target
        target.copy_(self._source)
        return time.perf_counter() - begun


def published(tensors: dict[str, torch.Tensor], *, prefault: bool) -> float:
    """Seconds of one publish into sealed shared memory."""
    draft = draft_for(tensors, prefault=True) if prefault else None
    begun = time.perf_counter()
    made = publish(tensors, draft=draft)
    seconds = time.perf_counter() - begun
    made.close()
    return seconds


class Child:
    """The process that receives, at an address for each transport."""

    def __init__(self, kind: str, transports: tuple[str, ...]) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="transfer-bench-")
        self._addresses = {name: f"unix:{Path(self._place.name) / name}" for name in transports}
        command = [sys.executable, "-m", "benchmarks.transfer_child", kind, *self._addresses.values()]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        self._out, self._in = self._process.stdout, self._process.stdin
        if self._out.readline().strip() != "ready":
            raise RuntimeError("the receiving process did not start")

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self._in.close()
        self._process.wait(30)
        self._out.close()
        self._place.cleanup()

    @contextmanager
    def publisher(self, transport: str) -> Iterator[Publisher]:
        with Publisher([self._addresses[transport]], transport=transport) as publisher:
            yield publisher

    def say(self, line: str) -> None:
        self._in.write(line + "\n")
        self._in.flush()

    def answer(self) -> float:
        return float(self._out.readline())

    def epoch(self, name: str, publisher: Publisher, tensors: dict[str, torch.Tensor]) -> tuple[float, float]:
        """Seconds, and processor seconds of both sides."""
        self.say(f"weights {self._addresses[name]}")
        begun = time.process_time()
        receipt = publisher.publish(tensors)
        cpu = time.process_time() - begun
        return receipt.seconds, cpu + self.answer()


class PacedLink(Link):
    """Sends a bucket in `SEND_SECONDS`, in a thread."""

    def __init__(self) -> None:
        self._busy = 0.0
        self._events: queue.SimpleQueue[HostEvent | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def send(self, held: Held, nbytes: int) -> Event:  # noqa: ARG002
        over = HostEvent("sending")
        held.until(over)
        self._events.put(over)
        return over

    def receive(self, held: Held, nbytes: int, deadline: float | None = None) -> None:
        raise NotImplementedError

    def busy_seconds(self) -> float:
        return self._busy

    def close(self) -> None:
        self._events.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (over := self._events.get()) is not None:
            begun = time.perf_counter()
            time.sleep(SEND_SECONDS)
            self._busy += time.perf_counter() - begun
            over.set()


def paced(buffers: int) -> float:
    """Share of packing that took no time of its own."""

    def pack(_bucket: Bucket, _held: Held) -> int:
        time.sleep(PACK_SECONDS)
        return 0

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OneBufferWarning)
        ring = Ring(CpuDevice(), 256, buffers)
    link = PacedLink()
    pipeline = Pipeline(
        ring, link, pack=pack, announce=lambda _bucket, _sum: None, watch=lambda: None, patience=60.0
    )  # fmt: skip
    timing = pipeline.run(Bucket(number, 256 * number, 256 * number + 256, 0, 1) for number in range(PACED))
    link.close()
    return timing.hidden or 0.0


if __name__ == "__main__":
    for figure in run(int(sys.argv[1]) if len(sys.argv) > 1 else 5):
        print(figure)
