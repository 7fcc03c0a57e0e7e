"""Buckets that are told apart by their bytes, sent and taken through a ring in shared memory."""

from __future__ import annotations

import time

import torch

from proctor.transfer.devices.cpu import CpuDevice
from proctor.transfer.links.shm import PAGE, ShmInlet, ShmOutlet
from proctor.transfer.slots import Ring

NBYTES = 3 * PAGE + 100


def soon(seconds: float = 20.0) -> float:
    return time.monotonic() + seconds


def bucket(number: int, nbytes: int = NBYTES) -> torch.Tensor:
    return torch.full((nbytes,), number % 251, dtype=torch.uint8)


def send(link: ShmOutlet, slots: Ring, numbers: range, nbytes: int = NBYTES) -> None:
    for number in numbers:
        with slots.next(soon()) as held:
            held.part(nbytes).copy_(bucket(number, nbytes))
            link.send(held, nbytes)


def take(inlet: ShmInlet, slots: Ring, numbers: range, nbytes: int = NBYTES) -> None:
    for number in numbers:
        with slots.next(soon()) as held:
            inlet.receive(held, nbytes, soon())
            assert torch.equal(held.part(nbytes), bucket(number, nbytes)), number


def slots(nbytes: int = NBYTES) -> Ring:
    return Ring(CpuDevice(), nbytes)
