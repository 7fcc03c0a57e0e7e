from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from proctor.engines import Fault
from proctor.supervise import Settings, Supervisor
from tests.leaks import descriptors
from tests.supervise.helpers import Supervised, ask, process_gone, scripted

Start = Callable[..., Supervised]


def test_close_sends_back_what_has_no_answer(supervise: Start, tmp_path: Path) -> None:
    one = supervise(scripted(tmp_path, Fault("stall", rows=(2,)), batch_size=1), window=2)
    futures = [one.supervisor.submit(ask(row)) for row in range(6)]
    assert futures[1].result(timeout=20).text == "answer 1"
    engine = one.supervisor._loop.engine
    assert engine is not None
    one.supervisor.close()
    assert process_gone(engine.pid)
    assert [future.result(timeout=0).failure is None for future in futures] == [True, True] + [False] * 4
    assert {future.result().failure.kind.value for future in futures[2:] if future.result().failure} == {"lost"}
    closed = one.event("engine.closed")
    assert (closed.count, closed.data["answered"]) == (4, 2)
    assert one.supervisor.state == "closed"
    late = one.supervisor.submit(ask(9)).result(timeout=0)
    assert late.failure is not None
    assert late.failure.kind.value == "lost"
    one.supervisor.close()


def test_an_idle_engine_may_close_by_itself(supervise: Start, tmp_path: Path) -> None:
    one = supervise(scripted(tmp_path, helpers=1))
    one.answers(range(3))
    one.supervisor.close()
    closed = one.event("engine.closed").data
    assert closed["crashes"] == 0
    peak = closed["peak_bytes"]
    assert isinstance(peak, int)
    assert 1_000_000 < peak < 10_000_000_000


def test_nothing_stays_open(tmp_path: Path) -> None:
    before = descriptors()
    one = Supervised(scripted(tmp_path, Fault("exit", rows=(2, 3))), tmp_path)
    one.answers([1])
    at_work = descriptors()
    one.answers(range(2, 8))
    assert one.supervisor.counters.restarts == 5
    assert descriptors() <= at_work
    one.supervisor.close()
    assert descriptors() <= before


def test_close_while_loading(supervise: Start, tmp_path: Path) -> None:
    one = supervise(scripted(tmp_path, load_seconds=60))
    one.wait_for("engine.started")
    future = one.supervisor.submit(ask(1))
    one.supervisor.close()
    failure = future.result(timeout=0).failure
    assert failure is not None
    assert failure.kind.value == "lost"


def test_close_without_start(tmp_path: Path) -> None:
    settings = Settings(1, 1, 1, 8, tmp_path)
    supervisor = Supervisor(scripted(tmp_path), settings, name="engine", on_event=lambda event: None)
    future = supervisor.submit(ask(1))
    supervisor.close()
    assert future.result(timeout=0).failure is not None


def test_a_fault_of_the_supervisor_itself_leaves_no_row_waiting(supervise: Start, tmp_path: Path) -> None:
    one = supervise(scripted(tmp_path, row_ms=5))
    one.answers(range(2))
    engine = one.supervisor._loop.engine
    assert engine is not None

    def fail(window: int) -> None:
        raise ZeroDivisionError("a bug")

    one.supervisor._loop.ledger.hand_out = fail  # type: ignore[assignment, method-assign]
    failure = one.supervisor.submit(ask(5)).result(timeout=20).failure
    assert failure is not None
    assert (failure.kind.value, failure.message) == ("lost", "the supervisor failed: ZeroDivisionError: a bug")
    one.wait_for("engine.closed")
    assert process_gone(engine.pid)
    assert "supervisor.failed" in one.kinds()


def test_requests_may_come_from_many_threads(supervise: Start, tmp_path: Path) -> None:
    one = supervise(scripted(tmp_path, batch_size=8), window=16)
    texts: list[str | None] = []

    def submit(first: int) -> None:
        futures = [one.supervisor.submit(ask(row)) for row in range(first, first + 100)]
        texts.extend(future.result(timeout=30).text for future in futures)

    threads = [threading.Thread(target=submit, args=(first,)) for first in range(0, 800, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(texts, key=str) == sorted((f"answer {row}" for row in range(800)), key=str)
