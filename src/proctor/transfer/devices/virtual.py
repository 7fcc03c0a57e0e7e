"""A device for tests that does its work in the worst order that the recorded dependencies allow.

Code for a GPU that forgets a wait mostly works: the copy it did not wait for is over long before. Here nothing is over
unless somebody has waited for it, and what has a choice runs in the order that hurts, so that what is missing shows
as wrong bytes each time, on a machine without a GPU.

The orders (`Order`), whenever the host waits for an event:

- ``newest``: of the heads of all streams that may run, the one that was enqueued last, until the event is over. Two
  pieces of work that only time keeps apart are exchanged. The worst one.
- ``late``: only what the event depends on. What nobody waits for never happens.
- ``early``: everything as soon as it is enqueued, oldest first: the order in which a lazy test machine would do it.
- ``random``: anything that may run, at any time, by a seed.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import Literal, NamedTuple, final

import torch
from typing_extensions import override

from proctor.transfer.devices.base import Device, Event, Stream, deadline_of, same_length
from proctor.transfer.errors import Reason, TransferError

Order = Literal["newest", "late", "early", "random"]
POLL_SECONDS = 0.001
"""How often a wait looks at events of the host that hold the streams up."""


class Work(NamedTuple):
    """A piece of work on a stream.

    Attributes:
        number: its place among all that was enqueued on the device.
        after: the event that it stands for waiting for; None for work that does something.
        call: what it does.
    """

    number: int
    after: Event | None
    call: Callable[[], None] | None


@final
class VirtualEvent(Event):
    """Behind the first `position` pieces of work of a stream."""

    def __init__(self, stream: VirtualStream, position: int) -> None:
        self._stream, self._position = stream, position

    def over(self) -> bool:
        """Whether they have run; unlike `done` this moves nothing."""
        return self._stream.finished >= self._position

    @override
    def done(self) -> bool:
        # Time passes on a real device between two looks; here one piece of work does, and only after the look.
        device = self._stream.device
        with device.lock:
            over = self.over()
            if not over:
                device.step(self)
            return over

    @override
    def wait(self, deadline: float | None = None) -> None:
        until = deadline_of(deadline)
        device = self._stream.device
        while True:
            with device.lock:
                while not self.over() and device.step(self):
                    pass
                if self.over():
                    self._stream.raise_error(self._position)
                    return
            if time.monotonic() >= until:
                raise TransferError(Reason.LATE, "work of the virtual device is not over at the deadline")
            time.sleep(POLL_SECONDS)

    def next_work(self) -> VirtualStream | None:
        """The stream whose head has to run next for this event to come nearer; None if an event of the host does."""
        head = self._stream.head()
        if head is None or head.after is None or _over(head.after):
            return self._stream
        return head.after.next_work() if isinstance(head.after, VirtualEvent) else None


def _over(event: Event) -> bool:
    return event.over() if isinstance(event, VirtualEvent) else event.done()


@final
class VirtualStream(Stream):
    """Work in order; when it runs the device decides.

    Attributes:
        device: whose it is.
        finished: pieces of work that have run.
    """

    def __init__(self, device: VirtualDevice) -> None:
        self.device, self.finished = device, 0
        self._queue: deque[Work] = deque()
        self._failed: tuple[int, Exception] | None = None

    def head(self) -> Work | None:
        """What would run next."""
        return self._queue[0] if self._queue else None

    def may_run(self) -> bool:
        """Whether the head has nothing left to wait for."""
        head = self.head()
        return head is not None and (head.after is None or _over(head.after))

    def run_head(self) -> None:
        """Runs it. An error stays with the stream, as a CUDA error does, and what comes after it is not done."""
        work = self._queue.popleft()
        self.finished += 1
        if work.call is not None and self._failed is None:
            try:
                work.call()
            except Exception as error:
                self._failed = (self.finished, error)

    def raise_error(self, position: int) -> None:
        """Raises the error of the first `position` pieces of work, if there was one."""
        if self._failed is not None and self._failed[0] <= position:
            raise self._failed[1]

    def _enqueue(self, call: Callable[[], None] | None, after: Event | None = None) -> None:
        with self.device.lock:
            self._queue.append(Work(self.device.number(), after, call))
            self.device.enqueued()

    @override
    def wait(self, event: Event) -> None:
        self._enqueue(None, event)

    @override
    def record(self) -> Event:
        with self.device.lock:
            return VirtualEvent(self, self.finished + len(self._queue))

    @override
    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        same_length(target, source)
        self._enqueue(lambda: _copy(target, source))

    @override
    def run(self, call: Callable[[], None], *tensors: torch.Tensor) -> None:
        self._enqueue(call)

    @override
    def host(self, call: Callable[[], None]) -> None:
        self._enqueue(call)


def _copy(target: torch.Tensor, source: torch.Tensor) -> None:
    target.copy_(source)


@final
class VirtualDevice(Device):
    """See the module.

    Args:
        order: how bad the order is.
        seed: of ``random``.

    Attributes:
        caller: the stream on which the caller's own work is enqueued, the one that `ready` is about.
        lock: held while anything moves; threads may use the device at once, as a GPU.
    """

    name = "virtual"

    def __init__(self, order: Order = "newest", seed: int = 0) -> None:
        self._order, self._random = order, Random(seed)  # noqa: S311 (an order for a test)
        self._streams: list[VirtualStream] = []
        self._number = 0
        self.lock = threading.RLock()
        self.caller = self.stream()

    @override
    def buffer(self, nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8).fill_(0)

    @override
    def stream(self) -> VirtualStream:
        with self.lock:
            self._streams.append(VirtualStream(self))
            return self._streams[-1]

    @override
    def ready(self) -> Event:
        return self.caller.record()

    def finish(self) -> None:
        """Runs all that can run: what the last test left must not be taken for what it should have waited for."""
        with self.lock:
            while runnable := list(self._runnable()):
                self._choose(runnable).run_head()

    def number(self) -> int:
        """Counts work."""
        self._number += 1
        return self._number

    def enqueued(self) -> None:
        """Called after work was enqueued: two orders let some run at once."""
        while self._order == "early" or (self._order == "random" and self._random.random() < 0.5):
            runnable = list(self._runnable())
            if not runnable:
                return
            self._choose(runnable).run_head()

    def step(self, event: VirtualEvent) -> bool:
        """Lets one piece of work run because somebody waits for `event`; False if nothing can."""
        if self._order == "late":
            needed = event.next_work()
            if needed is None or not needed.may_run():
                return False
            needed.run_head()
            return True
        runnable = list(self._runnable())
        if runnable:
            self._choose(runnable).run_head()
        return bool(runnable)

    def _runnable(self) -> Iterator[VirtualStream]:
        return (stream for stream in self._streams if stream.may_run())

    def _choose(self, runnable: list[VirtualStream]) -> VirtualStream:
        if self._order == "random":
            return self._random.choice(runnable)
        by_age = sorted(runnable, key=lambda stream: stream.head().number)  # type: ignore[union-attr]
        return by_age[-1] if self._order == "newest" else by_age[0]
