"""The CPU as a device: copies run at once in the caller's thread, events are those of threads in the background."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import final

import torch
from typing_extensions import override

from proctor.transfer.devices.base import Device, Event, Stream, same_length, seconds_left
from proctor.transfer.errors import Reason, TransferError


@final
class HostEvent(Event):
    """An event that some thread sets once, or fails.

    Args:
        what: what is waited for, for the message of one that is late.
        rank: the side that is waited for, if there is one.
    """

    def __init__(self, what: str = "", *, rank: str = "") -> None:
        self._what, self._rank = what, rank
        self._over = threading.Event()
        self._error: Exception | None = None

    def set(self) -> None:
        """It is over."""
        self._over.set()

    def fail(self, error: Exception) -> None:
        """It is over, and has gone wrong: whoever waits for it gets `error`."""
        self._error = error
        self._over.set()

    @override
    def done(self) -> bool:
        return self._over.is_set()

    @override
    def wait(self, deadline: float | None = None) -> None:
        if not self._over.wait(seconds_left(deadline)):
            raise TransferError(Reason.LATE, f"{self._what or 'work'} is not over at the deadline", rank=self._rank)
        if self._error is not None:
            raise self._error


def over() -> HostEvent:
    """An event that is over."""
    event = HostEvent()
    event.set()
    return event


@final
class CpuStream(Stream):
    """Does everything at once, so whatever it is told to wait for, the caller waits for."""

    @override
    def wait(self, event: Event) -> None:
        event.wait()

    @override
    def record(self) -> Event:
        return over()

    @override
    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        same_length(target, source)
        target.copy_(source)

    @override
    def run(self, call: Callable[[], None], *tensors: torch.Tensor) -> None:
        call()

    @override
    def host(self, call: Callable[[], None]) -> None:
        call()


@final
class CpuDevice(Device):
    """Plain memory."""

    name = "cpu"

    @override
    def buffer(self, nbytes: int) -> torch.Tensor:
        # zeros() would leave the pages to the first touch, which then costs more than the copy that touches them.
        return torch.empty(nbytes, dtype=torch.uint8).fill_(0)

    @override
    def stream(self) -> Stream:
        return CpuStream()

    @override
    def ready(self) -> Event:
        return over()
