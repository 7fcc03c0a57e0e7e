"""A thread that alone owns one ZMQ socket (sockets are not for sharing) and hears of everything else by descriptors."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, final

import zmq

POLL_MS = 100
"""Longest sleep: leases are looked at so often, by a clock that need not be the machine's."""
SOON_MS = 1
LINGER_MS = 1000


class Work(Protocol):
    """What the thread does."""

    def heard(self, frames: list[bytes]) -> None:
        """A message has come."""

    def turn(self) -> None:
        """After every wait, whatever ended it."""

    def ended(self, error: Exception | None) -> None:
        """The thread ends: because it was asked to (None), or because one of these methods raised."""


@final
class Loop:
    """Runs `work` until closed.

    Args:
        socket: the thread's from now on.
        name: of the thread.
    """

    def __init__(self, socket: zmq.Socket[bytes], name: str) -> None:
        self._socket = socket
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._calls: deque[Callable[[], None]] = deque()
        self._watched: dict[int, Callable[[], None]] = {}
        self._poller = zmq.Poller()
        self._poller.register(socket, zmq.POLLIN)
        self._poller.register(self._wake, zmq.POLLIN)
        self._lock = threading.Lock()
        self._sleep_ms = POLL_MS
        self._stop = self._over = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self, work: Work) -> None:
        """Begins."""
        self._work = work
        self._thread.start()

    def call(self, do: Callable[[], None]) -> bool:
        """Has something done by the thread; False if it has ended and nothing will be done."""
        with self._lock:
            if self._over:
                return False
            self._calls.append(do)
            os.eventfd_write(self._wake, 1)
            return True

    def watch(self, descriptor: int, then: Callable[[], None]) -> None:
        """Calls `then` once, when `descriptor`, which is the loop's from now on, becomes readable. Thread only."""
        self._watched[descriptor] = then
        self._poller.register(descriptor, zmq.POLLIN)

    def unwatch(self, descriptor: int) -> None:
        """Forgets and closes it. Thread only."""
        if self._watched.pop(descriptor, None) is not None:
            self._poller.unregister(descriptor)
            os.close(descriptor)

    def send(self, frames: Sequence[bytes | memoryview]) -> bool:
        """Sends at once, or says that the peer is gone or takes nothing more. Thread only."""
        try:
            self._socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                return False
            raise
        return True

    def soon(self) -> None:
        """Has the thread take its next turn at once, though nothing wakes it. Thread only."""
        self._sleep_ms = SOON_MS

    def close(self, seconds: float = 10.0) -> None:
        """Ends the thread and waits for it."""
        self._stop = True
        self.call(lambda: None)
        if self._thread is not threading.current_thread():
            self._thread.join(seconds)

    def _run(self) -> None:
        cause: Exception | None = None
        try:
            while not self._stop:
                self._step()
        except Exception as error:  # whatever it is, the other side and all who wait have to hear of it
            cause = error
        finally:
            self._finish(cause)

    def _step(self) -> None:
        ready = dict(self._poller.poll(self._sleep_ms))
        self._sleep_ms = POLL_MS
        for descriptor in ready:
            if isinstance(descriptor, int) and descriptor in self._watched:
                then = self._watched[descriptor]
                self.unwatch(descriptor)
                then()
        if self._wake in ready:
            os.eventfd_read(self._wake)
        while self._calls:
            self._calls.popleft()()
        if self._socket in ready:
            self._receive()
        self._work.turn()

    def _receive(self) -> None:
        while True:
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._work.heard(frames)

    def _finish(self, cause: Exception | None) -> None:
        with self._lock:
            self._over = True
        try:
            self._work.ended(cause)
            while self._calls:  # whoever came too late hears how it ended
                self._calls.popleft()()
        finally:
            for descriptor in tuple(self._watched):
                self.unwatch(descriptor)
            self._socket.close(LINGER_MS)
            os.close(self._wake)
