"""The prefill side: hand blocks over and go on; one thread in the background ships them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import final

import msgspec
import zmq
from typing_extensions import override

from proctor.rows import UserError
from proctor.transfer.closing import Closing
from proctor.transfer.devices.base import Device
from proctor.transfer.devices.cpu import CpuDevice, HostEvent
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.kv import wire
from proctor.transfer.kv.block import Block, cut
from proctor.transfer.kv.desk import Desk, Parcel
from proctor.transfer.kv.layout import Layout
from proctor.transfer.kv.ledger import Ledger
from proctor.transfer.kv.limits import Limits, Metrics
from proctor.transfer.kv.loop import Loop
from proctor.transfer.kv.memory import Memory
from proctor.transfer.kv.outbox import Outbox
from proctor.transfer.kv.peers import check_address, this_host, watch
from proctor.transfer.tensors import plan


class _Peer(msgspec.Struct):
    rank: str
    process: int | None


@final
class Sender(Closing):
    """Ships blocks to receivers that connect to `address`.

    Args:
        address: ``ipc://PATH`` or ``tcp://127.0.0.1:PORT`` (``*`` for any port).
        layout: of the caches that are shipped; receivers with another one are refused.
        limits: see `Limits`.
        rank: this side's name in errors.
        device: where the tensors lie; the CPU unless said.
        clock: of the leases, monotonic seconds.

    Attributes:
        address: where it listens.

    Raises:
        UserError: the address is open to other machines or taken, a limit holds nothing, or there is not so much
            shared memory.
    """

    def __init__(
        self,
        address: str,
        layout: Layout,
        limits: Limits | None = None,
        *,
        rank: str = "prefill",
        device: Device | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_address(address, where="address")
        limits = limits or Limits()
        limits.check()
        self._layout, self._rank, self._device = layout, rank, device or CpuDevice()
        self._limits = limits
        self._peers: dict[bytes, _Peer] = {}
        self._refused = self._corrupt = 0
        socket = _bound(address)
        self.address = socket.getsockopt_string(zmq.LAST_ENDPOINT)
        try:
            self._memory = Memory(limits.slots, limits.slot_bytes)
        except BaseException:
            socket.close(0)
            raise
        self._ledger = Ledger(limits.slots, limits.lease_seconds, clock)
        self._outbox: Outbox[Parcel] = Outbox(limits.queue_bytes, limits.queue_blocks)
        self._desk = Desk(
            self._ledger, self._memory, self._outbox, self._device.stream(), self._say, rank=rank, clock=clock
        )
        self._decoder = msgspec.msgpack.Decoder(wire.ToSender)
        self._loop = Loop(socket, f"kv sender {rank}")
        self._loop.start(self)

    def put(self, block: Block, deadline: float | None = None) -> HostEvent:
        """Hands a block over. Its tensors belong to the sender until the event is over; what the caller has enqueued
        on its stream so far is waited for in the background.

        Args:
            block: see `Block`; one id is one try.
            deadline: of `time.monotonic`, seconds, for room in the queue; None is 60 s from now.

        Returns:
            An event: over when a receiver has it; `wait` raises the `TransferError` with which the request failed.

        Raises:
            TransferError: ``MISMATCH``: it is not of the layout; ``LATE``: no room in time; or the sender has ended.
            UserError: it is larger than all slots together.
            ValueError: a block under this id is in the queue.
        """
        laid_out = plan(block.tensors)
        self._layout.check(laid_out.manifest)
        parts = cut(laid_out, self._limits.slot_bytes)
        if len(parts.pieces) > self._limits.slots:
            raise UserError(
                f"{laid_out.manifest.nbytes:,} bytes are more than {self._limits.slots} slots hold",
                where=block.request,
                fix=f"make slots x slot_bytes at least {len(parts.pieces) * self._limits.slot_bytes:,}",
            )
        ended = HostEvent(f"{block.request}: nobody has taken it", rank=self._rank)
        parcel = Parcel(block.request, tuple(block.tokens), block.position, parts, self._device.ready(), ended)
        self._outbox.put(block.request, parcel, laid_out.manifest.nbytes, deadline)
        self.wake()
        return ended

    def cancel(self, request: str) -> None:
        """Gives a request up, wherever it is: also one whose block has not come yet. Returns at once."""
        self._loop.call(lambda: self._desk.cancel_here(request))

    def wake(self) -> None:
        """Has the thread look at queue and leases now, e.g. after its clock was turned."""
        self._loop.call(lambda: None)

    def metrics(self) -> Metrics:
        """Where it stands."""
        return Metrics(
            queued=len(self._outbox), queued_bytes=self._outbox.nbytes, leases=self._ledger.held,
            free_slots=self._ledger.free, waiting=self._desk.waiting, receivers=len(self._peers),
            late_notices=self._ledger.late, refused=self._refused, corrupt=self._corrupt, **self._desk.counts,
        )  # fmt: skip

    @override
    def close(self) -> None:
        """Fails what is not delivered, on both sides, and frees everything."""
        self._loop.close()

    # What follows runs in the thread only.

    def heard(self, frames: list[bytes]) -> None:
        """A message has come (`Work`)."""
        owner, *rest = frames
        try:
            message = wire.opened(rest, self._decoder)
        except TransferError as error:
            self._corrupt += 1
            self._refuse(owner, error.reason, error.message)
            return
        if isinstance(message, wire.Greet):
            self._greet(owner, message)
        elif owner in self._peers:
            self._serve(owner, message)
        elif not isinstance(message, wire.Leave):  # with that a receiver answers its refusal
            self._refuse(owner, Reason.MISMATCH, "no greeting came before the first message")

    def turn(self) -> None:
        """After every wait (`Work`)."""
        self._desk.expire()
        if self._desk.admit():
            self._loop.soon()

    def ended(self, error: Exception | None) -> None:
        """The thread ends (`Work`)."""
        why = TransferError(Reason.CANCELLED, "the sender is closed", rank=self._rank)
        if error is not None:
            why = TransferError(Reason.EXCEPTION, f"the sending thread failed: {error!r}", rank=self._rank)
        self._desk.close(why)
        for owner in self._peers:
            self._say(owner, wire.Bye(why.reason, why.message), ())
        self._memory.close()

    def _serve(self, owner: bytes, message: wire.ToSender) -> None:
        match message:
            case wire.Fetch():
                self._desk.fetch(owner, message)
            case wire.Done():
                self._desk.done(owner, message)
            case wire.Beat():
                self._desk.beat(owner, message)
            case wire.Cancel():
                self._desk.cancel(owner, message, self._peers[owner].rank)
            case wire.Leave():
                self._drop(owner, Reason.CANCELLED, "the receiver is closed")
            case _:
                raise TypeError(f"{type(message).__name__} is not served here")

    def _greet(self, owner: bytes, said: wire.Greet) -> None:
        if said.protocol != wire.PROTOCOL:
            difference = f"protocol is {wire.PROTOCOL} here and {said.protocol} there"
        else:
            difference = self._layout.difference(said.layout)
        if difference or said.layout_sha256 != self._layout.digest:
            self._refuse(owner, Reason.MISMATCH, difference or "the digests of one layout differ")
            return
        if owner not in self._peers and not self._admitted(owner, said):
            return
        self._say(
            owner,
            wire.Welcome(
                self._rank,
                this_host(),
                os.getpid(),
                self._limits.lease_seconds,
                self._layout.digest,
                self._memory.region,
            ),
            (),
        )

    def _admitted(self, owner: bytes, said: wire.Greet) -> bool:
        try:
            process = watch(said.host, said.pid)
        except ProcessLookupError:
            return False
        self._peers[owner] = _Peer(said.rank, process)
        if process is not None:
            self._loop.watch(process, lambda: self._drop(owner, Reason.DEAD, "the receiver's process is gone"))
        return True

    def _refuse(self, owner: bytes, reason: Reason, message: str) -> None:
        self._refused += 1
        self._say(owner, wire.Refusal(self._rank, reason, message), ())
        self._drop(owner, reason, message)

    def _drop(self, owner: bytes, reason: Reason, message: str) -> None:
        peer = self._peers.pop(owner, None)
        if peer is None:
            return
        if peer.process is not None:
            self._loop.unwatch(peer.process)
        self._desk.drop(owner, reason, message, peer.rank)

    def _say(self, owner: bytes, message: wire.ToReceiver, beside: Sequence[memoryview]) -> bool:
        return self._loop.send([owner, *wire.sealed(message), *beside])


def _bound(address: str) -> zmq.Socket[bytes]:
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # else a message to a receiver that is gone vanishes in silence
    socket.setsockopt(zmq.SNDHWM, 0)
    try:
        socket.bind(address)
    except zmq.ZMQError as error:
        socket.close(0)
        raise UserError(f"{address}: {error.strerror}", where="address", fix="take another one") from None
    return socket
