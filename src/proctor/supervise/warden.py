"""Ends whole process groups and removes what they leave, even after the supervisor's own process was killed.

Run as a script this file is the warden: a small process that is told over a pipe which group to guard, and that ends
the group when the pipe closes, which happens however the supervisor ends. It imports next to nothing, so that it stays
small and starts fast.

A process belongs to a group by its process group, by its session, or by its mark: an entry of the environment that
only this group has. The mark finds those that left both (`setsid`), whoever their parent is by now; the others find
those that wrote over their environment, as vLLM's processes do to change their names.
"""

from __future__ import annotations

import os
import signal
import sys
import time

TYPE_CHECKING = False  # as in `typing`, which is larger than all of this
if TYPE_CHECKING:
    from collections.abc import Iterable

POLL_SECONDS = 0.01
END_SECONDS = 5.0
TRACKER_SECONDS = 0.5
TRACKER = b"multiprocessing.resource_tracker"
SHARED_MEMORY = b"/dev/shm/"
SEGMENT_PREFIXES = (b"psm_", b"sem.mp-")


def members(leader: int, mark: bytes = b"") -> list[int]:
    """Processes, zombies aside, of the group or the session that `leader` leads, and those that carry `mark`."""
    return [pid for pid in _processes() if _belongs(pid, leader, mark)]


def end_group(leader: int, mark: bytes = b"", seconds: float = END_SECONDS) -> list[int]:
    """Kills the group of `leader`, with all who carry `mark`, and waits until it is gone.

    The resource trackers of `multiprocessing` go last: left alone, one removes the shared memory that the others made.

    `leader` must be a child that was not waited for yet, or have members left: else its number may be another's.

    Returns:
        Processes that are still there after `seconds` (a driver call can make a process unkillable).
    """
    began = time.monotonic()
    patience = min(TRACKER_SECONDS, seconds / 2)
    while True:
        alive = members(leader, mark)
        passed = time.monotonic() - began
        for pid in alive:
            if passed >= patience or TRACKER not in _content(pid, "cmdline"):
                _kill(pid)
        if not alive or passed >= seconds:
            return alive
        time.sleep(POLL_SECONDS)


def mapped_segments(pids: Iterable[int]) -> set[int]:
    """Inodes of the shared memory that these processes have mapped.

    Not paths: a semaphore has lost its first name by the time it has the one that stays.
    """
    found = set()
    for pid in pids:
        for line in _content(pid, "maps").splitlines():
            if SHARED_MEMORY in line:
                found.add(int(line.split(None, 5)[4]))
    return found


def remove_segments(segments: Iterable[int]) -> list[bytes]:
    """Removes those of `segments` that `multiprocessing` named, that are this user's, and that nobody has mapped.

    Whoever made one unlinks it; after a kill nobody does.

    Returns:
        What was removed.
    """
    wanted = set(segments)
    if not wanted:
        return []
    wanted -= mapped_segments(_processes())
    with os.scandir(SHARED_MEMORY) as entries:
        left = [e.path for e in entries if e.name.startswith(SEGMENT_PREFIXES) and e.inode() in wanted]
    return [path for path in left if _unlink(path)]


def _processes() -> list[int]:
    with os.scandir("/proc") as entries:
        return [int(entry.name) for entry in entries if entry.name.isdecimal()]


def _belongs(pid: int, leader: int, mark: bytes) -> bool:
    # The command's name stands in brackets and may itself hold brackets and blanks.
    fields = _content(pid, "stat").rpartition(b")")[2].split()[:4]
    if len(fields) < 4 or fields[0] in (b"Z", b"X"):
        return False
    if leader in (int(fields[2]), int(fields[3])):
        return True
    return bool(mark) and mark in _content(pid, "environ").split(b"\0")


def _content(pid: int, name: str) -> bytes:
    """What the system tells of a process; empty if it is gone or another user's."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return b""


def _unlink(path: bytes) -> bool:
    try:
        if os.stat(path).st_uid != os.getuid():  # noqa: PTH116 (pathlib is too large for the warden)
            return False
        os.unlink(path)  # noqa: PTH108
    except OSError:
        return False
    return True


def _kill(target: int) -> None:
    try:
        os.kill(target, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def keep_watch() -> None:
    """The warden's life: reads what to guard, line by line, and ends the last group at the end.

    A line is a leader and its mark, or ``+`` and the inode of a segment that this group leaves behind.
    """
    # An orphan in a session of its own: whoever ends the supervisor together with its children or its process group
    # (Ray does both) does not end the warden.
    if os.fork():
        os._exit(0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    leader, mark, segments = 0, b"", set[int]()
    for line in sys.stdin.buffer:
        if line.startswith(b"+"):
            segments.add(int(line))
        else:
            first, _, mark = line[:-1].partition(b" ")
            leader, segments = int(first), set()
    if leader > 1:
        segments |= mapped_segments(members(leader, mark))
        end_group(leader, mark)
        remove_segments(segments)


if __name__ == "__main__":
    keep_watch()
