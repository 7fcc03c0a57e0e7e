"""A real other process: runs a few lines of Python, says lines, is killed."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = 60.0


class Child:
    """Code of the child talks by ``print(..., flush=True)`` and ``input()``."""

    def __init__(self, code: str, *args: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *args],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.pid = self._process.pid
        self._heard = ""

    def hears(self) -> str:
        """The next line that it says."""
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        while "\n" not in self._heard:  # read by hand: a line in a buffer of Python's is not seen by select
            ready, _, _ = select.select([fd], [], [], SECONDS)
            assert ready, "the child says nothing"
            said = os.read(fd, 1 << 16).decode()
            assert said, "the child has ended"
            self._heard += said
        line, _, self._heard = self._heard.partition("\n")
        return line

    def tell(self, line: str = "") -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        assert self._process.wait(SECONDS) == -signal.SIGKILL

    def ends(self) -> int:
        return self._process.wait(SECONDS)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(SECONDS)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


@contextmanager
def child(code: str, *args: str) -> Iterator[Child]:
    made = Child(code, *args)
    try:
        yield made
    finally:
        made.close()
