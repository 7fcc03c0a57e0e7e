"""Both ends of the transports for memory of GPUs: NCCL between GPUs, CUDA IPC between processes on one node.

A group, or the mapping of a buffer, is made with the first bucket: only its buffer says which GPU it is about.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, final

import msgspec
from typing_extensions import override

from proctor.rows import UserError
from proctor.transfer.control import PUBLISHER, Channel
from proctor.transfer.devices.base import Device, Event
from proctor.transfer.devices.cuda import cuda_device
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.links.base import Link
from proctor.transfer.links.callers import Callers, call
from proctor.transfer.links.cuda_ipc import CudaSharing
from proctor.transfer.links.mapped import MappedReceiver, MappedSender
from proctor.transfer.links.nccl import NcclBroadcast, nccl_link
from proctor.transfer.links.opening import LOOPBACK, Outlet, local
from proctor.transfer.links.rendezvous import join, roll_call, serve
from proctor.transfer.patience import patiently
from proctor.transfer.slots import Held

if TYPE_CHECKING:
    import torch.distributed as dist

    from proctor.transfer.peers import Peer, Peers


class NcclTicket(msgspec.Struct, frozen=True):
    """What a receiver needs to join the group.

    Attributes:
        host: of the store.
        port: of the store.
        rank: of this receiver in the group.
        names: of all ranks.
    """

    host: str
    port: int
    rank: int
    names: tuple[str, ...]


def device_of(held: Held) -> Device:
    """The GPU that a slot's buffer lies on.

    Raises:
        UserError: it lies on none.
    """
    device = held.buffer.device
    if device.type != "cuda":
        raise UserError(
            f"this transport moves memory of GPUs, and the buffers are on {device}",
            fix="give publisher and receiver a device (cuda_device), or take the transport shm, gloo or stream",
        )
    return cuda_device(int(device.index))


@final
class NcclSide:
    """One side of a group, over many epochs.

    Args:
        store: gives the store where the sides meet.
        rank: of this side; 0 is the publisher.
        names: of all sides.
        patience: seconds until all have come.

    Attributes:
        names: see above; better ones may be set before the sides meet.
    """

    def __init__(self, store: Callable[[], dist.Store], rank: int, names: tuple[str, ...], patience: float) -> None:
        self._store, self._rank, self.names, self._patience = store, rank, names, patience
        self._group: NcclBroadcast | None = None

    def link(self, held: Held, watch: Callable[[], None]) -> Link:
        """A link for the GPU of `held`; the first time all sides meet.

        Raises:
            TransferError: see `NcclBroadcast`; or what `watch` raises meanwhile.
        """
        device = device_of(held)
        if self._group is None:
            store, until = self._store(), time.monotonic() + self._patience
            patiently(lambda step: roll_call(store, self._rank, self.names, step), until, watch)
            self._group = NcclBroadcast(store, self._rank, self.names, device, until)
        return nccl_link(self._group, device)

    def close(self) -> None:
        """Aborts the group, and with it what hangs."""
        if self._group is not None:
            self._group.abort()
            self._group = None


@final
class NcclEnd(Link):
    """An end of a link over NCCL that meets the others at its first bucket.

    Args:
        side: see `NcclSide`.
        watch: called while the others are waited for.
    """

    def __init__(self, side: NcclSide, watch: Callable[[], None]) -> None:
        self._side, self._watch = side, watch
        self._link: Link | None = None

    @override
    def send(self, held: Held, nbytes: int) -> Event:
        return self._met(held).send(held, nbytes)

    @override
    def receive(self, held: Held, nbytes: int, deadline: float | None = None) -> None:
        self._met(held).receive(held, nbytes, deadline)

    @override
    def close(self) -> None:
        self._side.close()

    def _met(self, held: Held) -> Link:
        if self._link is None:
            self._link = self._side.link(held, self._watch)
        return self._link


@final
class NcclOutlet(Outlet):
    """See `links.opening.Outlet`."""

    def __init__(self, peers: Sequence[Peer], patience: float) -> None:
        self._names = (PUBLISHER, *(str(peer.address) for peer in peers))
        self._host = next((host for peer in peers if (host := local(peer.sock)) != LOOPBACK), LOOPBACK)
        store, self._port = serve(self._host)
        self._side = NcclSide(lambda: store, 0, self._names, patience)

    @override
    def tickets(self) -> list[bytes]:
        ranks = range(1, len(self._names))
        return [msgspec.msgpack.encode(NcclTicket(self._host, self._port, rank, self._names)) for rank in ranks]

    @override
    def link(self, peers: Peers, ranks: Sequence[str]) -> Link:
        self._side.names = (PUBLISHER, *ranks)
        return NcclEnd(self._side, peers.check)

    @override
    def close(self) -> None:
        self._side.close()


def nccl_inlet(ticket: bytes, channel: Channel, patience: float) -> Link:
    """A receiver's end.

    Raises:
        TransferError: ``MISMATCH``: the ticket is none.
    """
    try:
        told = msgspec.msgpack.decode(ticket, type=NcclTicket)
    except msgspec.DecodeError as error:
        raise TransferError(Reason.MISMATCH, f"not a ticket for NCCL: {error}") from None
    side = NcclSide(lambda: join(told.host, told.port), told.rank, told.names, patience)
    return NcclEnd(side, channel.watch)


@final
class IpcOutlet(Outlet):
    """See `links.opening.Outlet`."""

    def __init__(self, peers: Sequence[Peer], patience: float) -> None:
        self._callers, self._patience = Callers([str(peer.address) for peer in peers]), patience
        self._sender: MappedSender | None = None

    @override
    def tickets(self) -> list[bytes]:
        return self._callers.tickets

    @override
    def link(self, peers: Peers, ranks: Sequence[str]) -> Link:
        return IpcEnd(lambda: self._met(peers, ranks))

    @override
    def close(self) -> None:
        self._callers.hang_up()
        if self._sender is not None:
            self._sender.close()
        self._callers.close()

    def _met(self, peers: Peers, ranks: Sequence[str]) -> MappedSender:
        if self._sender is None:
            lines = patiently(self._callers.all, time.monotonic() + self._patience, peers.check)
            named = [(rank, line) for rank, (_, line) in zip(ranks, lines, strict=True)]
            self._sender = MappedSender(CudaSharing(), named, self._patience)
        self._sender.hand_over()
        return self._sender


@final
class IpcEnd(Link):
    """The publisher's end for one epoch.

    Args:
        met: gives the link when all receivers have called, which they do when the first bucket is announced.
    """

    def __init__(self, met: Callable[[], MappedSender]) -> None:
        self._met = met
        self._sender: MappedSender | None = None

    @override
    def send(self, held: Held, nbytes: int) -> Event:
        if self._sender is None:
            self._sender = self._met()
        return self._sender.send(held, nbytes)

    @override
    def receive(self, held: Held, nbytes: int, deadline: float | None = None) -> None:
        raise TransferError(Reason.EXCEPTION, "the publisher's end of a link receives nothing")

    @override
    def close(self) -> None:
        if self._sender is not None:
            self._sender.close()


def ipc_inlet(ticket: bytes, channel: Channel, patience: float) -> Link:
    """A receiver's end.

    Raises:
        TransferError: ``MISMATCH``: the ticket is none; ``DEAD``: the publisher is not there.
    """
    return MappedReceiver(CudaSharing(), call(ticket, time.monotonic() + patience), channel.watch)
