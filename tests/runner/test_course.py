"""The loop as pure logic: a simulated stream that loses blocks, workers and drivers at any moment."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from proctor.runner.course import Course, Sweep, Swept, smaller
from proctor.runner.trail import CRASHES, Trail

TASK_TRIES = 3
STAGES = list(CRASHES)


@dataclass
class World:
    """A run's rows, those that kill a stage's worker, and accidents: a block each, counted over the whole run.

    Attributes:
        lost: blocks whose worker dies three times for no fault of their rows.
        unheard: blocks that are written, and whose tally never reaches the driver.
        failed: sweeps (counted over the run) that the stream ends with an error after their first block.
        killed: sweeps that end with the driver: the next driver starts a course of its own.
    """

    rows: int
    block_rows: int
    killers: dict[int, str] = field(default_factory=dict)
    lost: frozenset[int] = frozenset()
    unheard: frozenset[int] = frozenset()
    failed: frozenset[int] = frozenset()
    killed: frozenset[int] = frozenset()
    records: dict[int, list[str]] = field(default_factory=dict)
    blocks: int = 0
    sweeps: int = 0

    @property
    def left(self) -> BitMap64:
        return BitMap64(range(self.rows)) - BitMap64(self.records)

    def drive(self, tries: int = 3) -> None:
        """One driver, from its start to its end."""
        course, trail, todo = Course("ck", self.block_rows, tries), Trail(), self.left
        while todo:
            sweep = course.sweep
            self.sweeps += 1
            swept = self._sweep(sweep, trail, todo)
            if self.sweeps in self.killed:
                return
            for row, stages in trail.close(ended=not swept.failed).items():
                if row in self.left:
                    self._record(row, CRASHES[stages[-1]].value)
            left = self.left
            if not course.goes_on(todo, left, swept):
                return
            todo = left

    def _sweep(self, sweep: Sweep, trail: Trail, todo: BitMap64) -> Swept:
        returned = 0
        for number, block in enumerate(_blocks(todo, sweep.block_rows)):
            self.blocks += 1
            if number and self.sweeps in self.failed:
                return Swept(failed=True)
            if self.blocks in self.lost:
                continue
            if self._dies(block, trail, alone=sweep.alone):
                continue
            for row in block:
                self._record(row, "answered")
            if self.blocks not in self.unheard:
                returned += len(block)
        return Swept(vanished=len(todo) - returned)

    def _dies(self, block: list[int], trail: Trail, *, alone: bool) -> bool:
        guilty = [row for row in block if row in self.killers]
        for _ in range(TASK_TRIES):
            for stage in STAGES if alone else ():
                trail.enter(block[0], stage)
                if self.killers.get(block[0]) == stage:
                    break
                trail.leave(block[0])
        return bool(guilty)

    def _record(self, row: int, outcome: str) -> None:
        self.records.setdefault(row, []).append(outcome)


def _blocks(todo: BitMap64, size: int) -> Iterator[list[int]]:
    rows = list(todo)
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def outcomes(world: World) -> dict[int, list[str]]:
    return {
        row: [CRASHES[world.killers[row]].value if row in world.killers else "answered"] for row in range(world.rows)
    }


killers = st.dictionaries(st.integers(0, 299), st.sampled_from(STAGES), max_size=6)
accidents = st.frozensets(st.integers(1, 60), max_size=8)


@given(st.integers(1, 300), st.sampled_from([1, 2, 16, 64, 256]), killers)
def test_every_killer_is_named_in_few_sweeps_and_every_innocent_answered(
    rows: int, block_rows: int, killers: dict[int, str]
) -> None:
    world = World(rows, block_rows, {row: stage for row, stage in killers.items() if row < rows})
    world.drive(tries=1)
    assert world.records == outcomes(world)
    assert world.sweeps <= 1 + math.ceil(math.log(block_rows, 16))


@given(st.integers(1, 300), st.sampled_from([1, 16, 100]), killers, accidents, accidents, accidents, accidents)
def test_every_key_ends_with_one_record_whatever_happens_and_resumes_end(
    rows: int,
    block_rows: int,
    killers: dict[int, str],
    lost: frozenset[int],
    unheard: frozenset[int],
    failed: frozenset[int],
    killed: frozenset[int],
) -> None:
    own = {row: stage for row, stage in killers.items() if row < rows}
    world = World(rows, block_rows, own, lost, unheard, failed, killed)
    for _ in range(len(killed) + len(failed) + len(lost) + 1):
        world.drive()
    assert world.records == outcomes(world)


def test_blocks_that_vanish_shrink_until_rows_stand_alone() -> None:
    course, todo = Course("ck", 256, 1), BitMap64(range(1000))
    sizes = [course.sweep.block_rows]
    while course.goes_on(todo, todo, Swept(vanished=1)):
        sizes.append(course.sweep.block_rows)
    assert sizes == [256, 16, 1, 1]


def test_what_a_broken_engine_gives_back_goes_on_while_others_answer() -> None:
    course, todo = Course("ck", 256, 1), BitMap64(range(1000))
    for left, block_rows in ((300, 16), (40, 1), (3, 1), (2, 1)):
        rest = BitMap64(range(left))
        assert course.goes_on(todo, rest, Swept(sent_back=left))
        assert (course.sweep.block_rows, course.sweep.spread) == (block_rows, True)
        todo = rest
    assert not course.goes_on(todo, BitMap64(), Swept())


def test_a_broken_engine_that_gets_all_of_the_rows_uses_up_the_tries() -> None:
    course, todo = Course("ck", 256, 3), BitMap64([1])
    assert [course.goes_on(todo, todo, Swept(sent_back=1)) for _ in range(3)] == [True, True, False]


def test_a_sweep_that_answers_nothing_is_the_last() -> None:
    todo = BitMap64([1, 2])
    assert not Course("ck", 8, 3).goes_on(todo, todo, Swept())


def test_a_stream_that_fails_is_tried_again_as_it_was() -> None:
    course, todo = Course("ck", 8, 3), BitMap64([1, 2])
    assert course.goes_on(todo, todo, Swept(vanished=2, failed=True))
    assert course.sweep == Sweep("ck", 2, 8)
    assert course.goes_on(todo, todo, Swept(failed=True))
    assert not course.goes_on(todo, todo, Swept(failed=True))


@pytest.mark.parametrize("left", [BitMap64(), BitMap64([2])])
def test_nothing_follows_when_nothing_is_left_or_there_is_no_prospect(left: BitMap64) -> None:
    assert not Course("ck", 8, 3).goes_on(BitMap64([1, 2]), left, Swept(halted=bool(left)))


def test_smaller_is_never_nothing() -> None:
    assert [smaller(n) for n in (1024, 256, 16, 2, 1)] == [64, 16, 1, 1, 1]
