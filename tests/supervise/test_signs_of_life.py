from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from proctor.engines import EngineConfig
from tests.engines.chat_server import ChatServer, completion
from tests.supervise.helpers import Supervised


@pytest.mark.slow
def test_waiting_for_a_slow_server_is_no_stall(supervise: Callable[..., Supervised]):
    """The reply takes longer than the stall deadline; the engine bounds that wait itself and says that it lives."""

    def late(body: object, seen: int) -> tuple[int, dict[str, str], bytes]:
        time.sleep(3)
        return completion()

    with ChatServer(answer=late) as server:
        options = {"base_url": server.url, "timeout_seconds": 20.0, "max_retries": 0}
        engine = supervise(EngineConfig("openai", "some-model", batch_size=2, options=options), stall_seconds=1.5)
        found = engine.answers([1, 2])
    assert [found[row].text for row in (1, 2)] == ["fine", "fine"]
    assert engine.supervisor.counters.restarts == 0
