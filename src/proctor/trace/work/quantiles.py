"""Quantiles of durations from how often each came: exact, or within 0.4 % where durations had to share buckets.

Distinct durations are counted one by one. Where there would be too many, as with a clock that ticks in nanoseconds,
they go into buckets. A bucket is never wider than 1/256 of the durations in it, and below 1,024 ns each duration has
its own. Each counts its durations and keeps their least and greatest, so that a clock that ticks every 32 ns, as on
Hopper, gives exact quantiles up to 8 microseconds, and a bucket in which all durations are the same at any length.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import accumulate
from operator import mul
from typing import NamedTuple

_EXACT_BITS = 10
_BUCKETS_A_STEP = 768
_STEPS = 26
BUCKET_BITS = 15
"""Every bucket's number is below ``1 << BUCKET_BITS``, for every duration below ``2**62`` ns."""


def bucket_of(duration: int) -> int:
    """The bucket of a duration in ns, 0 or more. Numbers of buckets grow with the durations in them.

    Durations from ``1024 * 4**(k - 1)`` to ``1024 * 4**k`` share buckets of ``4**k`` ns, 768 of them.
    """
    step = max(0, (duration.bit_length() - _EXACT_BITS + 1) // 2)
    return _BUCKETS_A_STEP * step + (duration >> 2 * step)


def bucket_sql(duration: str) -> str:
    """`bucket_of` as an SQL expression over the name of a column."""
    cases = [f"WHEN {duration} < {1 << _EXACT_BITS} THEN {duration}"]
    cases += [
        f"WHEN {duration} < {1 << _EXACT_BITS + 2 * step} THEN {_BUCKETS_A_STEP * step} + ({duration} >> {2 * step})"
        for step in range(1, _STEPS)
    ]
    return f"CASE {' '.join(cases)} ELSE {_BUCKETS_A_STEP * _STEPS} + ({duration} >> {2 * _STEPS}) END"


class Quantile(NamedTuple):
    """A quantile in ns: `value`, which is off by at most `error`; 0: exact."""

    value: float
    error: int


class Histogram:
    """Durations and how often each came; by bucket where there are too many of them. Count and sum are exact."""

    def __init__(self, counts: dict[int, int] | None = None) -> None:
        self._counts = counts or {}
        self._buckets: dict[int, list[int]] = {}
        self._steps: tuple[list[int], list[int]] | None = None
        self.count = sum(self._counts.values())
        self.total = sum(map(mul, self._counts, self._counts.values()))

    def add(self, duration: int, count: int) -> None:
        """Adds `count` launches of one duration."""
        self._counts[duration] = self._counts.get(duration, 0) + count
        self.count += count
        self.total += count * duration

    def add_bucket(self, bucket: int, count: int, total: int, least: int, most: int) -> None:
        """Adds `count` durations of one bucket, whose sum is `total`. The same bucket may come again."""
        self.count += count
        self.total += total
        self._put(bucket, count, least, most)

    def merge(self, other: Histogram) -> None:
        """Adds all that `other` has, which stays as it is."""
        self.count += other.count
        self.total += other.total
        if not self._counts:
            self._counts = other._counts.copy()
        else:
            for duration, count in other._counts.items():
                self._counts[duration] = self._counts.get(duration, 0) + count
        for bucket, (count, least, most) in other._buckets.items():
            self._put(bucket, count, least, most)

    def coarsen(self) -> None:
        """Puts all durations into buckets: memory is bounded from here on, and quantiles are within 0.4 %."""
        for duration, count in self._counts.items():
            self._put(bucket_of(duration), count, duration, duration)
        self._counts = {}

    @property
    def distinct(self) -> int:
        """Durations that are kept one by one."""
        return len(self._counts)

    @property
    def least(self) -> int:
        """The shortest of them; 0 of none."""
        return min((*self._counts, *(least for _, least, _ in self._buckets.values())), default=0)

    @property
    def most(self) -> int:
        """The longest of them; 0 of none."""
        return max((*self._counts, *(most for _, _, most in self._buckets.values())), default=0)

    def median(self) -> Quantile:
        """The middle duration; the mean of the two middle ones where their number is even."""
        low, high = self._ranked(((self.count - 1) // 2, self.count // 2))
        return Quantile((low.value + high.value) / 2, max(low.error, high.error))

    def quantile(self, share: float) -> Quantile:
        """The least duration that at least `share` of all do not exceed (nearest rank)."""
        rank = max(0, math.ceil(share * self.count - 1e-9) - 1)
        return self._ranked((rank,))[0]

    def _put(self, bucket: int, count: int, least: int, most: int) -> None:
        known = self._buckets.get(bucket)
        if known is None:
            self._buckets[bucket] = [count, least, most]
        else:
            known[0] += count
            known[1] = min(known[1], least)
            known[2] = max(known[2], most)

    def _ranked(self, ranks: tuple[int, ...]) -> list[Quantile]:
        """The durations with these ranks, counted from 0, in rising order."""
        if not self.count:
            return [Quantile(0, 0)] * len(ranks)
        if self._buckets and self._counts:
            self.coarsen()
        return self._by_bucket(ranks) if self._buckets else self._exactly(ranks)

    def _exactly(self, ranks: tuple[int, ...]) -> list[Quantile]:
        if self._steps is None or self._steps[1][-1] != self.count:
            durations = sorted(self._counts)
            self._steps = durations, list(accumulate(map(self._counts.__getitem__, durations)))
        durations, reached = self._steps
        return [Quantile(durations[bisect_right(reached, rank)], 0) for rank in ranks]

    def _by_bucket(self, ranks: tuple[int, ...]) -> list[Quantile]:
        found: list[Quantile] = []
        before = 0
        for bucket in sorted(self._buckets):
            count, least, most = self._buckets[bucket]
            while len(found) < len(ranks) and ranks[len(found)] < before + count:
                found.append(_within(ranks[len(found)] - before, count, least, most))
            before += count
        return found


def _within(rank: int, count: int, least: int, most: int) -> Quantile:
    """The duration at `rank` of a bucket's `count`: the first and the last are known, between them a straight line."""
    if rank == 0 or least == most:
        return Quantile(least, 0)
    if rank == count - 1:
        return Quantile(most, 0)
    value = least + (most - least) * rank / (count - 1)
    return Quantile(value, math.ceil(max(value - least, most - value)))
