"""One side in a process of its own: ``python -m tests.transfer.weights_child receive|publish ...``."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import torch
import xxhash

from proctor.transfer.errors import TransferError
from proctor.transfer.manifest import Manifest
from proctor.transfer.tensors import as_bytes, plan
from proctor.transfer.weights import Publisher, Receiver

COUNT, SIZE = 24, 100_000
BUCKET_BYTES = 1 << 18


def tensors(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {str(index): torch.randn(SIZE, generator=generator) for index in range(COUNT)}


def layout() -> Manifest:
    return plan({str(index): torch.empty(SIZE) for index in range(COUNT)}).manifest


def digest(found: dict[str, torch.Tensor]) -> str:
    state = xxhash.xxh3_64()
    for name in sorted(found):
        state.update(memoryview(as_bytes(found[name]).numpy()))
    return state.hexdigest()


def receive(address: str, rank: str) -> None:
    """Says what became of every epoch, one line each, until nothing comes any more."""
    with Receiver(address, rank=rank) as receiver:
        print("ready", flush=True)
        while True:
            try:
                received = receiver.receive(30)
                print(f"committed {received.epoch} {digest(received.tensors)}", flush=True)
            except TransferError as error:
                print(f"failed {error.reason} {error.rank}", flush=True)


def dying(seed: int) -> Iterator[tuple[str, torch.Tensor]]:
    for index, pair in enumerate(tensors(seed).items()):
        if index == COUNT // 2:
            os.kill(os.getpid(), signal.SIGKILL)
        yield pair


def publish(transport: str, *addresses: str) -> None:
    """Dies in the middle of its first epoch."""
    with Publisher(addresses, transport=transport, bucket_bytes=BUCKET_BYTES, deadline=20) as publisher:
        publisher.publish(dying(1), manifest=layout())


if __name__ == "__main__":
    {"receive": receive, "publish": publish}[sys.argv[1]](*sys.argv[2:])
