from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from proctor.transfer.kv.limits import Limits
from proctor.transfer.kv.receiver import Receiver
from proctor.transfer.kv.sender import Sender
from tests.transfer.kv.samples import LAYOUT, Clock

SMALL = Limits(slots=8, slot_bytes=1024, queue_blocks=4)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/kv"


@pytest.fixture
def sender(address: str, clock: Clock) -> Iterator[Sender]:
    with Sender(address, LAYOUT, SMALL, clock=clock) as sender:
        yield sender


@pytest.fixture
def connect(sender: Sender) -> Iterator[Callable[..., Receiver]]:
    """Makes receivers, which are closed at the end."""
    with ExitStack() as stack:

        def make(**options: Any) -> Receiver:
            return stack.enter_context(Receiver(sender.address, options.pop("layout", LAYOUT), **options))

        yield make


@pytest.fixture(params=["memory", "beside"])
def receiver(connect: Callable[..., Receiver], request: pytest.FixtureRequest) -> Receiver:
    return connect(way=request.param)
