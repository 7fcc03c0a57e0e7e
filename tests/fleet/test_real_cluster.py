"""A fleet on a real cluster with a real job server, through everything that can go wrong with both."""

from __future__ import annotations

import os

import pytest

from benchmarks.drill import drill
from benchmarks.drill_cells import ENGINES
from benchmarks.fleet import faults_of
from proctor.fleet import words

CELLS = int(os.environ.get("PROCTOR_FLEET_CELLS", "8"))
ENGINE = next(kind for kind in ENGINES if kind == os.environ.get("PROCTOR_FLEET_ENGINE", "scripted"))


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(1800 + 60 * CELLS)
def test_every_cell_is_complete_and_none_ran_twice_at_once() -> None:
    """One job hangs, one never starts, the watcher and the head are killed and started again, a node is removed."""
    found = drill(CELLS, ENGINE, seconds=1500.0 + 60 * CELLS)
    assert faults_of(found) == []
    assert found.events[words.UNIT_ENDED] >= CELLS
    assert words.UNIT_GIVEN_UP not in found.events
