from __future__ import annotations

import pytest

from proctor.runner.trail import Trail


def test_a_row_that_comes_through_leaves_no_trace() -> None:
    trail = Trail()
    for stage in ("read", "prepare", "score"):
        trail.enter(7, stage)
        trail.leave(7)
    assert trail.close(ended=True) == {}


@pytest.mark.parametrize("stage", ["read", "prepare", "score"])
def test_two_deaths_in_one_sweep_are_enough(stage: str) -> None:
    trail = Trail()
    trail.enter(7, stage)
    trail.enter(7, stage)
    assert trail.close(ended=True) == {7: [stage, stage]}


def test_a_task_that_starts_over_has_died_where_it_was() -> None:
    trail = Trail()
    for stage in ("read", "prepare"):
        trail.enter(7, stage)
        if stage == "read":
            trail.leave(7)
    trail.enter(7, "read")
    trail.leave(7)
    trail.enter(7, "prepare")
    assert trail.close(ended=True) == {7: ["prepare", "prepare"]}


def test_one_death_is_no_proof_and_is_remembered() -> None:
    trail = Trail()
    trail.enter(7, "read")
    assert trail.close(ended=True) == {}
    trail.enter(7, "read")
    assert trail.close(ended=True) == {7: ["read", "read"]}


def test_a_sweep_that_was_cut_short_accuses_nobody() -> None:
    trail = Trail()
    for _ in range(5):
        trail.enter(7, "prepare")
        assert trail.close(ended=False) == {}


def test_going_on_to_the_next_stage_is_no_death() -> None:
    trail = Trail()
    for stage in ("read", "prepare", "score"):
        trail.enter(7, stage)
    trail.leave(7)
    assert trail.close(ended=True) == {}
