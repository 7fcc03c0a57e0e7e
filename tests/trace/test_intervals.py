"""Unions of intervals against a grid on which every nanosecond is looked at."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.trace.work.intervals import Coverage, clipped, common, covered, length, merged, union_length, without

TIMES = st.integers(0, 60)
INTERVALS = st.lists(st.tuples(TIMES, TIMES), max_size=25)


def points(intervals: list[tuple[int, int]]) -> set[int]:
    """Every nanosecond that an interval holds."""
    return {t for start, end in intervals for t in range(start, end)}


@given(INTERVALS)
def test_union_counts_each_nanosecond_once(intervals: list[tuple[int, int]]) -> None:
    assert union_length(intervals) == len(points(intervals))


@given(INTERVALS)
def test_merged_are_disjoint_ordered_and_the_same_points(intervals: list[tuple[int, int]]) -> None:
    found = list(merged(sorted(intervals)))
    assert points(found) == points(intervals)
    assert all(end > start for start, end in found)
    assert all(before[1] < after[0] for before, after in pairwise(found))


@given(INTERVALS, INTERVALS)
def test_common_and_without_split_the_first(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    first, second = list(merged(sorted(one))), list(merged(sorted(other)))
    assert points(list(common(first, second))) == points(one) & points(other)
    assert points(list(without(first, second))) == points(one) - points(other)
    assert length(common(first, second)) + length(without(first, second)) == length(first)


@given(INTERVALS, TIMES, TIMES)
def test_clipped_keeps_what_lies_in_the_window(intervals: list[tuple[int, int]], since: int, until: int) -> None:
    assert points(list(clipped(intervals, since, until))) == {t for t in points(intervals) if since <= t < until}


@given(st.lists(st.tuples(TIMES, TIMES, st.integers(0, 2)), max_size=25))
def test_coverage_says_which_kinds_ran_at_each_moment(rows: list[tuple[int, int, int]]) -> None:
    coverage = Coverage(kinds=3)
    for start, end, kind in sorted(rows):
        coverage.add(start, end, kind)
    found = coverage.close()
    kinds = [points([(start, end) for start, end, kind in rows if kind == wanted]) for wanted in range(3)]
    expected: dict[int, int] = {}
    for t in set().union(*kinds):
        mask = sum(1 << kind for kind in range(3) if t in kinds[kind])
        expected[mask] = expected.get(mask, 0) + 1
    assert found == expected
    assert covered(found, [0, 1]) == len(kinds[0] & kinds[1])
    assert covered(found, [2]) == len(kinds[2])


def test_what_is_out_of_order_is_refused() -> None:
    with pytest.raises(ValueError, match="out of order"):
        list(merged([(5, 6), (4, 9)]))
    coverage = Coverage(kinds=1)
    coverage.add(5, 6, 0)
    with pytest.raises(ValueError, match="out of order"):
        coverage.add(4, 9, 0)


def test_nothing_takes_no_time() -> None:
    assert union_length([]) == 0
    assert Coverage(kinds=2).close() == {}
