"""Key-value blocks from one process to another, against a memory copy of the same bytes.

Every round copies the bytes once from memory to memory, then ships them; the ratio is taken within a round. What is
timed ends when the sender knows that every block is the receiver's, copied and compared. *Seconds of processor time*
are those of both processes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from typing import Any

import torch

from benchmarks.mds import rates, ratios, result
from proctor.transfer.kv.block import Block
from proctor.transfer.kv.layout import KEY, VALUE, Layout
from proctor.transfer.kv.receiver import Receiver
from proctor.transfer.kv.sender import Sender

TITLE = "key-value blocks between processes"
LAYOUT = Layout(model="bench", dtype="BF16", layers=8, heads=8, head_size=64)
POSITIONS, BLOCKS = 512, 16
GB = 1e9


def run(rounds: int) -> list[dict[str, Any]]:
    """GB/s of a copy and of shipping, their ratio, and processor seconds a GB."""
    size = BLOCKS * POSITIONS * LAYOUT.position_bytes
    tensors, source = made(), torch.ones(size, dtype=torch.uint8)
    target = torch.ones_like(source)
    copies, shipped, cpu = [], [], []
    with tempfile.TemporaryDirectory(prefix="kv-bench-") as folder:
        address = f"ipc://{folder}/kv"
        command = [sys.executable, "-m", "benchmarks.kv", address]
        with (
            Sender(address, LAYOUT) as sender,
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child,
        ):
            for number in range(rounds + 1):
                begun = time.perf_counter()
                target.copy_(source)
                copied = time.perf_counter() - begun
                seconds, busy = ship(sender, child, tensors, number)
                if number:  # the first one makes pages and connections
                    copies.append(copied)
                    shipped.append(seconds)
                    cpu.append(busy / size * GB)
            child.stdin.close()  # type: ignore[union-attr]
    return [
        result("one memory copy", "GB/s", rates(size / GB, copies), digits=2),
        result("key-value blocks", "GB/s", rates(size / GB, shipped), digits=2),
        result("key-value blocks: speed", "x", ratios(copies, shipped), "the copy", digits=2),
        result("key-value blocks: both sides", "CPU s/GB", cpu, digits=2),
    ]


def made() -> dict[str, torch.Tensor]:
    """A block's tensors: 8.4 MB."""
    shape = (1, LAYOUT.heads, POSITIONS, LAYOUT.head_size)
    names = [name.format(layer) for layer in range(LAYOUT.layers) for name in (KEY, VALUE)]
    return {name: torch.ones(shape, dtype=torch.bfloat16) for name in names}


def ship(
    sender: Sender, child: subprocess.Popen[str], tensors: dict[str, torch.Tensor], number: int
) -> tuple[float, float]:
    """Seconds until every block is the receiver's, and processor seconds of both sides."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(f"{number}\n")
    child.stdin.flush()
    child.stdout.readline()  # it has asked for all of them
    begun, busy = time.perf_counter(), time.process_time()
    tokens = tuple(range(POSITIONS))
    blocks = [
        sender.put(Block(request=f"{number}-{one}", tokens=tokens, position=POSITIONS, tensors=tensors))
        for one in range(BLOCKS)
    ]
    for delivered in blocks:
        delivered.wait()
    seconds, busy = time.perf_counter() - begun, time.process_time() - busy
    return seconds, busy + float(child.stdout.readline())


def main() -> None:
    """The receiving process: a line is the number of a round."""
    with Receiver(sys.argv[1], LAYOUT) as receiver:
        for line in sys.stdin:
            asked = [receiver.ask(f"{line.strip()}-{one}") for one in range(BLOCKS)]
            print("asked", flush=True)
            begun = time.process_time()
            for wanted in asked:
                receiver.result(wanted)
            print(time.process_time() - begun, flush=True)


if __name__ == "__main__":
    main()
