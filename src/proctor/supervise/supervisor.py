"""The supervisor of one engine, as its users see it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Literal

from proctor.engines.base import EngineConfig
from proctor.rows import ErrorKind, Event, Failure, Request, Response
from proctor.supervise.announcer import Announcer
from proctor.supervise.counters import Counters
from proctor.supervise.gate import refusal
from proctor.supervise.loop import Loop
from proctor.supervise.mailbox import Mailbox
from proctor.supervise.settings import Settings
from proctor.supervise.succession import Succeeded, Succession

State = Literal["starting", "running", "quarantine", "broken", "closed"]


class Supervisor:
    """Owns an engine in a child process: every request that is handed in comes back with a response.

    The engine may crash, stall or refuse to start: the supervisor ends what is left of it, starts it anew, finds the
    row that is to blame and tells of it all through `on_event`, which is called from the supervisor's own thread.
    """

    def __init__(
        self, config: EngineConfig, settings: Settings, *, name: str, on_event: Callable[[Event], None]
    ) -> None:
        self._settings = settings
        self._mailbox = Mailbox()
        self._loop = Loop(config, settings, name, Announcer(name, on_event), self._mailbox)
        self._thread = threading.Thread(target=self._loop.run, name=f"supervise-{name}", daemon=True)

    def start(self) -> None:
        """Starts the engine; returns at once."""
        self._thread.start()

    def submit(self, request: Request) -> Future[Response]:
        """Hands in a request, from any thread, at any time.

        Returns:
            A future that ends with a response, never with an exception, and that cannot be cancelled.
        """
        return self.submit_together([request])[0]

    def submit_together(self, requests: Sequence[Request]) -> list[Future[Response]]:
        """Hands in requests as one hand-out: an engine with room for all of them, and no others, gets them at once.

        At most `Settings.window` of them: what is beyond waits for room.

        Returns:
            A future for each, as of `submit`.
        """
        futures = [_future() for _ in requests]
        items = []
        for request, future in zip(requests, futures, strict=True):
            failure = refusal(request)
            if failure is None:
                items.append((request, future))
            else:
                future.set_result(Response.failed(request.id, failure, attempts=0))
        if not self._mailbox.put(*items):
            closed = Failure(ErrorKind.LOST, "the supervisor is closed")
            for request, future in items:
                future.set_result(Response.failed(request.id, closed, attempts=0))
        return futures

    def answer(self, requests: Iterable[Request]) -> Iterator[Response]:
        """Responses to all `requests`, as they come; takes only a few requests more than the engine works on."""
        done: SimpleQueue[Future[Response]] = SimpleQueue()
        under_way = 0
        for request in requests:
            self.submit(request).add_done_callback(done.put)
            under_way += 1
            while under_way >= 2 * self._settings.window:
                yield done.get().result()
                under_way -= 1
        for _ in range(under_way):
            yield done.get().result()

    def succeed(self, config: EngineConfig, *, weights: str = "", cold: bool = False) -> Future[Succeeded]:
        """Another checkpoint, once every row that was handed in has its answer.

        Args:
            config: the engine's configuration, which differs in the checkpoint alone.
            weights: path of the checkpoint's published weights; empty: the engine reads its files.
            cold: by a new process, whatever the engine could do.

        Returns:
            A future with what came of it. What the engine answers after a swap is to be proven by whoever asked for it.
            It raises RuntimeError where rows are under way.
        """
        asked = Succession(config, weights, cold)
        if not self._mailbox.ask(asked):
            asked.done.set_result(Succeeded("failed", "the supervisor is closed"))
        return asked.done

    def close(self, timeout: float = 10.0) -> None:
        """Ends the engine within about `timeout` seconds; what has no answer by then comes back as ``lost``.

        An engine without rows gets half of that time to close by itself; an engine at work is ended at once.
        """
        self._loop.close_seconds = timeout / 2
        self._mailbox.close()
        if self._thread.ident is None:
            self._thread.start()
        self._thread.join(timeout)
        engine = self._loop.engine
        if self._thread.is_alive() and engine is not None:
            engine.kill(timeout)

    @property
    def state(self) -> State:
        """What the supervisor is at; ``broken`` means that rows go back as ``engine.init_failed``."""
        if self._mailbox.closing:
            return "closed"
        if self._loop.breaker.open:
            return "broken"
        if self._loop.ledger.quarantine:
            return "quarantine"
        return "running" if self._loop.ready else "starting"

    @property
    def fatal(self) -> str | None:
        """The user's mistake that keeps the engine from ever starting, if there is one."""
        return self._loop.breaker.reason if self._loop.breaker.fatal else None

    @property
    def versions(self) -> dict[str, str]:
        """Versions of what computes the answers, by package, of the process that was loaded last."""
        return self._loop.versions

    @property
    def counters(self) -> Counters:
        """Restarts, stalls, crashes, tokens, answers so far."""
        return self._loop.counters


def _future() -> Future[Response]:
    future: Future[Response] = Future()
    future.set_running_or_notify_cancel()
    return future
