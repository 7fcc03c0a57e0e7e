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


@pytest.fixture(autouse=True)
def cache_of_its_own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's cache."""
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path_factory.mktemp("cache")))
