"""The driver's end of a tracker's process."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import uuid
from queue import Empty, SimpleQueue
from typing import IO, Protocol

import msgspec

from proctor.trackers.messages import Failed, Open, Reply, Request
from proctor.trackers.processes import MARK, end_marked
from proctor.trackers.redaction import redacted

_MODULE = "proctor.trackers.child"
_OUTPUT = 2000
"""Bytes from the end of what the process printed that are looked at when it has died."""


class Courier(Protocol):
    """Does one request at a time in a process of its own; nothing here waits for it."""

    def ask(self, request: Request) -> None:
        """Hands over a request, once the one before has been answered."""

    def reply(self) -> Reply | None:
        """The next answer, None while there is none. The end of the process is a `Failed`."""

    def end(self) -> None:
        """Ends the process with everything that it has started. May be called by any thread, and more than once."""


class ProcessCourier:
    """Starts the process that serves the tracker `message` is for.

    Must be made by a thread that lives as long as the process may: Linux ends it with that thread.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, message: Open) -> None:
        self._mark = uuid.uuid4().hex
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `end`; has no name, so it is in no run directory)
        self._ended = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._output,
            env={**os.environ, MARK: self._mark, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
        self._replies: SimpleQueue[Reply] = SimpleQueue()
        assert self._process.stdout is not None
        threading.Thread(
            target=self._read, args=(self._process.stdout,), name="proctor-tracker-read", daemon=True
        ).start()
        self.ask(message)

    def ask(self, request: Request) -> None:
        """Hands over a request; a process that is gone is noticed by its missing reply."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # ValueError: `end` has closed the pipe
            self._process.stdin.write(msgspec.json.encode(request) + b"\n")
            self._process.stdin.flush()

    def reply(self) -> Reply | None:
        """The next answer, None while there is none."""
        try:
            return self._replies.get_nowait()
        except Empty:
            return None

    def end(self) -> None:
        """Ends the process and what it has started."""
        if not self._ended.acquire(blocking=False):
            return
        end_marked(self._mark, self._process.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        for stream in (self._process.stdin, self._output):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]

    def _read(self, stdout: IO[bytes]) -> None:
        with stdout:
            for line in stdout:
                try:
                    self._replies.put(msgspec.json.decode(line, type=Reply))
                except msgspec.MsgspecError:
                    break
        self._replies.put(Failed(f"its process ended{self._last_output()}"))

    def _last_output(self) -> str:
        try:
            size = os.fstat(self._output.fileno()).st_size
            text = os.pread(self._output.fileno(), _OUTPUT, max(0, size - _OUTPUT)).decode("utf-8", "replace")
        except (OSError, ValueError):
            return ""
        last = text.strip().rpartition("\n")[2]
        return f": {redacted(last)}" if last else ""
