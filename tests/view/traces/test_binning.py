"""Bins of a window: what is merged is still all there."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from proctor.view.traces.binning import binned, edges_of, inside

TIMES = st.integers(0, 2_000) | st.integers(-(1 << 60), 1 << 60)
EVENTS = st.lists(st.tuples(TIMES, TIMES).map(sorted), max_size=40)
WINDOWS = st.tuples(TIMES, st.integers(200, 1 << 60))


@given(EVENTS, WINDOWS, st.integers(1, 50))
def test_nothing_is_lost(events: list[list[int]], window: tuple[int, int], bins: int) -> None:
    begin, end = window[0], window[0] + window[1]
    starts, ends = (np.array([pair[side] for pair in events], np.int64) for side in (0, 1))
    places = inside(starts, ends, begin, end)
    found = binned(starts[places], ends[places], edges_of(begin, end, bins))
    clipped = [max(0, min(last, end) - max(first, begin)) for first, last in events]
    assert int(found.counts.sum()) == len(places)
    assert sum(found.covered.tolist()) == sum(clipped)
    assert min(found.covered.tolist()) >= 0
    assert {at for at, length in enumerate(clipped) if length} <= set(places.tolist())


@given(EVENTS, st.integers(0, 1_500), st.integers(200, 900), st.integers(1, 30))
def test_each_bin_has_what_lies_in_it(events: list[list[int]], begin: int, length: int, bins: int) -> None:
    starts, ends = (np.array([pair[side] for pair in events], np.int64) for side in (0, 1))
    edges = edges_of(begin, begin + length, bins).tolist()
    places = inside(starts, ends, begin, begin + length)
    found = binned(starts[places], ends[places], np.array(edges, np.int64))
    for at, (low, high) in enumerate(pairwise(edges)):
        assert found.covered[at] == sum(max(0, min(last, high) - max(first, low)) for first, last in events)


def test_a_moment_belongs_to_where_it_begins() -> None:
    moments = np.array([0, 10, 20], np.int64)
    assert inside(moments, moments, 10, 20).tolist() == [1]
    assert binned(moments[1:2], moments[1:2], edges_of(10, 20, 5)).counts.tolist() == [1, 0, 0, 0, 0]
    assert edges_of(0, 10, 3).tolist() == [0, 3, 6, 10]
