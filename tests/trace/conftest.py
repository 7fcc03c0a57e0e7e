"""Where real captures are: outside the project, since they are others' files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SAMPLES = Path(os.environ.get("PROCTOR_SAMPLES", Path(__file__).parents[3] / "shared" / "samples"))


@pytest.fixture(scope="session")
def samples() -> Path:
    """The directory of real captures (see docs/contributing.md); tests that need it skip where it is absent."""
    if not SAMPLES.is_dir():
        pytest.skip(f"no real captures at {SAMPLES}: set PROCTOR_SAMPLES")
    return SAMPLES
