"""A link whose sending and receiving are work on a stream: a collective of a GPU library, or a copy.

Which of them waits for which is written down here once, and the host waits for nothing. It is the same code for NCCL
and for the machine made for tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, final

from typing_extensions import override

from proctor.transfer.devices.base import Device, Event, Stream
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.links.base import Link
from proctor.transfer.owner import Owner
from proctor.transfer.slots import Held

if TYPE_CHECKING:
    import torch


class Carrier(Protocol):
    """Enqueues the transport of a part of a buffer on a stream: out of it on the publisher, into it on a receiver."""

    def __call__(self, stream: Stream, part: torch.Tensor) -> None:
        """Enqueues it behind what is on the stream; returns without waiting."""


@final
class OrderedLink(Link):
    """See the module.

    Args:
        device: where the slots' buffers lie.
        carry: see `Carrier`. All sides call it equally often, in the same order, with equally many bytes.
        stop: ends transports that hang, from any thread.
        what: its name, for messages.
    """

    def __init__(self, device: Device, carry: Carrier, stop: Callable[[], None], what: str) -> None:
        self._stream = device.stream()
        self._carry, self._stop, self._what = carry, stop, what
        self._owner = Owner(what)
        self._closed = False

    @override
    def send(self, held: Held, nbytes: int) -> Event:
        return self._transport(held, nbytes)

    @override
    def receive(self, held: Held, nbytes: int, deadline: float | None = None) -> None:
        """Enqueues it. Nothing has arrived when this returns; the first wait of the host with a deadline tells."""
        held.stream.wait(self._transport(held, nbytes))

    def _transport(self, held: Held, nbytes: int) -> Event:
        self._owner.check()
        if self._closed:
            raise TransferError(Reason.CANCELLED, f"{self._what} is closed")
        part = held.part(nbytes)
        self._stream.wait(held.stream.record())  # what was packed, or what still reads the bytes before
        self._carry(self._stream, part)
        over = self._stream.record()
        held.until(over)
        return over

    @override
    def close(self) -> None:
        """Ends it from any thread: a transport that hangs is hanging in the thread that owns the link."""
        if not self._closed:
            self._closed = True
            self._stop()
