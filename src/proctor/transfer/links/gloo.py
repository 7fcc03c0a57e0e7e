"""Broadcasts of gloo: the host's memory, to receivers on any machines.

What gloo does by itself (torch 2.13), and what keeps it from harm here:

- Calls are matched by their order alone: a skipped one, two threads, another order, another dtype give wrong bytes in
  silence. Here one thread of this link makes every call, each moves uint8, and both sides cut buckets by one manifest.
- A receiver with a smaller buffer is killed by SIGABRT: lengths come from the frame that both sides have compared.
- Nothing says who is late. A roll call does before the group is made, and the control channel does afterwards.
- A call that waits cannot be interrupted. It ends at its timeout, or when the other side closes its group; whoever
  waits for it here stops waiting when the control channel says so.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple, final

import torch.distributed as dist
from typing_extensions import override

from proctor.transfer.control import Channel
from proctor.transfer.devices.base import Event, deadline_of
from proctor.transfer.devices.cpu import HostEvent
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.links.ends import PublishingEnd, ReceivingEnd
from proctor.transfer.links.host import host_bytes
from proctor.transfer.links.rendezvous import roll_call
from proctor.transfer.owner import Owner
from proctor.transfer.patience import patiently
from proctor.transfer.slots import Held

if TYPE_CHECKING:
    import torch

MARGIN_SECONDS = 5.0
"""How much longer than a call may take its thread is waited for."""


class _Order(NamedTuple):
    buffer: torch.Tensor
    over: HostEvent


@final
class GlooGroup:
    """One side of a group, and the one thread that uses it.

    Args:
        store: gives the store where the sides meet; called in the thread.
        rank: of this side; 0 is the publisher, from whom everything comes.
        names: of all sides, in the order of their ranks.
        host: address of this machine that the others can reach.
        patience: seconds that one call takes at most.
    """

    def __init__(
        self, store: Callable[[], dist.Store], rank: int, names: tuple[str, ...], host: str, patience: float
    ) -> None:
        self._store, self._rank, self._names, self._host = store, rank, names, host
        self._patience = patience
        self._busy = 0.0
        self._failed: TransferError | None = None
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"proctor-gloo-{rank}", daemon=True)
        self._thread.start()

    def broadcast(self, buffer: torch.Tensor) -> HostEvent:
        """The next broadcast: out of `buffer` on the publisher, into it elsewhere; all of it, uint8.

        Raises:
            TransferError: the group has failed before.
        """
        if self._failed is not None:
            raise self._failed
        over = HostEvent(f"a broadcast of {len(host_bytes(buffer))} bytes")
        self._orders.put(_Order(buffer, over))
        return over

    def busy_seconds(self) -> float:
        """See `proctor.transfer.pipeline.Timed`."""
        return self._busy

    def close(self) -> None:
        """Fails what still waits, and ends the thread; a call that hangs may keep it until its timeout."""
        self._failed = self._failed or TransferError(Reason.CANCELLED, "the group is closed")
        self._orders.put(None)
        self._thread.join(self._patience + MARGIN_SECONDS)

    def _work(self) -> None:
        group: dist.ProcessGroupGloo | None = None
        while (order := self._orders.get()) is not None:
            start = time.perf_counter()
            try:
                self._raise()
                group = group or self._made()
                self._carry(group, order.buffer)
                self._busy += time.perf_counter() - start
                order.over.set()
            except Exception as error:
                self._failed = self._failed or _told(error)
                order.over.fail(self._failed)
                group = None  # closes it: calls of the other sides end now, and not at their timeouts

    def _carry(self, group: dist.ProcessGroupGloo, buffer: torch.Tensor) -> None:
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor, options.timeout = 0, 0, timedelta(seconds=self._patience)
        group.broadcast([buffer], options).wait()

    def _made(self) -> dist.ProcessGroupGloo:
        until = time.monotonic() + self._patience
        store = self._store()
        patiently(lambda step: roll_call(store, self._rank, self._names, step), until, self._raise)
        options = dist.ProcessGroupGloo._Options()
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=self._host)]
        options._timeout = timedelta(seconds=self._patience)
        options._threads = 1
        return dist.ProcessGroupGloo(store, self._rank, len(self._names), options)

    def _raise(self) -> None:
        if self._failed is not None:
            raise self._failed


@final
class GlooOutlet(PublishingEnd):
    """The publisher's end, for one epoch."""

    def __init__(self, group: GlooGroup) -> None:
        self._group, self._owner = group, Owner("the gloo link")

    @override
    def send(self, held: Held, nbytes: int) -> Event:
        self._owner.check()
        over = self._group.broadcast(held.part(nbytes))
        held.until(over)
        return over

    def busy_seconds(self) -> float:
        """See `proctor.transfer.pipeline.Timed`."""
        return self._group.busy_seconds()

    @override
    def close(self) -> None:
        self._group.close()


@final
class GlooInlet(ReceivingEnd):
    """A receiver's end. The control channel is watched while a broadcast is waited for."""

    def __init__(self, group: GlooGroup, channel: Channel) -> None:
        self._group, self._channel = group, channel

    @override
    def receive(self, held: Held, nbytes: int, deadline: float | None = None) -> None:
        over = self._group.broadcast(held.part(nbytes))
        held.until(over)
        patiently(over.wait, deadline_of(deadline), self._channel.watch)

    @override
    def close(self) -> None:
        self._group.close()


def _told(error: Exception) -> TransferError:
    if isinstance(error, TransferError):
        return error.with_traceback(None)  # its frames would keep the store open
    text = str(error).splitlines()[0].rpartition("] ")[2] if str(error) else type(error).__name__
    reason = Reason.LATE if "imed out" in text else Reason.DEAD
    return TransferError(reason, f"gloo: {text}")
