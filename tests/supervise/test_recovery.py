"""Real children that crash, stall and misbehave."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from proctor.engines import Fault
from proctor.supervise import timing
from tests.supervise.helpers import Supervised, ask, failures, scripted

W = 64
Start = Callable[..., Supervised]


@pytest.mark.parametrize("poison", [(), (17,), (0, 31, 63)])
def test_crashing_rows_cost_themselves_alone(supervise: Start, tmp_path: Path, poison: tuple[int, ...]) -> None:
    faults = [Fault("crash", rows=poison)] if poison else []
    one = supervise(scripted(tmp_path, *faults, batch_size=W), window=W)
    responses = one.answers(range(W + 20))
    assert sorted(responses) == list(range(W + 20))
    assert failures(responses) == dict.fromkeys(poison, "infer.crashed")
    assert all(responses[row].text == f"answer {row}" for row in responses if row not in poison)
    counters = one.supervisor.counters
    assert counters.restarts <= (2 * len(poison) + 1 if poison else 0)
    assert counters.crashes == counters.restarts
    assert counters.answered == W + 20 - len(poison)


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


@pytest.mark.parametrize(
    ("kind", "verdict", "says"),
    [
        ("exit", "infer.crashed", "exited with code 3"),
        ("raise", "infer.failed", "RuntimeError: planted fault: raise at row 5"),
        ("oom", "infer.oom", "MemoryError"),
    ],
)
def test_every_way_to_die_has_its_kind(supervise: Start, tmp_path: Path, kind: str, verdict: str, says: str) -> None:
    one = supervise(scripted(tmp_path, Fault(kind, rows=(5,))))  # type: ignore[arg-type]
    responses = one.answers(range(12))
    assert failures(responses) == {5: verdict}
    failure = responses[5].failure
    assert failure is not None
    assert says in failure.message


@pytest.mark.parametrize("kind", ["crash", "exit", "raise", "oom"])
def test_a_transient_fault_blames_nobody(supervise: Start, tmp_path: Path, kind: str) -> None:
    one = supervise(scripted(tmp_path, Fault(kind, rows=(5,), times=1)))  # type: ignore[arg-type]
    responses = one.answers(range(W))
    assert failures(responses) == {}
    assert len(responses) == W
    assert one.supervisor.counters.restarts == 1


@pytest.mark.parametrize("kind", ["stall", "hold_gil"])
def test_a_stalled_engine_is_dumped_ended_and_replaced(supervise: Start, tmp_path: Path, kind: str) -> None:
    one = supervise(scripted(tmp_path, Fault(kind, rows=(5,), times=1)), stall_seconds=0.6)  # type: ignore[arg-type]
    responses = one.answers(range(20))
    assert failures(responses) == {}
    assert one.supervisor.counters.stalls == 1
    stalled = one.event("engine.stalled")
    dump = Path(str(stalled.data["dump"]))
    assert dump == tmp_path / "stalls" / "engine-1.txt"
    text = dump.read_text()
    assert f"in _{kind}" in text
    assert "no progress for 0.6 s with 20 rows in the engine" in text
    assert "sleep" in text


def test_a_row_that_always_stalls_is_named(supervise: Start, tmp_path: Path) -> None:
    one = supervise(scripted(tmp_path, Fault("stall", rows=(5,))), stall_seconds=0.5)
    responses = one.answers(range(8))
    assert failures(responses) == {5: "infer.stalled"}
    assert one.supervisor.counters.stalls == one.supervisor.counters.restarts == 3
    failure = responses[5].failure
    assert failure is not None
    assert str(tmp_path / "stalls" / "engine-3.txt") in failure.message


def test_a_stopped_child_is_replaced(supervise: Start, tmp_path: Path) -> None:
    one = supervise(scripted(tmp_path, row_ms=20), stall_seconds=0.8)
    futures = [one.supervisor.submit(ask(row)) for row in range(30)]
    futures[3].result(timeout=20)
    engine = one.supervisor._loop.engine
    assert engine is not None
    os.kill(engine.pid, signal.SIGSTOP)
    responses = {row: future.result(timeout=30) for row, future in enumerate(futures)}
    assert failures(responses) == {}
    assert one.supervisor.counters.stalls == 1
    text = Path(str(one.event("engine.stalled").data["dump"])).read_text()
    assert "T (stopped)" in text
    assert "did not run its signal handler" in text


def test_slow_is_not_stalled(supervise: Start, tmp_path: Path) -> None:
    one = supervise(scripted(tmp_path, row_ms=150), stall_seconds=1.0)
    assert failures(one.answers(range(10))) == {}
    assert one.supervisor.counters.stalls == 0


def test_a_blank_answer_is_a_failure_and_costs_no_restart(supervise: Start, tmp_path: Path) -> None:
    one = supervise(scripted(tmp_path, Fault("blank", every=10, below=7), answers={"8": " \n"}))
    responses = one.answers(range(40))
    blanks = {row for row in range(40) if row % 10 < 7} | {8}
    assert failures(responses) == dict.fromkeys(blanks, "infer.empty")
    assert one.supervisor.counters.restarts == 0


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


def test_an_engine_that_dies_of_every_row_is_given_up(
    supervise: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "CONVICTIONS_TO_OPEN", 3)
    one = supervise(scripted(tmp_path, Fault("exit", every=1)), backoff_seconds=0.001)
    responses = one.answers(range(64))
    kinds = list(failures(responses).values())
    assert kinds.count("infer.crashed") == 3
    assert kinds.count("engine.init_failed") == 61
    assert one.supervisor.state == "broken"
    assert "fails with every row" in one.event("breaker.opened").message


def test_an_engine_that_dies_while_idle_comes_back(supervise: Start, tmp_path: Path) -> None:
    one = supervise(scripted(tmp_path))
    one.answers(range(3))
    engine = one.supervisor._loop.engine
    assert engine is not None
    os.kill(engine.pid, signal.SIGKILL)
    crash = one.wait_for("engine.crashed")
    assert crash.data == {"signal": "SIGKILL"}
    assert crash.rows == ()
    assert failures(one.answers(range(3, 6))) == {}
    assert one.supervisor.counters.restarts == 1


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
