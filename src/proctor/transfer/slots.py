"""Buffers that cannot be reused too early: a slot owns buffer, stream, last use and generation.

The only way to a buffer is `Slot.acquire`, which waits until its last use is over; the only way to keep it is the
`Held` that comes back, which is worth nothing once it is released. So the published mistakes (the wrong event awaited,
none awaited, views that outlive their buffer) have no place to be made in; what is left raises.
"""

from __future__ import annotations

import threading
import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Self, final

from proctor.rows import UserError
from proctor.transfer.devices.base import Device, Event, Stream, deadline_of, seconds_left
from proctor.transfer.errors import Reason, TransferError

if TYPE_CHECKING:
    import torch

CAP_BYTES = 2 << 30
"""Most bytes of one ring unless told otherwise: what two buffers of the well-known code take."""


class StaleSlotError(RuntimeError):
    """A buffer is used by somebody who no longer holds it: a mistake in the program, not in the transfer."""


class OneBufferWarning(UserWarning):
    """With one buffer nothing overlaps: packing waits for sending and sending for packing."""


@final
class Slot:
    """One buffer, the stream that fills or empties it, and what its last holder did with it.

    Args:
        device: where the buffer lies.
        nbytes: its length.
        index: its place in the ring, for messages.

    Attributes:
        generation: how often it has been handed out.
    """

    def __init__(self, device: Device, nbytes: int, index: int = 0) -> None:
        self.index, self.nbytes, self.generation = index, nbytes, 0
        self._buffer = device.buffer(nbytes)
        self._stream = device.stream()
        self._uses: list[Event] = []
        self._held = False
        self._free = threading.Condition()

    def acquire(self, deadline: float | None = None) -> Held:
        """Waits until nobody holds the slot and its last use is over, and hands it out.

        Args:
            deadline: of `time.monotonic`, seconds; None is 60 s from now.

        Raises:
            TransferError: ``LATE`` at the deadline; or the error with which the last use ended. That one is raised
                once: work that has ended in an error no longer uses the buffer.
        """
        until = deadline_of(deadline)
        with self._free:
            if not self._free.wait_for(lambda: not self._held, seconds_left(until)):
                raise TransferError(Reason.LATE, f"slot {self.index} is still held at the deadline")
            self._held = True
        try:
            self._last_use_over(until)
        except BaseException:
            self._give_back(self._uses)
            raise
        self.generation += 1
        return Held(self, self.generation)

    def _last_use_over(self, deadline: float) -> None:
        while self._uses:
            use = self._uses[0]
            try:
                use.wait(deadline)
            finally:
                if use.done():
                    self._uses.pop(0)

    def _give_back(self, uses: list[Event]) -> None:
        with self._free:
            self._uses = uses
            self._held = False
            self._free.notify_all()


@final
class Held:
    """A slot in somebody's hands, of one generation.

    As a context manager it is released at the end, also after an exception.
    """

    def __init__(self, slot: Slot, generation: int) -> None:
        self._slot, self.generation = slot, generation
        self._uses: list[Event] = []
        self._released = False

    @property
    def index(self) -> int:
        """The slot's place in its ring."""
        return self._slot.index

    @property
    def buffer(self) -> torch.Tensor:
        """The whole buffer, uint8.

        Raises:
            StaleSlotError: it is no longer held.
        """
        self._check()
        return self._slot._buffer

    @property
    def stream(self) -> Stream:
        """The slot's stream: what fills or empties the buffer is enqueued here.

        Raises:
            StaleSlotError: it is no longer held.
        """
        self._check()
        return self._slot._stream

    def part(self, nbytes: int) -> torch.Tensor:
        """The first `nbytes` of the buffer.

        Raises:
            StaleSlotError: it is no longer held.
            ValueError: it has not so many.
        """
        if not 0 <= nbytes <= self._slot.nbytes:
            raise ValueError(f"slot {self.index} has {self._slot.nbytes} bytes, not {nbytes}")
        return self.buffer[:nbytes]

    def until(self, event: Event) -> None:
        """Nobody gets the slot before `event` is over. Links call it for what they do on streams of their own.

        Raises:
            StaleSlotError: it is no longer held.
        """
        self._check()
        self._uses.append(event)

    def release(self) -> None:
        """Gives the slot back. It becomes free when all that is on its stream and all `until` was told is over.

        Raises:
            StaleSlotError: it was released before.
        """
        self._check()
        self._released = True
        self._slot._give_back([*self._uses, self._slot._stream.record()])

    def _check(self) -> None:
        if self._released or self.generation != self._slot.generation:
            raise StaleSlotError(
                f"slot {self.index}: generation {self.generation} has been released, {self._slot.generation} is the "
                "newest: its buffer belongs to somebody else"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._released:
            self.release()


@final
class Ring:
    """Slots that are handed out in turns.

    Two are enough for packing to overlap sending; more gain nothing (on a paced link 2 hide 94 % of packing, 8 hide
    95 %) and cost memory, so what bounds them is a number of bytes.

    Args:
        device: where the buffers lie.
        nbytes_each: length of one buffer.
        count: how many.
        cap_bytes: most bytes of all of them.

    Raises:
        UserError: there is no slot, or they are more than `cap_bytes`.
    """

    def __init__(self, device: Device, nbytes_each: int, count: int = 2, *, cap_bytes: int = CAP_BYTES) -> None:
        if count < 1 or nbytes_each < 1:
            raise UserError(f"{count} buffers of {nbytes_each} bytes hold nothing", fix="take 2 buffers")
        if count * nbytes_each > cap_bytes:
            raise UserError(
                f"{count} buffers of {nbytes_each:,} bytes are more than {cap_bytes:,} bytes",
                fix=f"take 2 buffers of at most {cap_bytes // 2:,} bytes: more than two do not make a transfer faster",
            )
        if count == 1:
            warnings.warn("one buffer: packing and sending take turns; two overlap", OneBufferWarning, stacklevel=2)
        self.slots = tuple(Slot(device, nbytes_each, index) for index in range(count))
        self._turn = 0
        self._lock = threading.Lock()

    def next(self, deadline: float | None = None) -> Held:
        """The next slot, when it is free.

        Raises:
            TransferError: see `Slot.acquire`. The turn stays with that slot.
        """
        until = deadline_of(deadline)
        if not self._lock.acquire(timeout=seconds_left(until)):
            raise TransferError(Reason.LATE, "another thread still waits for a slot at the deadline")
        try:
            held = self.slots[self._turn].acquire(until)
            self._turn = (self._turn + 1) % len(self.slots)
            return held
        finally:
            self._lock.release()

    def drain(self, deadline: float | None = None) -> None:
        """Waits until no slot is in use any more; a transfer that returns before leaves bytes on their way.

        Raises:
            TransferError: the first delay of a slot (or the error its last use ended with); the other slots are waited
                for nevertheless.
        """
        until = deadline_of(deadline)
        first: Exception | None = None
        for slot in self.slots:
            try:
                slot.acquire(until).release()
            except Exception as error:
                first = first or error
        if first is not None:
            raise first
