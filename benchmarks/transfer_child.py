"""The other process of the benchmark of transfers: takes commands as lines on its standard input.

``weights``: takes an epoch by each transport, one line a command. ``single PORT``: the same tensors one at a time, by
gloo alone. Answers with the processor seconds that it took.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from proctor.transfer.links.rendezvous import join
from proctor.transfer.weights import Receiver

SMALL_COUNT = 10_000


def large() -> dict[str, torch.Tensor]:
    """134 MB in 54 tensors of three types."""
    kinds = [torch.bfloat16, torch.float32, torch.int8]
    return {f"layer.{index}": torch.ones(1_065_000, dtype=kinds[index % 3]) for index in range(54)}


def small() -> dict[str, torch.Tensor]:
    """10,000 tensors of up to 1.6 kB."""
    return {f"expert.{index}": torch.ones(1 + index % 400) for index in range(SMALL_COUNT)}


SETS = {"large": large, "small": small}


def group(store: dist.Store, rank: int) -> dist.ProcessGroupGloo:
    """Gloo as it comes, on the loopback."""
    options = dist.ProcessGroupGloo._Options()
    options._devices = [dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
    options._timeout = timedelta(seconds=60)
    return dist.ProcessGroupGloo(store, rank, 2, options)


def one_by_one(made: dist.ProcessGroupGloo, tensors: dict[str, torch.Tensor]) -> None:
    """A broadcast for each tensor."""
    options = dist.BroadcastOptions()
    options.rootRank, options.rootTensor = 0, 0
    for tensor in tensors.values():
        made.broadcast([tensor], options).wait()


def main() -> None:
    kind, *addresses = sys.argv[1:]
    into = SETS[kind]()
    receivers = {address: Receiver(address, rank="child", into=into) for address in addresses}
    made: dist.ProcessGroupGloo | None = None
    print("ready", flush=True)
    for line in sys.stdin:
        command, argument = line.split()
        if command == "single" and made is None:
            made = group(join("127.0.0.1", int(argument)), 1)
        begun = time.process_time()
        if made is not None and command == "single":
            one_by_one(made, into)
        else:
            receivers[argument].receive()
        print(time.process_time() - begun, flush=True)
    for receiver in receivers.values():
        receiver.close()


if __name__ == "__main__":
    main()
