from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from proctor.transfer.links.shm import ShmRing


@pytest.fixture
def ring() -> Iterator[Callable[..., ShmRing]]:
    made: list[ShmRing] = []

    def make(*names: str, seconds: float = 20.0) -> ShmRing:
        made.append(ShmRing(names or ("r0",), seconds))
        return made[-1]

    yield make
    for one in made:
        one.close()
