"""Ends whole process groups, and does so even after the supervisor's own process was killed.

Run as a script this file is the warden: a small process that is told over a pipe which group to guard, and that ends
the group when the pipe closes, which happens however the supervisor ends. It imports next to nothing, so that it stays
small and starts fast.
"""

from __future__ import annotations

import os
import signal
import sys
import time

POLL_SECONDS = 0.01
END_SECONDS = 5.0


def members(leader: int) -> list[int]:
    """Processes, zombies aside, of the group or the session that `leader` leads."""
    with os.scandir("/proc") as entries:
        return [int(entry.name) for entry in entries if entry.name.isdecimal() and _belongs(entry.path, leader)]


def _belongs(process: str, leader: int) -> bool:
    try:
        stat = os.open(process + "/stat", os.O_RDONLY)
        try:
            # The command's name stands in brackets and may itself hold brackets and blanks.
            state, _parent, group, session = os.read(stat, 4096).rpartition(b")")[2].split()[:4]
        finally:
            os.close(stat)
    except OSError:
        return False
    return leader in (int(group), int(session)) and state not in (b"Z", b"X")


def end_group(leader: int, seconds: float = END_SECONDS) -> list[int]:
    """Kills the group of `leader` and waits until it is gone.

    `leader` must be a child that was not waited for yet, or have members left: else its number may be another's.

    Returns:
        Processes that are still there after `seconds` (a driver call can make a process unkillable).
    """
    give_up = time.monotonic() + seconds
    while True:
        _kill(-leader)
        alive = members(leader)
        for pid in alive:
            _kill(pid)
        if not alive or time.monotonic() >= give_up:
            return alive
        time.sleep(POLL_SECONDS)


def _kill(target: int) -> None:
    try:
        os.kill(target, signal.SIGKILL)
    except ProcessLookupError:
        return


def keep_watch() -> None:
    """The warden's life: reads the leader of the group to guard, line by line, and ends the last at the end."""
    # An orphan in a session of its own: whoever ends the supervisor together with its children or its process group
    # (Ray does both) does not end the warden.
    if os.fork():
        os._exit(0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    leader = 0
    for line in sys.stdin.buffer:
        leader = int(line)
    if leader > 1:
        end_group(leader)


if __name__ == "__main__":
    keep_watch()
