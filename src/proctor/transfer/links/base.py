"""What the links have in common."""

from __future__ import annotations

from typing import Protocol

from proctor.transfer.devices.base import Event
from proctor.transfer.slots import Held


class Link(Protocol):
    """Carries buckets in the order of their frames; the frames themselves go over the control channel.

    One thread owns a link; a second one that uses it gets a `WrongThreadError`.
    """

    def send(self, held: Held, nbytes: int) -> Event:
        """Begins to send the first `nbytes` of a slot to all receivers.

        Returns:
            An event that is over when the buffer may be written again. The link has told it to `held` too
            (`Held.until`), so releasing the slot at once is right.

        Raises:
            TransferError: the link has failed before.
        """

    def receive(self, held: Held, nbytes: int, deadline: float | None = None) -> None:
        """Gets the next `nbytes` into a slot: what is enqueued on the slot's stream afterwards finds them there.

        Raises:
            TransferError: ``LATE`` or ``DEAD``; whoever it was is named by the control channel.
        """

    def close(self) -> None:
        """Ends it; whatever still waits in it fails."""
