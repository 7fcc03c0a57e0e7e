"""One process of the engine, from its start to the end of its whole group."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from socket import socketpair

from proctor.engines.base import EngineConfig
from proctor.supervise import death, wire
from proctor.supervise.childlog import ChildLog
from proctor.supervise.death import Death
from proctor.supervise.guard import Guard
from proctor.supervise.line import Line
from proctor.supervise.stacks import Stacks
from proctor.supervise.warden import END_SECONDS, end_group, mapped_segments, members, remove_segments

ENTRY = Path(__file__).with_name("entry.py")
MARK = "PROCTOR_ENGINE_GROUP"
STATUS_SECONDS = 1.0
POLL_SECONDS = 0.01


class EngineProcess:
    """A child that runs the engine in a session of its own.

    It is to be made by a thread that lives as long as the child may: the kernel ends the child with that thread.
    """

    def __init__(
        self,
        config: EngineConfig,
        log: ChildLog,
        guard: Guard,
        *,
        python: str | None = None,
        env: Mapping[str, str] | None = None,
        check_only: bool = False,
    ) -> None:
        """Starts the child.

        Raises:
            OSError: the interpreter cannot be run.
        """
        self._log, self._guard = log, guard
        self._segments: set[int] = set()
        own = f"{os.getpid()}-{time.monotonic_ns()}"
        self._mark = f"{MARK}={own}".encode()
        self._last_word: wire.Broken | wire.Fallen | None = None
        self._stacks = Stacks()
        ours, theirs = socketpair()
        try:
            with theirs:
                marked = {**(env or {}), MARK: own}
                self._process = _spawn(python, marked, log.descriptor, theirs.fileno(), self._stacks.descriptor)
        except BaseException:
            ours.close()
            self._stacks.close()
            raise
        self.pid = self._process.pid
        self.line = Line(ours)
        try:
            # Before it is told what to run, the child has no processes of its own that could outlive it.
            guard.watch(self.pid, self._mark)
        except BaseException:
            self.end()
            raise
        self.line.send(wire.Start(config, check_only))
        self.line.flush()

    def receive(self) -> list[wire.FromChild]:
        """What the child has said."""
        try:
            messages = self.line.receive()
        except wire.ProtocolError as error:
            self._last_word = wire.Broken(f"the engine's process sent what is no message: {error}", "ProtocolError")
            return []
        for message in messages:
            if isinstance(message, wire.Broken | wire.Fallen):
                self._last_word = self._last_word or message
            elif isinstance(message, wire.Loaded):
                self._segments |= mapped_segments(self.members())
                self._guard.clean_up(self._segments)
        return messages

    def death(self) -> Death | None:
        """How the child came to its end, if it did: to be asked after `receive`."""
        word = self._last_word
        if isinstance(word, wire.Broken):
            return death.by_exception(word, self._log.last_lines(before=word.printed))
        if word is not None:
            return death.by_status(word.status, self._log.last_lines(), f"{word.name} (process {word.pid})")
        if not self.line.ended and self._status() is None:
            return None
        give_up = time.monotonic() + STATUS_SECONDS
        while (status := self._status()) is None and time.monotonic() < give_up:
            time.sleep(POLL_SECONDS)
        return death.by_status(status, self._log.last_lines())

    def members(self) -> list[int]:
        """The processes of its group, and whoever left the group and still carries its mark."""
        return members(self.pid, self._mark)

    def kill(self, seconds: float = END_SECONDS) -> list[int]:
        """Kills all of them; returns those that are still there after `seconds`. Safe to call from any thread."""
        return end_group(self.pid, self._mark, seconds)

    def dump(self, path: Path, title: str) -> None:
        """Writes the stacks of the child to `path`."""
        self._stacks.dump(self.pid, self.members(), path, title)

    def finish(self, seconds: float) -> int:
        """Ends the feed and gives the engine up to `seconds` to close. Returns what `Counters.peak_bytes` is."""
        peak = sum(map(_peak_bytes, self.members()))
        self.line.end_feed()
        give_up = time.monotonic() + seconds
        while not self.line.ended and time.monotonic() < give_up:
            time.sleep(POLL_SECONDS)
            self.receive()
        return peak

    def end(self) -> tuple[list[wire.FromChild], list[int]]:
        """Kills the whole group, removes the shared memory it leaves behind and frees everything.

        Returns:
            What the child had still said, and processes that could not be killed.
        """
        self._segments |= mapped_segments(self.members())
        left = self.kill()
        messages = self._rest()
        if not left:
            self._guard.release()
            self._process.wait()
            remove_segments(self._segments)
        self.line.close()
        self._stacks.close()
        return messages, left

    def _rest(self) -> list[wire.FromChild]:
        messages = []
        while more := self.receive():
            messages += more
        return messages

    def _status(self) -> int | None:
        """Exit code, or the negative number of the signal; None while the child is alive. Does not reap it.

        As long as the child is not reaped its number cannot become that of another group.
        """
        with contextlib.suppress(ChildProcessError):
            result = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if result is None:
                return None
            return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status
        return 0


def _peak_bytes(pid: int) -> int:
    """Resident memory of a process at its highest (``VmHWM``, proc_pid_status(5)); 0 if it is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def _spawn(
    python: str | None, env: Mapping[str, str], output: int, connection: int, stacks: int
) -> subprocess.Popen[bytes]:
    inherited = dict(os.environ)
    if python is not None and python != sys.executable:
        # These name libraries of this environment, which are not for another interpreter.
        for name in ("PYTHONPATH", "PYTHONHOME"):
            inherited.pop(name, None)
    return subprocess.Popen(
        # -P: the folder of the script holds modules of this package, not top-level ones.
        [python or sys.executable, "-P", str(ENTRY), str(connection), str(stacks), str(os.getpid())],
        env={**inherited, **env},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=(connection, stacks),
        start_new_session=True,
    )
