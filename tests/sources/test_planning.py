from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from proctor.sources.planning import Extent, plan_groups


def extents(*sizes: tuple[int, int], first: int = 0) -> list[Extent]:
    """Extents of (rows, bytes) one after the other."""
    made = []
    for rows, size in sizes:
        made.append(Extent(first, rows, size))
        first += rows
    return made


def planned(todo: set[int], shards: list[list[Extent]], max_rows: int, max_bytes: int) -> list[list[int]]:
    return [list(group.row_ids) for group in plan_groups(BitMap64(todo), shards, max_rows, max_bytes)]


def test_small_extents_share_a_group_and_large_ones_begin_their_own() -> None:
    shards = [extents((3, 3), (3, 3), (10, 10), (3, 3))]
    assert planned(set(range(19)), shards, 6, 1000) == [
        [0, 1, 2, 3, 4, 5],
        [6, 7, 8, 9, 10, 11],
        [12, 13, 14, 15],
        [16, 17, 18],
    ]


def test_bytes_bound_a_group_but_a_large_row_still_passes() -> None:
    assert planned(set(range(4)), [extents((4, 40))], 100, 20) == [[0, 1], [2, 3]]
    assert planned(set(range(3)), [extents((3, 3000))], 100, 10) == [[0], [1], [2]]


def test_no_group_spans_two_shards_and_idle_shards_are_left_out() -> None:
    shards = [extents((5, 5)), extents((5, 5), first=5), extents((5, 5), first=10), []]
    todo = BitMap64({4, 10, 11})
    groups = list(plan_groups(todo, shards, 100, 1000))
    assert [(group.shard, list(group.row_ids), group.size_bytes) for group in groups] == [(0, [4], 1), (2, [10, 11], 2)]


@given(
    shapes=st.lists(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 500)), max_size=5), max_size=4),
    max_rows=st.integers(1, 30),
    max_bytes=st.integers(1, 300),
    data=st.data(),
)
def test_every_wanted_row_is_in_one_group(
    shapes: list[list[tuple[int, int]]], max_rows: int, max_bytes: int, data: st.DataObject
) -> None:
    shards, first = [], 0
    for shape in shapes:
        shards.append(extents(*shape, first=first))
        first += sum(rows for rows, _ in shape)
    todo = data.draw(st.sets(st.integers(0, first - 1))) if first else set()
    groups = planned(todo, shards, max_rows, max_bytes)
    assert [row for group in groups for row in group] == sorted(todo)
    assert all(0 < len(group) <= max_rows for group in groups)
