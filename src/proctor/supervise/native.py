"""Native stacks of the engine's processes, read from outside by pystack.

pystack needs nothing of the process it reads: not the interpreter's lock, no signal handler, no Python of the same
version. It runs in a short-lived process of its own for each, so that whatever it meets costs this time at most.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from typing import IO, NamedTuple

SECONDS = 6.0
UNSTOPPED_SECONDS = 3.0
MOST_PROCESSES = 24
MOST_BYTES = 256 << 10
POLL_SECONDS = 0.02
_PERMISSION = "; to allow it give the container the capability SYS_PTRACE, or set kernel.yama.ptrace_scope to 0 or 1"


def native_stacks(pids: Sequence[int], seconds: float = SECONDS) -> list[str]:
    """The stacks of each process, Python and native frames in one, or a line that says why there are none.

    A process inside a driver call cannot be stopped, and without that there are no native frames: its Python frames are
    then read as it is.

    Args:
        pids: the processes; all are read at once, at most `MOST_PROCESSES` of them.
        seconds: what is not read by then is given up.
    """
    if find_spec("pystack") is None:
        return ["(no native stacks: pystack is not installed)"]
    first = pids[:MOST_PROCESSES]
    found = dict(zip(first, _read(first, ("--native-all",), seconds), strict=True))
    again = [pid for pid in first if found[pid].failure]
    unstopped = dict(zip(again, _read(again, ("--no-block",), min(seconds, UNSTOPPED_SECONDS)), strict=True))
    told = []
    for pid in first:
        why = f"(no native stacks: {found[pid].failure})\n" if found[pid].failure else ""
        text = found[pid].text or (unstopped[pid].text if pid in unstopped else "")
        told.append(f"Native stacks of process {pid}:\n{why}{text}")
    left = len(pids) - len(first)
    return told + ([f"({left} more processes were not read)"] if left > 0 else [])


class _Found(NamedTuple):
    text: str
    failure: str


def _read(pids: Sequence[int], options: Sequence[str], seconds: float) -> list[_Found]:
    give_up = time.monotonic() + seconds
    readers = [_Reader(pid, options) for pid in pids]
    while any(reader.busy for reader in readers) and time.monotonic() < give_up:
        time.sleep(POLL_SECONDS)
    return [reader.end(seconds) for reader in readers]


class _Reader:
    """pystack at work on one process."""

    def __init__(self, pid: int, options: Sequence[str]) -> None:
        self._out: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `end`)
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        command = [sys.executable, "-P", "-m", "pystack", "remote", "--no-color", *options, str(pid)]
        self._process: subprocess.Popen[bytes] | None = None
        self._failure = ""
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=self._out, stderr=self._errors, start_new_session=True
            )
        except OSError as error:
            self._failure = f"pystack cannot be run: {error.strerror or error}"

    @property
    def busy(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def end(self, seconds: float) -> _Found:
        """What it has read, or why it has not. If it is still at work it is ended: the process it reads goes on."""
        if self._process is not None and self.busy:
            self._process.kill()
            self._failure = f"pystack was not done within {seconds:g} s"
        if self._process is not None and self._process.wait() != 0 and not self._failure:
            self._failure = _reason(_head(self._errors))
        text = _head(self._out)
        self._out.close()
        self._errors.close()
        return _Found(text, self._failure)


def _head(file: IO[bytes]) -> str:
    size = file.seek(0, 2)
    file.seek(0)
    text = file.read(MOST_BYTES).decode(errors="replace")
    return text if size <= MOST_BYTES else f"{text}\n({size - MOST_BYTES} bytes more)\n"


def _reason(errors: str) -> str:
    lines = [line.strip(" \U0001f480") for line in errors.splitlines() if line.strip()]
    line = lines[0] if lines else "pystack failed without a word"
    return line + (_PERMISSION if "not permitted" in line.lower() or "permission" in line.lower() else "")
