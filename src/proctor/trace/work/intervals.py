"""Unions of time intervals: how long something ran, however many things ran at once.

An interval is ``(start, end)`` in nanoseconds and holds ``start <= t < end``; one with ``end <= start`` holds nothing.
Busy time is always the length of a union: a sum counts what ran side by side twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

Interval = tuple[int, int]


def union_length(intervals: Iterable[Interval]) -> int:
    """Nanoseconds covered by at least one of `intervals`, in any order."""
    return sum(end - start for start, end in merged(sorted(intervals)))


def merged(intervals: Iterable[Interval]) -> Iterator[Interval]:
    """The union of `intervals` as disjoint, non-touching intervals in order; memory does not grow with their number.

    Args:
        intervals: in order of their starts.

    Raises:
        ValueError: one starts before the one ahead of it.
    """
    reach: int | None = None
    begun = last = 0
    for start, end in intervals:
        if reach is not None and start < last:
            raise ValueError(f"intervals out of order: {start} after {last}")
        last = start
        if end <= start:
            continue
        if reach is None:
            begun, reach = start, end
        elif start > reach:
            yield begun, reach
            begun, reach = start, end
        else:
            reach = max(reach, end)
    if reach is not None:
        yield begun, reach


def common(first: Iterable[Interval], second: Iterable[Interval]) -> Iterator[Interval]:
    """Where both of two unions are; each as from `merged`."""
    ones, others = iter(first), iter(second)
    one, other = next(ones, None), next(others, None)
    while one is not None and other is not None:
        start, end = max(one[0], other[0]), min(one[1], other[1])
        if start < end:
            yield start, end
        if one[1] <= other[1]:
            one = next(ones, None)
        else:
            other = next(others, None)


def without(first: Iterable[Interval], second: Iterable[Interval]) -> Iterator[Interval]:
    """Where the first of two unions is and the second is not; each as from `merged`."""
    others = iter(second)
    other = next(others, None)
    for begun, end in first:
        start = begun
        while other is not None and other[1] <= start:
            other = next(others, None)
        while other is not None and other[0] < end:
            if start < other[0]:
                yield start, other[0]
            start = max(start, other[1])
            if other[1] > end:
                break
            other = next(others, None)
        if start < end:
            yield start, end


def length(intervals: Iterable[Interval]) -> int:
    """Summed length of disjoint intervals."""
    return sum(end - start for start, end in intervals)


def clipped(intervals: Iterable[Interval], since: int, until: int) -> Iterator[Interval]:
    """The parts of `intervals` within a window."""
    for start, end in intervals:
        start, end = max(start, since), min(end, until)
        if start < end:
            yield start, end


class Coverage:
    """How long each combination of kinds ran at once, from intervals given one by one in order of their starts.

    Each kind is one bit; within a kind the union counts. Memory does not grow with the number of intervals.

    >>> coverage = Coverage(kinds=2)
    >>> coverage.add(0, 10, kind=0)
    >>> coverage.add(4, 6, kind=1)
    >>> coverage.close()
    {1: 8, 3: 2}
    """

    def __init__(self, kinds: int) -> None:
        self._reach: list[int | None] = [None] * kinds
        self._now: int | None = None
        self._time: dict[int, int] = {}

    def add(self, start: int, end: int, kind: int) -> None:
        """Adds an interval of one kind.

        Raises:
            ValueError: it starts before the one ahead of it.
        """
        if self._now is None:
            self._now = start
        elif start < self._now:
            raise ValueError(f"intervals out of order: {start} after {self._now}")
        if start > self._now:
            self._advance(start)
        reach = self._reach[kind]
        if end > start and (reach is None or end > reach):
            self._reach[kind] = end

    def close(self) -> dict[int, int]:
        """Nanoseconds by combination, as a mask with bit ``1 << kind`` for each kind that ran; none for idle."""
        if open_ends := [reach for reach in self._reach if reach is not None]:
            self._advance(max(open_ends))
        return dict(sorted(self._time.items()))

    def _advance(self, until: int) -> None:
        now = self._now
        assert now is not None
        while now < until:
            mask, next_end = 0, until
            for kind, reach in enumerate(self._reach):
                if reach is not None and reach > now:
                    mask |= 1 << kind
                    next_end = min(next_end, reach)
            if mask:
                self._time[mask] = self._time.get(mask, 0) + next_end - now
            now = next_end
        self._now = until


def covered(time: dict[int, int], kinds: Sequence[int]) -> int:
    """From `Coverage.close`: nanoseconds in which every one of `kinds` ran, whatever else did."""
    wanted = sum(1 << kind for kind in kinds)
    return sum(spent for mask, spent in time.items() if mask & wanted == wanted)
