from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from proctor.engines import EngineConfig
from proctor.rows import ErrorKind
from tests.engines.chat_server import ChatServer, completion
from tests.supervise.helpers import Supervised, scripted


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


@pytest.mark.slow
def test_compiling_at_work_is_no_stall_but_has_a_limit_too(supervise: Callable[..., Supervised], tmp_path: Path):
    """Row 1 compiles for longer than the stall deadline, row 3 for longer than an engine may take to load."""
    config = scripted(tmp_path, compiles={"1": 2.5, "3": 600.0})
    engine = supervise(config, stall_seconds=1.0, load_seconds=10.0)
    assert engine.answers([1, 2])[1].text == "answer 1"
    assert engine.supervisor.counters.stalls == 0
    failure = engine.answers([3])[3].failure
    assert failure is not None
    assert failure.kind == ErrorKind.INFER_STALLED
    assert "no progress for 10 s" in failure.message
