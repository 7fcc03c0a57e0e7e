from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from proctor.engines import EngineConfig
from tests.supervise.helpers import Supervised, ask, failures, scripted


class _WrongKey(BaseHTTPRequestHandler):
    """A server that lists its models to everybody and answers nobody."""

    def do_GET(self) -> None:
        self._reply(200, b'{"object": "list", "data": [{"id": "m"}]}')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._reply(401, b'{"error": {"message": "wrong key"}}')

    def log_message(self, *_: object) -> None:
        return

    def _reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def wrong_key() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _WrongKey) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


Start = Callable[..., Supervised]


def test_breaker_opens_and_holds_rows_before_it_sends_them_back(supervise: Start, tmp_path: Path) -> None:
    one = supervise(scripted(tmp_path, load_failures=100), hold_seconds=0.3)
    opened = one.wait_for("breaker.opened")
    assert "planted fault: load" in opened.message
    assert one.supervisor.state == "broken"
    assert one.supervisor.fatal is None
    futures = [one.supervisor.submit(ask(row)) for row in range(10)]
    assert not futures[0].done()
    responses = {row: future.result(timeout=20) for row, future in enumerate(futures)}
    assert failures(responses) == dict.fromkeys(range(10), "engine.init_failed")
    assert {response.attempts for response in responses.values()} == {0}
    assert one.supervisor.counters.starts == 3
    sent_back = one.wait_for("breaker.sent_back")
    assert (sent_back.count, len(sent_back.rows)) == (10, 8)
    assert sent_back.time - opened.time >= 0.3


def test_a_probe_closes_the_breaker(supervise: Start, tmp_path: Path) -> None:
    one = supervise(scripted(tmp_path, load_failures=3), init_attempts=2, probe_seconds=0.2, hold_seconds=30)
    one.wait_for("breaker.opened")
    responses = one.answers(range(5))
    assert failures(responses) == {}
    assert one.supervisor.state == "running"
    assert one.kinds().count("breaker.opened") == one.kinds().count("breaker.closed") == 1


def test_a_mistake_of_the_user_is_fatal_at_once(supervise: Start, tmp_path: Path) -> None:
    one = supervise(scripted(tmp_path, row_mss=3))
    opened = one.wait_for("breaker.opened")
    assert opened.data == {"fatal": True}
    assert one.supervisor.fatal is not None
    assert "row_mss" in one.supervisor.fatal
    assert one.supervisor.counters.starts == 1
    assert failures(one.answers([1])) == {1: "engine.init_failed"}


def test_a_mistake_of_the_user_that_shows_at_work_is_no_rows_fault(supervise: Start) -> None:
    with wrong_key() as port:
        options = {"base_url": f"http://127.0.0.1:{port}/v1"}
        one = supervise(EngineConfig("openai", model="m", batch_size=4, options=options))
        responses = one.answers(range(20))
    assert failures(responses) == dict.fromkeys(range(20), "engine.init_failed")
    assert one.supervisor.fatal is not None
    assert "401" in one.supervisor.fatal
    assert "quarantine.verdict" not in one.kinds()
    assert one.event("engine.init_failed").data["phase"] == "work"


def test_an_interpreter_that_is_not_there_is_fatal(supervise: Start, tmp_path: Path) -> None:
    one = supervise(scripted(tmp_path), python=str(tmp_path / "bin" / "python"))
    one.wait_for("breaker.opened")
    assert one.supervisor.fatal is not None
    assert "engine.python" in one.supervisor.fatal


def test_a_configuration_may_be_larger_than_the_connection_takes_at_once(supervise: Start, tmp_path: Path) -> None:
    one = supervise(scripted(tmp_path, answers={"1": 5_000_000 * "x"}), load_seconds=10)
    responses = one.answers([1, 2])
    assert failures(responses) == {}
    assert len(responses[1].text or "") == 5_000_000


def test_a_child_that_cannot_even_start_is_quoted(supervise: Start, tmp_path: Path) -> None:
    (tmp_path / "msgspec.py").write_text("raise ImportError('msgspec is not for this interpreter')")
    one = supervise(scripted(tmp_path), env={"PYTHONPATH": str(tmp_path)}, init_attempts=1)
    opened = one.wait_for("breaker.opened")
    assert "exited with code 1" in opened.message
    assert "msgspec is not for this interpreter" in opened.message


def test_an_unknown_kind_of_engine_is_the_users_mistake(supervise: Start) -> None:
    one = supervise(EngineConfig("abacus"))
    one.wait_for("breaker.opened")
    assert (
        one.supervisor.fatal == "engine.kind: there is no engine 'abacus' (one of openai, scripted, transformers, vllm)"
    )
