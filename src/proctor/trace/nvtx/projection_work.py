"""Sums and unions of GPU work, from operations given in order of time."""

from __future__ import annotations


class Work:
    """What ran on GPUs: counted, added up, and as a union per device. Memory does not grow with the operations.

    Attributes:
        operations: how many ran.
        kernels: how many of them are kernels.
        sum: their durations added up, ns.
        first: the first start, or None.
        last: the last end, or None.
    """

    __slots__ = ("_reach", "busy", "first", "kernels", "last", "operations", "sum")

    def __init__(self) -> None:
        self.operations = self.kernels = self.sum = self.busy = 0
        self.first: int | None = None
        self.last: int | None = None
        self._reach: dict[object, int] = {}

    def add(self, place: object, start: int, end: int, *, kernel: bool) -> None:
        """Adds an operation on one device; the starts on each device must not go back in time."""
        self.operations += 1
        self.kernels += kernel
        self.sum += max(0, end - start)
        if self.first is None or start < self.first:
            self.first = start
        if self.last is None or end > self.last:
            self.last = end
        reach = self._reach.get(place, start)
        if end > reach:
            self.busy += end - max(start, reach)
            self._reach[place] = end
