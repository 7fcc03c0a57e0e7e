"""Buckets over the control connections themselves: no port, no group and no library more. Any machine to any other."""

from __future__ import annotations

from typing import final

from typing_extensions import override

from proctor.transfer.control import Channel
from proctor.transfer.devices.base import Event, deadline_of
from proctor.transfer.links.ends import PublishingEnd, ReceivingEnd
from proctor.transfer.links.host import host_bytes
from proctor.transfer.peers import Peers
from proctor.transfer.slots import Held


@final
class StreamOutlet(PublishingEnd):
    """The publisher's end, for one epoch: the thread of the control channels sends the bytes.

    Args:
        peers: of the epoch; closing it ends what is on its way.
    """

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    @override
    def send(self, held: Held, nbytes: int) -> Event:
        over = self._peers.send_bytes(host_bytes(held.part(nbytes)), f"sending of {nbytes} bytes")
        held.until(over)
        return over

    def busy_seconds(self) -> float:
        """See `proctor.transfer.pipeline.Timed`."""
        return self._peers.busy_seconds()

    @override
    def close(self) -> None:
        pass


@final
class StreamInlet(ReceivingEnd):
    """A receiver's end.

    Args:
        channel: to the publisher.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    @override
    def receive(self, held: Held, nbytes: int, deadline: float | None = None) -> None:
        self._channel.receive_bytes(host_bytes(held.part(nbytes)), deadline_of(deadline))

    @override
    def close(self) -> None:
        pass
