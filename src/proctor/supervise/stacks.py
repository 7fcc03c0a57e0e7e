"""Evidence of a stall, taken before the child is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from proctor.supervise.native import native_stacks

DUMP_SECONDS = 1.0
QUIET_SECONDS = 0.05


class Stacks:
    """A descriptor in memory to which the child's `faulthandler` writes when it gets SIGUSR1.

    `faulthandler` does so from C, inside the signal handler, so also while some call holds the interpreter's lock.
    """

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("stacks", os.MFD_CLOEXEC)

    def dump(self, child: int, group: list[int], path: Path, title: str) -> None:
        """Writes to `path` what the system knows of every thread of the group, and their stacks.

        First the Python stacks of `child` as its `faulthandler` writes them, which needs no permission; then the stacks
        of the whole `group` as pystack reads them, which also shows a child that is stopped, or stuck in a driver call.
        Takes a second or two, ten at most.
        """
        states = [line for pid in group for line in thread_states(pid)]
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGUSR1)
        python = self._await() or "(none: the process did not run its signal handler)\n"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            file.write("\n".join([title, "", "Threads:", *states, "", f"Python stacks of process {child}:", python]))
            file.flush()  # so much is there, whatever happens next
            file.write("\n" + "\n".join(native_stacks(group)))

    def close(self) -> None:
        """Closes the descriptor."""
        os.close(self.descriptor)

    def _await(self) -> str:
        give_up = time.monotonic() + DUMP_SECONDS
        size = 0
        while time.monotonic() < give_up:
            time.sleep(QUIET_SECONDS)
            before, size = size, os.fstat(self.descriptor).st_size
            if size and size == before:
                break
        return os.pread(self.descriptor, size, 0).decode(errors="replace")


def thread_states(pid: int) -> list[str]:
    """One line for each thread of a process: its name, its state and where in the kernel it waits."""
    lines = []
    for task in sorted(Path(f"/proc/{pid}/task").glob("*"), key=lambda path: int(path.name)):
        with contextlib.suppress(OSError):
            status = (task / "status").read_text()
            fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
            waits = (task / "wchan").read_text().strip("0")
            lines.append(f"  {pid}/{task.name} {fields['Name']}: {fields['State']}{', in ' + waits if waits else ''}")
    return lines
