"""vLLM's own processes, killed and stopped beside a front end that lives and would wait for them for ever."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from proctor.rows import Response
from proctor.supervise.warden import mapped_segments
from tests.engines.conftest import trained_model, vllm_python
from tests.engines.in_vllm import vllm_config
from tests.engines.tiny import ask_scene
from tests.supervise.helpers import Supervised, process_gone, wait_until

__all__ = ["trained_model", "vllm_python"]

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(900)]
STALL_SECONDS = 40.0
ROWS = 200


def processes(one: Supervised) -> dict[str, int]:
    """The engine's processes by name, the front end as ``python``."""
    engine = one.supervisor._loop.engine
    assert engine is not None
    return {psutil.Process(pid).name(): pid for pid in reversed(engine.members())}


def test_an_engine_core_that_is_killed_or_hangs_costs_no_row(trained_model: Path, vllm_python: Path, tmp_path: Path):
    config = vllm_config(trained_model, multiprocessing=True)
    one = Supervised(
        config, tmp_path, load_seconds=300.0, stall_seconds=STALL_SECONDS, window=16, python=str(vllm_python)
    )
    try:
        futures = {row: one.supervisor.submit(ask_scene(row, max_tokens=24)) for row in range(ROWS)}
        futures[5].result(timeout=300)
        first = processes(one)
        assert {"VLLM::EngineCore", "VLLM::Worker"} <= set(first)
        segments = mapped_segments(first.values())
        assert left_behind(segments)
        core = first["VLLM::EngineCore"]
        os.kill(core, signal.SIGKILL)
        crashed = one.wait_for("engine.crashed", seconds=STALL_SECONDS / 2)
        assert crashed.message.startswith(f"EngineCore (process {core}) died by SIGKILL")
        assert crashed.data == {"signal": "SIGKILL"}
        assert all(map(process_gone, first.values()))
        assert not left_behind(segments)

        wait_until(lambda: one.kinds().count("engine.loaded") == 2, seconds=300)
        second = processes(one)
        segments = mapped_segments(second.values())
        os.kill(second["VLLM::EngineCore"], signal.SIGSTOP)
        stalled = one.wait_for("engine.stalled", seconds=STALL_SECONDS + 60)
        assert all(map(process_gone, second.values()))
        assert not left_behind(segments)
        check_dump(Path(str(stalled.data["dump"])).read_text(), second)

        responses = {row: future.result(timeout=300) for row, future in futures.items()}
        check_answers(responses)
        assert (one.supervisor.counters.crashes, one.supervisor.counters.stalls) == (1, 1)
        segments = mapped_segments(processes(one).values())
    finally:
        one.supervisor.close()
    assert not left_behind(segments)


def left_behind(segments: set[int]) -> list[str]:
    return [entry.name for entry in os.scandir("/dev/shm") if entry.inode() in segments]


def check_answers(responses: dict[int, Response]) -> None:
    assert sorted(responses) == list(range(ROWS))
    assert {row: response.failure for row, response in responses.items() if response.failure} == {}
    assert all("; waypoints" in (response.text or "") for response in responses.values())


def check_dump(text: str, processes: dict[str, int]) -> None:
    for name in ("python", "VLLM::EngineCore", "VLLM::Worker"):
        stacks = text.split(f"Native stacks of process {processes[name]}:\n")[1].split("Native stacks of process")[0]
        assert "(Python)" in stacks
        assert "(C)" in stacks
    core = text.split(f"Native stacks of process {processes['VLLM::EngineCore']}:\n")[1]
    assert "in run_busy_loop" in core.split("Native stacks of process")[0]
    assert f"  {processes['VLLM::EngineCore']}/{processes['VLLM::EngineCore']} VLLM::EngineCor: T (stopped)" in text
