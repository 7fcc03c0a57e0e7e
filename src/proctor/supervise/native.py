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
from typing import IO

SECONDS = 8.0
MOST_PROCESSES = 24
MOST_BYTES = 256 << 10
POLL_SECONDS = 0.02
_PERMISSION = "; to allow it give the container the capability SYS_PTRACE, or set kernel.yama.ptrace_scope to 0 or 1"


def native_stacks(pids: Sequence[int], seconds: float = SECONDS) -> list[str]:
    """The stacks of each process, Python and native frames in one, or a line that says why there are none.

    Args:
        pids: the processes; all are read at once, at most `MOST_PROCESSES` of them.
        seconds: what is not read by then is given up.
    """
    if find_spec("pystack") is None:
        return ["(no native stacks: pystack is not installed)"]
    give_up = time.monotonic() + seconds
    readers = [_Reader(pid) for pid in pids[:MOST_PROCESSES]]
    while any(reader.busy for reader in readers) and time.monotonic() < give_up:
        time.sleep(POLL_SECONDS)
    told = [reader.end(seconds) for reader in readers]
    left = len(pids) - len(readers)
    return told + ([f"({left} more processes were not read)"] if left > 0 else [])


class _Reader:
    """pystack at work on one process."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._out: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `end`)
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        command = [sys.executable, "-P", "-m", "pystack", "remote", "--no-color", "--native-all", str(pid)]
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

    def end(self, seconds: float) -> str:
        """What it has read, or why it has not. If it is still at work it is ended: the process it reads goes on."""
        if self._process is not None and self.busy:
            self._process.kill()
            self._failure = f"pystack was not done within {seconds:g} s"
        text = _head(self._out)
        if self._process is not None and self._process.wait() != 0 and not self._failure:
            self._failure = _reason(_head(self._errors))
        self._out.close()
        self._errors.close()
        why = f"(no native stacks: {self._failure})\n" if self._failure else ""
        return f"Native stacks of process {self._pid}:\n{why}{text}"


def _head(file: IO[bytes]) -> str:
    size = file.seek(0, 2)
    file.seek(0)
    text = file.read(MOST_BYTES).decode(errors="replace")
    return text if size <= MOST_BYTES else f"{text}\n({size - MOST_BYTES} bytes more)\n"


def _reason(errors: str) -> str:
    lines = [line.strip(" \U0001f480") for line in errors.splitlines() if line.strip()]
    line = lines[0] if lines else "pystack failed without a word"
    return line + (_PERMISSION if "not permitted" in line.lower() or "permission" in line.lower() else "")
