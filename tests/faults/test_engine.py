"""Every fault of an engine, in real processes: it costs the rows it touched and no more, and says what it was."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.engines import Fault
from proctor.rows import Response
from proctor.supervise import timing
from tests.supervise.helpers import Supervised, failures, process_gone, scripted

W = 64
STALL = 1.5
Start = Callable[..., Supervised]

DEATHS = {
    "crash": ("infer.crashed", "the engine's process died by SIGSEGV", {"signal": "SIGSEGV"}),
    "kill": (
        "infer.crashed",
        "the engine's process died by SIGKILL (the system's out-of-memory killer uses it)",
        {"signal": "SIGKILL"},
    ),
    "exit": ("infer.crashed", "the engine's process exited with code 3", {"exit_code": 3}),
    "raise": ("infer.failed", "RuntimeError: planted fault: raise at row 5", {"exception": "RuntimeError"}),
    "oom": ("infer.oom", "MemoryError: planted fault: oom at row 5", {"exception": "MemoryError"}),
}
STALLS = ["stall", "hold_gil", "stop"]


def check_answers(responses: dict[int, Response], rows: Iterable[int], errors: dict[int, str]) -> None:
    """Each of `rows` has one response: the error that is said here, or else its own answer."""
    assert sorted(responses) == sorted(rows)
    assert failures(responses) == errors
    answered = {row: response.text for row, response in responses.items() if row not in errors}
    assert answered == {row: f"answer {row}" for row in answered}


def message(response: Response) -> str:
    assert response.failure is not None
    return response.failure.message


@pytest.mark.parametrize("kind", DEATHS)
def test_a_row_that_kills_the_engine_costs_itself(supervise: Start, tmp_path: Path, kind: Any) -> None:
    verdict, says, facts = DEATHS[kind]
    one = supervise(scripted(tmp_path, Fault(kind, rows=(5,))))
    responses = one.answers(range(12))
    check_answers(responses, range(12), {5: verdict})
    assert responses[5].attempts == 3
    assert message(responses[5]) == f"{says}; this row was alone in the engine (3 attempts in all)"
    assert one.supervisor.counters.crashes == one.supervisor.counters.restarts == 3
    assert [event.data for event in one.events if event.kind == "engine.crashed"] == [facts] * 3
    (told,) = [event for event in one.events if event.kind == "quarantine.verdict"]
    assert (told.rows, told.action, told.data) == ((5,), verdict, facts)


@pytest.mark.slow
@pytest.mark.parametrize("kind", STALLS)
def test_a_row_that_freezes_the_engine_costs_itself(supervise: Start, tmp_path: Path, kind: Any) -> None:
    one = supervise(scripted(tmp_path, Fault(kind, rows=(5,))), stall_seconds=STALL)
    responses = one.answers(range(12))
    check_answers(responses, range(12), {5: "infer.stalled"})
    assert responses[5].attempts == 3
    dumps = [tmp_path / "stalls" / f"engine-{start}.txt" for start in (1, 2, 3)]
    assert message(responses[5]) == (
        f"no progress for {STALL:g} s with 1 row in the engine; stacks in {dumps[2]}; "
        "this row was alone in the engine (3 attempts in all)"
    )
    counters = one.supervisor.counters
    assert (counters.stalls, counters.restarts, counters.crashes) == (3, 3, 0)
    assert [event.data for event in one.events if event.kind == "engine.stalled"] == [{"dump": str(d)} for d in dumps]
    for dump in dumps:
        check_dump(dump.read_text(), kind)


def check_dump(text: str, kind: str) -> None:
    """Python and native stacks of the thread that does not move on."""
    by_itself, native = text.split("Native stacks of process")
    assert f"in _{kind}" in native
    assert ("kill" if kind == "stop" else "nanosleep") in "".join(line for line in native.splitlines() if "(C)" in line)
    if kind == "stop":
        assert "T (stopped)" in by_itself
        assert "did not run its signal handler" in by_itself
    else:
        assert f"in _{kind}" in by_itself
    if kind == "hold_gil":
        assert "[Has the GIL]" in native


def test_a_dump_that_cannot_be_written_costs_nothing_but_itself(supervise: Start, tmp_path: Path) -> None:
    (tmp_path / "stalls" / "engine-1.txt").mkdir(parents=True)
    one = supervise(scripted(tmp_path, Fault("stall", rows=(5,), times=1)), stall_seconds=STALL)
    check_answers(one.answers(range(12)), range(12), {})
    assert "(the dump is not whole: Is a directory)" in one.event("engine.stalled").message


@pytest.mark.parametrize("kind", [*DEATHS, *STALLS])
def test_a_fault_that_does_not_come_back_blames_nobody(supervise: Start, tmp_path: Path, kind: Any) -> None:
    one = supervise(scripted(tmp_path, Fault(kind, rows=(5,), times=1)), stall_seconds=STALL)
    responses = one.answers(range(W))
    check_answers(responses, range(W), {})
    assert {response.attempts for response in responses.values()} == {2}
    assert one.supervisor.counters.restarts == 1
    assert "quarantine.verdict" not in one.kinds()


@pytest.mark.parametrize("poison", [(), (17,), (0, 31, 63)])
def test_poison_rows_among_many_in_flight(supervise: Start, tmp_path: Path, poison: tuple[int, ...]) -> None:
    faults = [Fault("crash", rows=poison)] if poison else []
    one = supervise(scripted(tmp_path, *faults, batch_size=W), window=W)
    responses = one.answers(range(W + 20))
    check_answers(responses, range(W + 20), dict.fromkeys(poison, "infer.crashed"))
    assert {responses[row].attempts for row in poison} == ({3} if poison else set())
    counters = one.supervisor.counters
    assert counters.restarts <= (2 * len(poison) + 1 if poison else 0)
    assert counters.crashes == counters.restarts
    assert counters.answered == W + 20 - len(poison)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_cluster_of_poison_rows_does_not_condemn_the_engine(supervise: Start, tmp_path: Path) -> None:
    """A row that was answered before bears witness for the engine; its second answer is nobody's."""
    poison = range(20, 60)
    one = supervise(scripted(tmp_path, Fault("exit", rows=tuple(poison))), window=W, backoff_seconds=0.01)
    responses = one.answers(range(100))
    check_answers(responses, range(100), dict.fromkeys(poison, "infer.crashed"))
    assert {responses[row].attempts for row in poison} == {3}
    assert one.supervisor.counters.restarts <= 2 * len(poison) + 1
    assert one.supervisor.counters.answered == 60
    assert one.supervisor.counters.strays == 0
    assert "breaker.opened" not in one.kinds()


def test_an_engine_that_breaks_down_condemns_no_row(supervise: Start, tmp_path: Path) -> None:
    one = supervise(scripted(tmp_path))
    check_answers(one.answers(range(3)), range(3), {})
    broken = msgspec.structs.replace(one.supervisor._loop._config, faults=(Fault("exit", every=1),))
    one.supervisor._loop._config = broken
    os.kill(engine_pid(one), signal.SIGKILL)
    one.wait_for("engine.ended_idle")
    responses = one.answers(range(10, 20))
    check_answers(responses, range(10, 20), dict.fromkeys(range(10, 20), "engine.init_failed"))
    assert one.event("quarantine.witness").count == 1
    assert "quarantine.verdict" not in one.kinds()
    opened = one.event("breaker.opened")
    assert opened.message.startswith("the engine fails with a row that it has answered before: the engine's process")
    # One in company, two with the first suspect, two with the witness.
    assert one.supervisor.counters.crashes == 5


def test_an_engine_that_has_never_answered_condemns_no_row(
    supervise: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "CONVICTIONS_TO_OPEN", 3)
    one = supervise(scripted(tmp_path, Fault("exit", every=1)), backoff_seconds=0.001)
    responses = one.answers(range(W))
    check_answers(responses, range(W), dict.fromkeys(range(W), "engine.init_failed"))
    assert one.supervisor.state == "broken"
    assert "fails with every row" in one.event("breaker.opened").message


def test_a_single_row_without_a_witness_is_convicted(supervise: Start, tmp_path: Path) -> None:
    one = supervise(scripted(tmp_path, Fault("crash", rows=(5,))))
    responses = one.answers([5])
    check_answers(responses, [5], {5: "infer.crashed"})
    assert responses[5].attempts == 2


@pytest.mark.slow
def test_a_load_that_hangs_is_ended(supervise: Start, tmp_path: Path) -> None:
    one = supervise(scripted(tmp_path, load_seconds=3600), load_seconds=4.0, init_attempts=1)
    stalled = one.wait_for("engine.stalled")
    assert stalled.data["phase"] == "load"
    dump = tmp_path / "stalls" / "engine-1.txt"
    assert stalled.message == f"no progress for 4 s while loading; stacks in {dump}"
    text = dump.read_text()
    assert "in load" in text
    assert "nanosleep" in text
    responses = one.answers([1, 2])
    check_answers(responses, [1, 2], dict.fromkeys([1, 2], "engine.init_failed"))
    assert {response.attempts for response in responses.values()} == {0}


def test_a_load_that_fails_a_few_times_costs_nothing(supervise: Start, tmp_path: Path) -> None:
    one = supervise(scripted(tmp_path, load_failures=2))
    responses = one.answers(range(5))
    check_answers(responses, range(5), {})
    assert {response.attempts for response in responses.values()} == {1}
    assert one.kinds()[:6] == [
        "engine.started", "engine.init_failed", "engine.restarted", "engine.init_failed", "engine.restarted",
        "engine.loaded",
    ]  # fmt: skip
    failed = one.event("engine.init_failed")
    assert failed.message == "RuntimeError: planted fault: load"
    assert failed.data["failed_starts"] == 1
    assert one.supervisor.state == "running"


def test_a_load_that_never_succeeds_is_given_up_with_what_the_engine_said(supervise: Start, tmp_path: Path) -> None:
    """The exception alone often says nothing: the cause is in what was printed before."""
    (tmp_path / "sitecustomize.py").write_text("print('driver: no device\\ndriver: giving up')")
    one = supervise(scripted(tmp_path, load_failures=1000), env={"PYTHONPATH": str(tmp_path)})
    responses = one.answers(range(5))
    check_answers(responses, range(5), dict.fromkeys(range(5), "engine.init_failed"))
    reason = "RuntimeError: planted fault: load; its last output: driver: no device | driver: giving up"
    assert {message(response) for response in responses.values()} == {reason}
    assert one.event("breaker.opened").message == reason
    assert one.supervisor.counters.starts == 3


def test_a_close_that_hangs_is_bounded(supervise: Start, tmp_path: Path) -> None:
    one = supervise(scripted(tmp_path, close_seconds=3600, helpers=1))
    check_answers(one.answers(range(3)), range(3), {})
    pid = engine_pid(one)
    began = time.monotonic()
    one.supervisor.close(timeout=2.0)
    assert time.monotonic() - began < 10
    assert process_gone(pid)
    assert one.event("engine.closed").data["crashes"] == 0


@pytest.mark.slow
def test_slow_is_not_stalled(supervise: Start, tmp_path: Path) -> None:
    one = supervise(scripted(tmp_path, Fault("delay", every=1, seconds=0.5)), stall_seconds=2.5)
    check_answers(one.answers(range(8)), range(8), {})
    assert one.supervisor.counters.stalls == 0


def test_blank_answers_are_failures_and_cost_no_restart(supervise: Start, tmp_path: Path) -> None:
    one = supervise(scripted(tmp_path, Fault("blank", every=10, below=7), answers={"8": " \n"}))
    responses = one.answers(range(40))
    blanks = {row for row in range(40) if row % 10 < 7} | {8}
    check_answers(responses, range(40), dict.fromkeys(blanks, "infer.empty"))
    assert all(responses[row].text is None for row in blanks)
    assert one.supervisor.counters.restarts == 0


def test_a_truncated_answer_is_an_answer_that_says_so(supervise: Start, tmp_path: Path) -> None:
    one = supervise(scripted(tmp_path, Fault("truncate", rows=(3,))))
    responses = one.answers(range(6))
    assert failures(responses) == {}
    assert [responses[row].finish_reason for row in range(6)] == ["stop", "stop", "stop", "length", "stop", "stop"]
    assert responses[3].text == "answ"


def test_a_rejected_row_is_tried_once(supervise: Start, tmp_path: Path) -> None:
    one = supervise(scripted(tmp_path, Fault("reject", rows=(3,))))
    responses = one.answers(range(6))
    check_answers(responses, range(6), {3: "infer.rejected"})
    assert responses[3].attempts == 1
    assert one.supervisor.counters.restarts == 0


def engine_pid(one: Supervised) -> int:
    engine = one.supervisor._loop.engine
    assert engine is not None
    return engine.pid
