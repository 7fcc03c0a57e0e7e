"""What the devices have in common: work is enqueued on streams, and events say when it is over.

The words are CUDA's. A stream does what is enqueued on it in order, while the host goes on; streams do not wait for
each other unless told. An event stands behind one moment of one stream, and is never recorded a second time: a guard
that waits for an event before a background thread has recorded it again would pass in silence.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch

DEADLINE_SECONDS = 60.0
"""How long a wait takes at most when nobody says a deadline."""


def deadline_of(deadline: float | None) -> float:
    """The given deadline (of `time.monotonic`, seconds), or the default one from now on."""
    return time.monotonic() + DEADLINE_SECONDS if deadline is None else deadline


def seconds_left(deadline: float | None) -> float:
    """Seconds until a deadline, 0 if it has passed."""
    return max(0.0, deadline_of(deadline) - time.monotonic())


@runtime_checkable
class Event(Protocol):
    """A moment of a stream, or of a thread that works in the background."""

    def done(self) -> bool:
        """Whether everything before it is over, well or not; never blocks."""

    def wait(self, deadline: float | None = None) -> None:
        """The host waits for it.

        Args:
            deadline: of `time.monotonic`, seconds; None is `DEADLINE_SECONDS` from now.

        Raises:
            TransferError: ``LATE`` at the deadline, or what went wrong in the work before it.
        """


class Stream(Protocol):
    """Does work in the order in which it is enqueued."""

    def wait(self, event: Event) -> None:
        """What is enqueued after this runs after `event`; the host does not block where the device can wait itself.

        The event is one of this kind of device, or one of the host, for which the host has to wait.
        """

    def record(self) -> Event:
        """An event behind everything that is on the stream now."""

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Enqueues a copy.

        Args:
            target: uint8, 1-d.
            source: uint8, 1-d, of the same length; it stays as it is until an event behind this copy is over.

        Raises:
            ValueError: the lengths differ: a copy that broadcast one byte over a buffer would be no error to torch.
        """

    def run(self, call: Callable[[], None], *tensors: torch.Tensor) -> None:
        """Enqueues what `call` does with tensors of the device, for example one ``torch.cat`` into a buffer.

        Args:
            call: only torch operations that do not wait for a result (no ``item``, no copy to pageable memory).
            tensors: every tensor it reads or writes that may be freed before the work is over.
        """

    def host(self, call: Callable[[], None]) -> None:
        """Work of the host, after what is on the stream now and before what comes after it: a checksum, a write to a
        socket.

        On a GPU the calling thread waits for the stream and then calls, so only a thread that may wait calls this. A
        callback that the driver itself runs (``cudaLaunchHostFunc``) would need the interpreter's lock while another
        thread may hold it inside the driver, which is a deadlock.
        """


class Device(Protocol):
    """One place for buffers.

    Attributes:
        name: ``cpu``, ``cuda:0``, ``virtual``.
    """

    name: str

    def buffer(self, nbytes: int) -> torch.Tensor:
        """A uint8 tensor (nbytes,) of its own whose pages are there already (filled with 0)."""

    def stream(self) -> Stream:
        """A stream of its own, never the default one."""

    def ready(self) -> Event:
        """An event behind everything that the caller has enqueued on its own stream up to now.

        Whoever reads tensors of the caller waits for it first (vllm-ascend #12713: without it weights were read while
        they were still being written).
        """


def same_length(target: torch.Tensor, source: torch.Tensor) -> None:
    """Raises: ValueError: see `Stream.copy`."""
    if target.shape != source.shape or target.dim() != 1:
        raise ValueError(f"a copy of {list(source.shape)} to {list(target.shape)} bytes: both are 1-d and equally long")
