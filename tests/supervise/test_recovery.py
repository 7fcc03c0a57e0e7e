"""Real children that crash, stall and misbehave."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from proctor.engines import Fault
from tests.supervise.helpers import Supervised, ask, failures, scripted

W = 64
Start = Callable[..., Supervised]


def test_the_verdict_says_what_happened(supervise: Start, tmp_path: Path) -> None:
    one = supervise(scripted(tmp_path, Fault("crash", rows=(3,))))
    response = one.answers(range(8))[3]
    assert response.attempts == 3
    assert response.failure is not None
    assert "SIGSEGV" in response.failure.message
    assert one.kinds().count("engine.crashed") == 3
    crash = one.event("engine.crashed")
    assert (crash.engine, crash.rows, crash.count) == ("engine", tuple(range(8)), 8)
    assert crash.host
    assert crash.data == {"signal": "SIGSEGV"}
    verdict = one.event("quarantine.verdict")
    assert (verdict.rows, verdict.action) == ((3,), "infer.crashed")
    one.wait_for("quarantine.ended")
    order = [one.kinds().index(kind) for kind in ("quarantine.started", "quarantine.verdict", "quarantine.ended")]
    assert order == sorted(order)


def test_a_request_with_the_wrong_number_of_images_never_reaches_the_engine(supervise: Start, tmp_path: Path) -> None:
    one = supervise(scripted(tmp_path, answer="{n_images} images"))
    bad = ask(1, images=2)
    response = one.supervisor.submit(type(bad)(bad.id, bad.prompt, bad.images[:1])).result(timeout=20)
    assert response.failure is not None
    assert response.failure.kind.value == "infer.rejected"
    assert response.attempts == 0
    assert one.supervisor.submit(ask(2, images=2)).result(timeout=20).text == "2 images"


def test_large_requests_pass(supervise: Start, tmp_path: Path) -> None:
    one = supervise(scripted(tmp_path, batch_size=4), window=8)
    request = ask(1, images=1)
    heavy = [type(request)(row, request.prompt, (os.urandom(1 << 20),)) for row in range(24)]
    assert {response.text for response in one.supervisor.answer(heavy)} == {f"answer {row}" for row in range(24)}


def test_latency_is_that_of_the_engine(supervise: Start, tmp_path: Path) -> None:
    one = supervise(scripted(tmp_path, row_ms=30, batch_size=1), window=4)
    responses = one.answers(range(5))
    assert all(response.latency_s is not None and response.latency_s >= 0.03 for response in responses.values())
    assert {response.attempts for response in responses.values()} == {1}


def test_an_engine_that_dies_while_idle_comes_back(supervise: Start, tmp_path: Path) -> None:
    one = supervise(scripted(tmp_path))
    one.answers(range(3))
    engine = one.supervisor._loop.engine
    assert engine is not None
    os.kill(engine.pid, signal.SIGKILL)
    end = one.wait_for("engine.ended_idle")
    assert end.data == {"signal": "SIGKILL"}
    assert end.rows == ()
    assert failures(one.answers(range(3, 6))) == {}
    assert (one.supervisor.counters.restarts, one.supervisor.counters.crashes) == (1, 0)


def test_a_listener_that_fails_does_no_harm(supervise: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one = supervise(scripted(tmp_path, Fault("exit", rows=(1,), times=1)))

    def fail(event: object) -> None:
        raise ValueError("no room")

    one.supervisor._loop._announce._listener = fail
    assert failures(one.answers(range(4))) == {}
    assert "the listener failed" in caplog.text


def test_many_rows_pass_through_a_small_window(supervise: Start, tmp_path: Path) -> None:
    one = supervise(scripted(tmp_path, batch_size=16), window=32)
    responses = one.answers(range(5000))
    assert {row: response.text for row, response in responses.items()} == {r: f"answer {r}" for r in range(5000)}
    assert one.supervisor.counters.tokens >= 9000
