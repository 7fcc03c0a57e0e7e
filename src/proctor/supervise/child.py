"""The child process: runs one engine and talks to the supervisor. Imports only what an engine's environment has."""

from __future__ import annotations

import ctypes
import faulthandler
import functools
import os
import platform
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from socket import socket
from typing import NoReturn

from proctor.engines import news
from proctor.engines.base import Engine, EngineDied, SwapRefused
from proctor.engines.registry import make_engine
from proctor.rows import Request, Response, UserError
from proctor.supervise import wire
from proctor.supervise.companions import Companions

PROGRESS_SECONDS = 0.2
FALLEN_SECONDS = 1.0
MESSAGE_LIMIT = 500
_PR_SET_PDEATHSIG = 1


def main(arguments: Sequence[str]) -> None:
    """Runs the child to its end.

    Args:
        arguments: descriptor of the connection, descriptor for stack dumps, process id of the supervisor.
    """
    connection, stacks, parent = map(int, arguments)
    _die_with(parent)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
    for descriptor in (connection, stacks):
        os.set_inheritable(descriptor, False)
    # What is printed must be in the log when the process ends, however it ends.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    line = socket(fileno=connection)
    outbox = Outbox(line)
    try:
        _serve(wire.receive(line), outbox)
    except BaseException as error:  # whatever came out, SystemExit included: the engine is broken
        _end(outbox, _last_word(error))


def _serve(messages: Iterator[wire.ToChild], outbox: Outbox) -> None:
    start = next(messages)
    if not isinstance(start, wire.Start):
        raise wire.ProtocolError("work came before the engine's configuration")
    engine = make_engine(start.config)
    engine.check()
    if start.check_only:
        outbox.send(wire.Checked())
        return
    news.listen(lambda told: outbox.send(wire.News(told)))
    news.signal_compiling(lambda began: outbox.send(wire.Compiling(began)))
    began = time.monotonic()
    engine.load()
    outbox.send(wire.Loaded(time.monotonic() - began, _versions()))
    _answer_all(engine, messages, outbox)
    engine.close()


def _versions() -> dict[str, str]:
    """Versions of what computes the answers, as far as this engine has loaded it."""
    found = {"python": platform.python_version()}
    for package in ("torch", "transformers", "vllm"):
        version = getattr(sys.modules.get(package), "__version__", None)
        if version is not None:
            found[package] = str(version)
    return found


def _answer_all(engine: Engine, messages: Iterator[wire.ToChild], outbox: Outbox) -> None:
    inbox = Inbox(outbox)
    threading.Thread(target=inbox.fill, args=(messages,), name="proctor-inbox", daemon=True).start()
    companions = Companions()
    companions.watch(functools.partial(_end, outbox))
    try:
        _answer_each(engine, inbox, outbox)
        while (swap := inbox.next_swap()) is not None:
            outbox.send(_swapped(engine, swap))
            _answer_each(engine, inbox, outbox)
    except Exception as error:
        fallen = companions.fallen(FALLEN_SECONDS if isinstance(error, EngineDied) else 0.0)
        if fallen is not None:  # the cause, where the exception is only its consequence
            _end(outbox, fallen)
        raise
    companions.release()
    if not inbox.ended:
        raise RuntimeError("the engine ended its stream before the end of its feed")


def _answer_each(engine: Engine, inbox: Inbox, outbox: Outbox) -> None:
    for response in engine.stream(inbox, outbox.report):
        outbox.answer(response)


def _swapped(engine: Engine, swap: wire.Swap) -> wire.Swapped:
    try:
        engine.swap(swap.config, swap.weights)
    except SwapRefused as refusal:
        return wire.Swapped(str(refusal))
    return wire.Swapped()


class Inbox:
    """The engine's feed: a thread fills it from the connection. It ends at a swap as well, and then goes on."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._waiting: deque[Request] = deque()
        self._arriving: list[Request] = []
        self._changed = threading.Condition()
        self._swap: wire.Swap | None = None
        self.ended = False

    def fill(self, messages: Iterator[wire.ToChild]) -> None:
        """Takes in requests until the supervisor hangs up."""
        try:
            for message in messages:
                if isinstance(message, wire.Work):
                    self._arriving.append(message.request)
                    if not message.more:
                        self._admit()
                elif isinstance(message, wire.Swap):
                    with self._changed:
                        self._swap = message
                        self._changed.notify()
        except Exception:
            traceback.print_exc()
            os._exit(1)
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def _admit(self) -> None:
        with self._changed:
            self._waiting.extend(self._arriving)
            self._changed.notify()
        self._arriving.clear()

    def next_swap(self) -> wire.Swap | None:
        """The swap at which the feed has ended; None if it has ended for good."""
        with self._changed:
            swap, self._swap = self._swap, None
            return swap

    def take(self, room: int, *, wait: bool) -> list[Request]:
        """See `proctor.engines.base.Feed`. The supervisor learns what the engine gets before the engine gets it."""
        with self._changed:
            while wait and not self._waiting and not self.ended and self._swap is None:
                self._changed.wait()
            taken = [self._waiting.popleft() for _ in range(min(room, len(self._waiting)))]
            if taken:
                self._outbox.send(wire.Taken(len(taken), time.monotonic()))
            return taken


class Outbox:
    """What the child says, safe to use from several threads."""

    def __init__(self, line: socket) -> None:
        self._line = line
        self._lock = threading.Lock()
        self._tokens = 0
        self._told_at = 0.0

    def send(self, message: wire.FromChild) -> None:
        """Sends a message whole. If the supervisor is gone there is nothing left to do: the process ends."""
        frame = wire.pack(message)
        try:
            with self._lock:
                self._line.sendall(frame)
        except OSError:
            os._exit(1)

    def answer(self, response: Response) -> None:
        """Sends a response."""
        self.send(wire.Answer(response, time.monotonic(), self._untold()))

    def report(self, tokens: int) -> None:
        """Decoded tokens (0: a sign of life): told at once if the last word is some time ago, else with the next."""
        with self._lock:
            self._tokens += tokens
            due = time.monotonic() - self._told_at >= PROGRESS_SECONDS
        if due:
            self.send(wire.Progress(self._untold()))

    def _untold(self) -> int:
        with self._lock:
            tokens, self._tokens = self._tokens, 0
            self._told_at = time.monotonic()
        return tokens


def _die_with(parent: int) -> None:
    """Has the kernel end this process when the supervisor's thread that started it ends."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:  # it ended before the kernel knew
        os._exit(1)


def _end(outbox: Outbox, last_word: wire.Broken | wire.Fallen) -> NoReturn:
    """Ends the process, whatever its other threads are at."""
    if sys.exc_info()[0] is not None:
        traceback.print_exc()
    outbox.send(last_word)
    os._exit(1)


def _last_word(error: BaseException) -> wire.Broken:
    crashed = isinstance(error, EngineDied)
    name = type(error.__cause__ if crashed and error.__cause__ else error).__name__
    text = " ".join(str(error).split())[:MESSAGE_LIMIT]
    return wire.Broken(
        message=f"{name}: {text}" if text and not crashed else text or name,
        exception=name,
        out_of_memory=isinstance(error, MemoryError) or name == "OutOfMemoryError",
        crashed=crashed,
        printed=os.fstat(2).st_size,
        mistake=(error.what, error.where, error.fix) if isinstance(error, UserError) else None,
    )
