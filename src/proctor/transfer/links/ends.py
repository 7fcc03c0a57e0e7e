"""Links that go one way, by their two ends."""

from __future__ import annotations

from typing_extensions import override

from proctor.transfer.devices.base import Event
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.links.base import Link
from proctor.transfer.slots import Held


class PublishingEnd(Link):
    """Only sends."""

    @override
    def receive(self, held: Held, nbytes: int, deadline: float | None = None) -> None:
        raise TransferError(Reason.EXCEPTION, "the publisher's end of a link receives nothing")


class ReceivingEnd(Link):
    """Only receives."""

    @override
    def send(self, held: Held, nbytes: int) -> Event:
        raise TransferError(Reason.EXCEPTION, "a receiver's end of a link sends nothing")
