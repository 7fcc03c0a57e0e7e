"""The supervisor's own thread: one loop over the child, its deadline and the rows."""

from __future__ import annotations

import logging
import selectors
import time
from collections.abc import Sequence
from math import inf
from typing import Literal

from proctor.engines.base import EngineConfig
from proctor.rows import ErrorKind, Failure, Response
from proctor.supervise import wire
from proctor.supervise.aftermath import Aftermath
from proctor.supervise.announcer import Announcer, pass_on
from proctor.supervise.childlog import ChildLog
from proctor.supervise.counters import Counters
from proctor.supervise.court import Court
from proctor.supervise.death import Death, by_os_error, by_stall
from proctor.supervise.gate import examined
from proctor.supervise.guard import Guard
from proctor.supervise.ledger import Ledger
from proctor.supervise.mailbox import Mailbox
from proctor.supervise.process import EngineProcess
from proctor.supervise.settings import Settings
from proctor.supervise.succession import Succeeded, Succession
from proctor.supervise.timing import Breaker, Deadline

TICK_SECONDS = 0.25
ANNOUNCED_STRAYS = 20
_log = logging.getLogger(__name__)


class Loop:
    """Everything that happens to one engine. Runs in one thread; others may read `counters` and the flags."""

    def __init__(
        self, config: EngineConfig, settings: Settings, name: str, announce: Announcer, mailbox: Mailbox
    ) -> None:
        self.counters = Counters()
        self.breaker = Breaker(settings.init_attempts, settings.hold_seconds, settings.probe_seconds)
        self.ledger = Ledger()
        self._court = Court(self.ledger, self.breaker, announce)
        self._after = Aftermath(self.ledger, self.breaker, self._court, announce, settings.backoff_seconds)
        self.engine: EngineProcess | None = None
        self.ready = False
        self.close_seconds = 0.0
        self._config, self._settings, self._name = config, settings, name
        self._announce, self._mailbox = announce, mailbox
        self._log = ChildLog(settings.stalls_dir / f"{name}.log")
        self._guard = Guard()
        self._deadline = Deadline()
        self._started_at = 0.0
        self._first = True  # the next start is nobody's fault
        self._productive = False  # the present process has answered something
        self._swap: Succession | None = None  # what the present process is at
        self.versions: dict[str, str] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(mailbox.descriptor, selectors.EVENT_READ)

    def run(self) -> None:
        """Supervises until the mailbox is closed; then every row that is left goes back as ``lost``."""
        reason = "the supervisor was closed before this row had its answer"
        try:
            while not self._mailbox.closing:
                self._turn()
        except Exception as error:
            _log.exception("the supervisor of %s failed", self._name)
            reason = f"the supervisor failed: {type(error).__name__}: {error}"
            self._announce("supervisor.failed", reason, action="every row goes back as lost")
            self._mailbox.close()
        finally:
            self._shut_down(reason)

    def _turn(self) -> None:
        self._wait()
        if self._mailbox.closing:
            return  # whoever closes may end the child too; that is no crash
        for request, future in self._mailbox.drain():
            self.ledger.admit(request, future)
        for succession in self._mailbox.successions():
            self._succeed(succession)
        if self.engine is not None:
            self._listen(self.engine.receive())
            self._check(self.engine)
        elif time.monotonic() >= self._after.start_at:
            self._start()
        self._hand_out()
        self._send_back()
        self._court.tell_of_quarantine()

    def _wait(self) -> None:
        """Sleeps until something comes in or falls due."""
        now = time.monotonic()
        start = inf if self.engine is not None else self._after.start_at
        due = min(start, now + self._deadline.remaining(now), self.breaker.hold(len(self.ledger), now))
        timeout = max(0.0, min(TICK_SECONDS, due - now))
        if self.engine is not None:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.engine.line.wants_to_send else 0)
            self._selector.modify(self.engine.line, events)
        self._selector.select(timeout)
        self._deadline.forgive(max(0.0, time.monotonic() - now - timeout))

    # --- the child at work

    def _listen(self, messages: Sequence[wire.FromChild]) -> None:
        now = time.monotonic()
        for message in messages:
            if isinstance(message, wire.Answer):
                self.counters.tokens += message.tokens
                self._deadline.touch(now)
                self._answer(message.response, message.at)
            elif isinstance(message, wire.Taken):
                self.ledger.take(message.count, message.at)
            elif isinstance(message, wire.Progress):
                self.counters.tokens += message.tokens
                self._deadline.touch(now)
            elif isinstance(message, wire.Compiling) and self.ready:
                self._deadline.relimit(self._settings.silence(compiling=message.began), now)
            elif isinstance(message, wire.Loaded):
                self._loaded(message)
            elif isinstance(message, wire.News):
                pass_on(message.news, self._announce, self.counters)
            elif isinstance(message, wire.Swapped):
                self._swapped(message)

    def _loaded(self, message: wire.Loaded) -> None:
        self.ready = True
        self._deadline.stop()
        self.versions = message.versions
        duration = time.monotonic() - self._started_at
        self._announce("engine.loaded", duration=duration, data={"load_seconds": message.seconds, **message.versions})
        if self.breaker.open:
            self.breaker.close()
            self._announce("breaker.closed", "the engine has loaded after all")

    def _answer(self, response: Response, at: float) -> None:
        response = examined(response)
        asked_again = response.id == self.ledger.witness
        if not self.ledger.answer(response, at):
            self.counters.strays += 1
            if self.counters.strays <= ANNOUNCED_STRAYS:
                self._announce("engine.stray", "a response that nobody waits for", action="ignored", rows=[response.id])
            return
        self.counters.answered += response.failure is None and not asked_again
        self._court.settle()
        if not self._productive:
            self._productive = True
            self._after.answered()

    def _hand_out(self) -> None:
        if self.engine is None:
            return
        line = self.engine.line
        if self.ready:
            requests = self.ledger.hand_out(self._settings.window)
            for left, request in zip(reversed(range(len(requests))), requests, strict=True):
                line.send(wire.Work(request, more=left > 0))
        line.flush()  # also before it is ready: the configuration alone may be more than the connection takes at once
        if not self.ready:
            return
        if not self.ledger.with_child:
            self._deadline.stop()
        elif not self._deadline.running:
            self._deadline.start(self._settings.stall_seconds, time.monotonic())

    def _check(self, engine: EngineProcess) -> None:
        self._log.trim()
        found = engine.death()
        if found is None and self._deadline.remaining(time.monotonic()) <= 0:
            found = self._stall(engine)
        if found is not None:
            self._bury(engine, found)

    def _stall(self, engine: EngineProcess) -> Death:
        path = self._settings.stalls_dir / f"{self._name}-{self.counters.starts}.txt"
        rows = self.ledger.with_child
        state = f"with {rows} row{'s' * (rows != 1)} in the engine" if self.ready else "while loading"
        what = f"no progress for {self._deadline.limit:g} s {state}"
        try:
            engine.dump(path, f"{self._name}: {what}")
        except OSError as error:  # a full disk must not keep the engine from being replaced
            what += f" (the dump is not whole: {error.strerror or error})"
        return by_stall(what, str(path), self._log.last_lines())

    # --- the end of a child and what follows

    def _bury(self, engine: EngineProcess, found: Death) -> None:
        began = time.monotonic()
        self._selector.unregister(engine.line)
        messages, left = engine.end()
        self._listen(messages)  # what it finished before its end counts
        worked, phase = self.ready, "load" if self._swap is None else "swap"
        self.engine, self.ready = None, False
        self._end_swap("failed", found.explained)
        self._deadline.stop()
        if left:
            self._announce("engine.unkillable", f"processes are still there after SIGKILL: {left}")
        in_flight = self.ledger.take_back()
        idle = worked and not self.ledger
        if found.stalled:
            self.counters.stalls += 1
        elif not idle:
            self.counters.crashes += 1
        if idle:
            self._after.ended_idle(found)
        elif found.mistake is not None:  # no row is to blame, whenever it shows
            self._after.failed_to_start(found, phase="work" if worked else phase)
        elif worked and (in_flight or self._productive):
            self._after.failed_at_work(found, in_flight, time.monotonic() - began)
        else:
            self._after.failed_to_start(found, phase)

    # --- another checkpoint

    def _succeed(self, asked: Succession) -> None:
        if self.ledger or self._swap is not None:
            asked.done.set_exception(RuntimeError("another checkpoint while rows are under way"))
        elif asked.cold:
            self._replace(asked)
        elif self.engine is None or not self.ready:
            asked.done.set_result(Succeeded("refused", "the engine is not running"))
        else:
            self._swap, self._started_at, self.ready = asked, time.monotonic(), False
            self._deadline.start(self._settings.load_seconds, self._started_at)
            self.engine.line.send(wire.Swap(asked.config, asked.weights))

    def _swapped(self, message: wire.Swapped) -> None:
        self.ready = True
        self._deadline.stop()
        self._end_swap("refused" if message.refused else "swapped", message.refused)

    def _end_swap(self, how: Literal["swapped", "refused", "failed"], reason: str = "") -> None:
        asked, self._swap = self._swap, None
        if asked is None:
            return
        if how != "refused":  # whatever is started from now on, it is the new checkpoint
            self._config = asked.config
        asked.done.set_result(Succeeded(how, reason, time.monotonic() - self._started_at))

    def _replace(self, asked: Succession) -> None:
        if self.engine is not None:
            self._selector.unregister(self.engine.line)
            if self.ready:
                self.engine.finish(self._settings.close_seconds)
            self._listen(self.engine.end()[0])
        self.engine, self.ready, self._config = None, False, asked.config
        self._deadline.stop()
        if self.breaker.open:
            self._announce("breaker.closed", "another checkpoint is started")
        self._after.replaced()
        self._first = True
        asked.done.set_result(Succeeded("cold"))

    def _start(self) -> None:
        self.counters.starts += 1
        first, self._first = self._first, False
        self.counters.restarts += not first
        self._productive = False
        self._log.begin(f"{self._name}, start {self.counters.starts}, {time.strftime('%Y-%m-%d %H:%M:%S')}")
        self._announce("engine.started" if first else "engine.restarted")
        settings = self._settings
        try:
            self.engine = EngineProcess(self._config, self._log, self._guard, python=settings.python, env=settings.env)
        except OSError as error:
            self._after.failed_to_start(by_os_error(error, settings.python))
            return
        self._selector.register(self.engine.line, selectors.EVENT_READ)
        self._started_at = time.monotonic()
        self._deadline.start(settings.load_seconds, self._started_at)

    # --- rows that cannot be served

    def _send_back(self) -> None:
        now = time.monotonic()
        if now >= self.breaker.hold(len(self.ledger), now):
            rows = self.ledger.fail_all(Failure(ErrorKind.ENGINE_INIT_FAILED, self.breaker.reason))
            self.breaker.released()
            self._announce("breaker.sent_back", self.breaker.reason, action="engine.init_failed", rows=rows)

    def _shut_down(self, reason: str) -> None:
        if self.engine is not None:
            if self.ready and not self.ledger.with_child:
                self.counters.peak_bytes = self.engine.finish(self.close_seconds)
            self._listen(self.engine.end()[0])
            self.engine, self.ready = None, False
        self._end_swap("failed", reason)
        for succession in self._mailbox.successions():
            succession.done.set_result(Succeeded("failed", reason))
        for request, future in self._mailbox.drain():
            self.ledger.admit(request, future)
        rows = self.ledger.fail_all(Failure(ErrorKind.LOST, reason))
        numbers = {name: getattr(self.counters, name) for name in Counters.__slots__}
        self._announce("engine.closed", reason if rows else "", rows=rows, data=numbers)
        self._guard.close()
        self._selector.close()
        self._log.close()
        self._mailbox.dispose()
