"""The supervisor's hold on its warden."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterable

from proctor.supervise import warden


class Guard:
    """Has the child's group ended even when this process is killed: an engine may start processes of its own (vLLM
    does), those outlive their parent, and the parent-death signal reaches only the child itself.
    """

    def __init__(self) -> None:
        self._warden: subprocess.Popen[bytes] | None = None

    def watch(self, leader: int, mark: bytes = b"") -> None:
        """From now on the group of `leader`, with all who carry `mark`, ends when this process does."""
        line = b"%d %s\n" % (leader, mark)
        if not self._tell(line):
            self.close()  # there is no warden yet, or somebody ended it
            self._start()
            self._tell(line)

    def clean_up(self, segments: Iterable[int]) -> None:
        """The shared memory with these inodes is the group's, and is removed with it."""
        self._tell(b"".join(b"+%d\n" % inode for inode in segments))

    def release(self) -> None:
        """There is nothing to watch any more."""
        self._tell(b"0\n")

    def close(self) -> None:
        """Ends the warden, and with it the group that it still watches."""
        if self._warden is not None and self._warden.stdin is not None:
            with contextlib.suppress(OSError):
                self._warden.stdin.close()
        self._warden = None

    def _start(self) -> None:
        self._warden = subprocess.Popen(
            [sys.executable, "-I", "-S", warden.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd="/",
            start_new_session=True,
        )
        self._warden.wait()  # it goes on as an orphan

    def _tell(self, lines: bytes) -> bool:
        if self._warden is None or self._warden.stdin is None:
            return False
        try:
            self._warden.stdin.write(lines)
        except OSError:
            return False
        return True
