"""Planted faults that a test survives; those that end or freeze the process are tested under the supervisor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from proctor.engines import EngineConfig, Fault, IterFeed
from proctor.engines.faults import FaultyEngine, claim
from proctor.engines.registry import make_engine
from proctor.rows import ErrorKind, Request, Response


def run(*faults: Fault, rows: int = 20, state: str = "", batch_size: int = 4) -> list[Response]:
    engine = make_engine(EngineConfig("scripted", batch_size=batch_size, faults=faults, fault_state=state))
    engine.check()
    engine.load()
    responses = list(engine.stream(IterFeed(Request(row, ()) for row in range(rows)), lambda tokens: None))
    engine.close()
    return responses


def test_engines_are_wrapped_only_for_faults() -> None:
    assert not isinstance(make_engine(EngineConfig("scripted")), FaultyEngine)
    assert isinstance(make_engine(EngineConfig("scripted", faults=(Fault("exit", rows=(1,)),))), FaultyEngine)


@pytest.mark.parametrize(("kind", "error"), [("raise", RuntimeError), ("oom", MemoryError)])
def test_an_exception_comes_out_of_the_stream(kind: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="at row 6"):
        run(Fault(kind, rows=(6,)))


def test_rows_are_chosen_by_remainder() -> None:
    responses = run(Fault("blank", every=5, below=2))
    assert [response.id for response in responses if response.text == ""] == [0, 1, 5, 6, 10, 11, 15, 16]
    assert len(responses) == 20


def test_a_rejected_row_is_a_failure_of_its_own() -> None:
    responses = run(Fault("reject", rows=(3, 4)))
    failed = [response for response in responses if response.failure is not None]
    assert [response.id for response in failed] == [3, 4]
    assert all(response.failure and response.failure.kind is ErrorKind.INFER_REJECTED for response in failed)


def test_a_late_answer_is_late_and_right() -> None:
    began = time.monotonic()
    responses = run(Fault("delay", rows=(2,), seconds=0.1))
    assert time.monotonic() - began >= 0.1
    assert [response.text for response in responses] == [f"answer {row}" for row in range(20)]


def test_times_count_across_engines(tmp_path: Path) -> None:
    fault = Fault("raise", rows=(6, 7), times=2)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            run(fault, state=str(tmp_path))
    assert len(run(fault, state=str(tmp_path))) == 20
    other = Fault("raise", rows=(6,), times=1)
    with pytest.raises(RuntimeError):
        run(other, state=str(tmp_path))


def test_times_need_a_place_to_count() -> None:
    with pytest.raises(ValueError, match="fault_state"):
        make_engine(EngineConfig("scripted", faults=(Fault("raise", rows=(1,), times=1),)))


def test_a_turn_is_taken_once(tmp_path: Path) -> None:
    won: list[bool] = []
    threads = [threading.Thread(target=lambda: won.append(claim(str(tmp_path), "fault", 5))) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won.count(True) == 5


@pytest.mark.parametrize(("kind", "status"), [("crash", -signal.SIGSEGV), ("exit", 3)])
def test_a_fault_may_end_the_process(kind: str, status: int) -> None:
    script = (
        "from proctor.engines import EngineConfig, Fault, IterFeed\n"
        "from proctor.engines.registry import make_engine\n"
        "from proctor.rows import Request\n"
        f"engine = make_engine(EngineConfig('scripted', batch_size=1, faults=(Fault({kind!r}, rows=(2,)),)))\n"
        "for response in engine.stream(IterFeed(Request(row, ()) for row in range(5)), print): pass\n"
    )
    source = Path(__file__).parents[2] / "src"
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": str(source)}, capture_output=True, check=False
    )
    assert done.returncode == status
    assert done.stdout.split() == [b"2", b"2"]
