from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.engines import EngineConfig
from tests.supervise.helpers import Supervised


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Callable[..., Supervised]]:
    """Starts supervised engines, and closes them after the test."""
    started: list[Supervised] = []

    def start(config: EngineConfig, **settings: Any) -> Supervised:
        started.append(Supervised(config, tmp_path, **settings))
        return started[-1]

    yield start
    for one in started:
        one.supervisor.close()
