"""Events in a window of time, and those too short to be drawn one by one as shares of equal bins."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from proctor.trace.timeline.lanes import Numbers


class Bins(NamedTuple):
    """Events of a window, summed up in bins.

    Attributes:
        counts: events that begin in each bin; what began before the window counts in the first.
        covered: ns of events in each bin, which is more than the bin lasts where events overlap.
    """

    counts: Numbers
    covered: Numbers


def edges_of(begin: int, end: int, bins: int) -> Numbers:
    """Where `bins` bins of a window begin, and where the last one ends; as equal as whole numbers can be."""
    return np.array([begin + (end - begin) * number // bins for number in range(bins + 1)], np.int64)


def inside(starts: Numbers, ends: Numbers, begin: int, end: int) -> Numbers:
    """Places of the events of which some part lies in a window; a moment (no length) belongs to where it begins."""
    return np.flatnonzero((starts < end) & ((ends > begin) | (starts >= begin)))


def binned(starts: Numbers, ends: Numbers, edges: Numbers) -> Bins:
    """Sums up events, all of which are `inside` the window that `edges` divide.

    Nothing is lost: `counts` sum to the number of events, and `covered` to their lengths within the window.

    The time covered up to an edge is the sum over events begun before it of (edge - start), less the same of those
    ended. These sums may exceed 64 bits and wrap; their differences, which are what is returned, do not.
    """
    begin, bins = edges[0], len(edges) - 1
    starts, ends = np.clip(starts, begin, edges[-1]) - begin, np.clip(ends, begin, edges[-1]) - begin
    at = edges - begin
    counts = np.bincount(np.clip(np.searchsorted(at, starts, "right") - 1, 0, bins - 1), minlength=bins)
    return Bins(counts.astype(np.int64), np.diff(_since(np.sort(starts), at) - _since(np.sort(ends), at)))


def _since(times: Numbers, at: Numbers) -> Numbers:
    """For each of `at` the sum of (at - time) over the times before it."""
    before = np.searchsorted(times, at, "left").astype(np.int64)
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(times)])
    return before * at - sums[before]
