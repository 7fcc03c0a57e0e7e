"""Both ends of a transport, by its name.

The publisher makes an `Outlet` when its connections are made, and gives every receiver a ticket; both stay as long as
the connections do, over many epochs.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, final

import msgspec
from typing_extensions import override

from proctor.rows import UserError
from proctor.transfer.control import PUBLISHER, Channel
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.links.base import Link
from proctor.transfer.links.stream import StreamInlet, StreamOutlet

if TYPE_CHECKING:
    from proctor.transfer.links.gloo import GlooGroup
    from proctor.transfer.peers import Peer, Peers

LOOPBACK = "127.0.0.1"


class Outlet(Protocol):
    """The publisher's side of one transport."""

    def tickets(self) -> list[bytes]:
        """What each receiver needs to join, in their order."""

    def link(self, peers: Peers, ranks: Sequence[str]) -> Link:
        """The link of one epoch. Called when all receivers have accepted the epoch."""

    def close(self) -> None:
        """Ends it; what is on its way fails."""


def outlet(transport: str, peers: Sequence[Peer], patience: float) -> Outlet:
    """Opens the publisher's side.

    Args:
        transport: a key of `TRANSPORTS`.
        peers: connected.
        patience: seconds that one bucket takes at most.

    Raises:
        UserError: there is no such transport.
    """
    check_transport(transport)
    return TRANSPORTS[transport][0](peers, patience)


def inlet(transport: str, ticket: bytes, channel: Channel, patience: float) -> Link:
    """Opens a receiver's side; see `outlet`.

    Raises:
        TransferError: ``MISMATCH``: the ticket is none.
    """
    return TRANSPORTS[transport][1](ticket, channel, patience)


def check_transport(transport: str) -> None:
    """Raises: UserError: there is no such transport."""
    if transport not in TRANSPORTS:
        raise UserError(f"there is no transport {transport}", fix=f"take {', '.join(TRANSPORTS)}")


@final
class _Stream(Outlet):
    def __init__(self, peers: Sequence[Peer], _patience: float) -> None:
        self._count = len(peers)

    @override
    def tickets(self) -> list[bytes]:
        return [b""] * self._count

    @override
    def link(self, peers: Peers, ranks: Sequence[str]) -> Link:
        return StreamOutlet(peers)

    @override
    def close(self) -> None:
        pass


def _stream(_ticket: bytes, channel: Channel, _patience: float) -> Link:
    return StreamInlet(channel)


class _GlooTicket(msgspec.Struct, frozen=True):
    host: str
    port: int
    rank: int
    names: tuple[str, ...]


@final
class _Gloo(Outlet):
    """The store is opened at once, and the group when the first bucket is sent: until then nobody waits in it."""

    def __init__(self, peers: Sequence[Peer], patience: float) -> None:
        from proctor.transfer.links.rendezvous import serve

        self._names = (PUBLISHER, *(str(peer.address) for peer in peers))
        self._patience = patience
        self._host = next((host for peer in peers if (host := local(peer.sock)) != LOOPBACK), LOOPBACK)
        self._store, self._port = serve(self._host)
        self._group: GlooGroup | None = None

    @override
    def tickets(self) -> list[bytes]:
        count = len(self._names)
        made = (_GlooTicket(self._host, self._port, rank, self._names) for rank in range(1, count))
        return [msgspec.msgpack.encode(ticket) for ticket in made]

    @override
    def link(self, peers: Peers, ranks: Sequence[str]) -> Link:
        from proctor.transfer.links.gloo import GlooGroup, GlooOutlet

        if self._group is None:
            names = (PUBLISHER, *ranks)
            self._group = GlooGroup(lambda: self._store, 0, names, self._host, self._patience)
        return GlooOutlet(self._group)

    @override
    def close(self) -> None:
        if self._group is not None:
            self._group.close()
        del self._store


def _gloo(ticket: bytes, channel: Channel, patience: float) -> Link:
    from proctor.transfer.links.gloo import GlooGroup, GlooInlet
    from proctor.transfer.links.rendezvous import join

    try:
        told = msgspec.msgpack.decode(ticket, type=_GlooTicket)
    except msgspec.DecodeError as error:
        raise TransferError(Reason.MISMATCH, f"not a ticket for gloo: {error}") from None
    mine = local(channel.socket)
    group = GlooGroup(
        lambda: join(told.host, told.port),
        told.rank,
        told.names,
        told.host if mine == LOOPBACK else mine,
        patience,
    )
    return GlooInlet(group, channel)


@final
class _Shm(Outlet):
    def __init__(self, peers: Sequence[Peer], patience: float) -> None:
        from proctor.transfer.links.shm import ShmRing

        self._ring = ShmRing([str(peer.address) for peer in peers], patience)

    @override
    def tickets(self) -> list[bytes]:
        return self._ring.tickets()

    @override
    def link(self, peers: Peers, ranks: Sequence[str]) -> Link:
        from proctor.transfer.links.shm import ShmOutlet

        return ShmOutlet(self._ring, ranks)

    @override
    def close(self) -> None:
        self._ring.close()


def _shm(ticket: bytes, channel: Channel, patience: float) -> Link:
    from proctor.transfer.links.shm import ShmInlet

    return ShmInlet(ticket, channel.watch, time.monotonic() + patience)


def local(sock: socket.socket) -> str:
    """This machine's address on a connection; the loopback's for a Unix socket."""
    return str(sock.getsockname()[0]) if sock.family == socket.AF_INET else LOOPBACK


def _nccl_out(peers: Sequence[Peer], patience: float) -> Outlet:
    from proctor.transfer.links.gpu_opening import NcclOutlet

    return NcclOutlet(peers, patience)


def _nccl_in(ticket: bytes, channel: Channel, patience: float) -> Link:
    from proctor.transfer.links.gpu_opening import nccl_inlet

    return nccl_inlet(ticket, channel, patience)


def _ipc_out(peers: Sequence[Peer], patience: float) -> Outlet:
    from proctor.transfer.links.gpu_opening import IpcOutlet

    return IpcOutlet(peers, patience)


def _ipc_in(ticket: bytes, channel: Channel, patience: float) -> Link:
    from proctor.transfer.links.gpu_opening import ipc_inlet

    return ipc_inlet(ticket, channel, patience)


TRANSPORTS: Mapping[str, tuple[Callable[..., Outlet], Callable[..., Link]]] = {
    "stream": (_Stream, _stream),
    "shm": (_Shm, _shm),
    "gloo": (_Gloo, _gloo),
    "nccl": (_nccl_out, _nccl_in),
    "cuda_ipc": (_ipc_out, _ipc_in),
}
"""What opens the publisher's side and a receiver's."""
