"""What tests of fleets share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fleet.staged import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """A fleet of three units of which two fit at once."""
    return Stage(tmp_path)
