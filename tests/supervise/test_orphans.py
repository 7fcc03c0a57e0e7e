"""Whatever becomes of the supervisor's process, nothing of the engine's group stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from proctor.engines import Fault
from proctor.supervise.guard import Guard
from proctor.supervise.warden import end_group, members
from tests.supervise.helpers import Supervised, process_gone, scripted, wait_until

Start = Callable[..., Supervised]
ROOT = Path(__file__).parents[2]

OWNER = """
import sys
from pathlib import Path
from tests.supervise.helpers import Supervised, ask, scripted
from proctor.supervise.warden import members

def main():
    directory = Path(sys.argv[1])
    one = Supervised(scripted(directory, row_ms=50, helpers=2), directory)
    futures = [one.supervisor.submit(ask(row)) for row in range(1000)]
    futures[2].result()
    print(*members(one.supervisor._loop.engine.pid), flush=True)
    for future in futures:
        future.result()

main()
"""


@contextmanager
def owner(directory: Path) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """A process that supervises an engine at work, and the processes of that engine."""
    command = [sys.executable, "-c", OWNER, str(directory)]
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}) as process:
        try:
            assert process.stdout is not None
            pids = [int(pid) for pid in process.stdout.readline().split()]
            assert len(pids) == 3
            yield process, pids
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_nothing_survives_a_killed_supervisor(tmp_path: Path, number: signal.Signals) -> None:
    with owner(tmp_path) as (process, pids):
        os.kill(process.pid, number)
        wait_until(lambda: all(map(process_gone, pids)), seconds=5)
        process.wait()
        assert process.returncode == -number


def test_nothing_survives_when_the_children_are_killed_along(tmp_path: Path) -> None:
    with owner(tmp_path) as (process, pids):
        children = psutil.Process(process.pid).children()
        assert [child.pid for child in children] == [min(pids)]
        for child in children:
            child.kill()
        process.kill()
        wait_until(lambda: all(map(process_gone, pids)), seconds=5)


def test_helpers_end_with_a_crashed_engine(supervise: Start, tmp_path: Path) -> None:
    one = supervise(scripted(tmp_path, Fault("exit", rows=(5,), times=1), helpers=2))
    one.answers([1])
    engine = one.supervisor._loop.engine
    assert engine is not None
    first = members(engine.pid)
    assert len(first) == 3
    one.answers(range(4, 9))
    assert all(map(process_gone, first))
    one.supervisor.close()
    assert not [child for child in psutil.Process().children(recursive=True) if child.name() == "sleep"]


def test_a_group_is_ended_whole_even_if_stopped() -> None:
    script = "sleep 100 & sleep 100 & kill -STOP $$; wait"
    leader = subprocess.Popen(["sh", "-c", script], start_new_session=True)
    wait_until(lambda: len(members(leader.pid)) == 3)
    group = members(leader.pid)
    assert end_group(leader.pid) == []
    assert leader.wait() == -signal.SIGKILL
    assert all(map(process_gone, group))
    assert members(leader.pid) == []


def test_a_member_that_left_the_group_but_not_the_session_is_ended() -> None:
    script = "import os, time; os.fork() or os.setpgid(0, 0); time.sleep(100)"
    leader = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    wait_until(lambda: len({os.getpgid(pid) for pid in members(leader.pid)}) == 2)
    group = members(leader.pid)
    end_group(leader.pid)
    leader.wait()
    assert all(map(process_gone, group))


STRAY = """
import os, sys, time
if not os.fork():
    os.setsid()
    if not os.fork():
        time.sleep(100)
    os._exit(0)
time.sleep(100)
"""


def strays(leader: int, mark: str) -> list[int]:
    """Processes with the mark that the leader did not start itself, as soon as what started them is gone."""
    found = set(members(leader, mark.encode())) - {leader}
    with suppress(psutil.NoSuchProcess):
        return [] if any(psutil.Process(pid).ppid() in {leader, *found} for pid in found) else list(found)
    return []


@pytest.mark.parametrize("by_warden", [False, True])
def test_a_process_that_left_group_and_session_is_found_by_its_mark(by_warden: bool) -> None:
    mark = f"PROCTOR_TEST_MARK={os.getpid()}-{by_warden}"
    name, _, value = mark.partition("=")
    leader = subprocess.Popen([sys.executable, "-c", STRAY], start_new_session=True, env={**os.environ, name: value})
    wait_until(lambda: len(strays(leader.pid, mark)) == len(members(leader.pid)) == 1)
    (stray,) = strays(leader.pid, mark)
    if by_warden:
        guard = Guard()
        guard.watch(leader.pid, mark.encode())
        guard.close()
    else:
        leader.kill()
        leader.wait()
        assert end_group(leader.pid, mark.encode()) == []
    wait_until(lambda: process_gone(stray) and process_gone(leader.pid), seconds=5)
    leader.wait()


def test_the_warden_ends_only_what_it_watches_last() -> None:
    sleepers = [subprocess.Popen(["sleep", "100"], start_new_session=True) for _ in range(3)]
    guard = Guard()
    for sleeper in sleepers[:2]:
        guard.watch(sleeper.pid)
    guard.close()
    assert sleepers[1].wait(timeout=5) == -signal.SIGKILL
    guard.watch(sleepers[2].pid)
    guard.release()
    guard.close()
    assert sleepers[0].poll() is None
    assert sleepers[2].poll() is None
    for sleeper in sleepers:
        sleeper.kill()
        sleeper.wait()


def warden_of(guard: Guard) -> psutil.Process:
    """The process at the other end of the guard's pipe."""
    assert guard._warden is not None
    assert guard._warden.stdin is not None
    pipe = os.fstat(guard._warden.stdin.fileno()).st_ino
    for process in psutil.process_iter(["cmdline"]):
        if "warden.py" in " ".join(process.info["cmdline"] or ()):
            with suppress(OSError):
                if Path(f"/proc/{process.pid}/fd/0").stat().st_ino == pipe:
                    return process
    raise AssertionError("there is no warden")


def test_a_warden_that_was_ended_is_replaced() -> None:
    sleeper = subprocess.Popen(["sleep", "100"], start_new_session=True)
    guard = Guard()
    guard.watch(1 << 30)
    warden = warden_of(guard)
    warden.kill()
    wait_until(lambda: process_gone(warden.pid))
    guard.watch(sleeper.pid)
    guard.close()
    assert sleeper.wait(timeout=5) == -signal.SIGKILL


def ignores(pid: int, number: signal.Signals) -> bool:
    """Whether the process ignores this signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    mask = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn")), 16)
    return bool(mask >> (number - 1) & 1)


def test_a_warden_is_a_small_orphan_that_does_not_heed_signals() -> None:
    guard = Guard()
    guard.watch(1 << 30)
    warden = warden_of(guard)
    assert warden.ppid() != os.getpid()
    assert os.getsid(warden.pid) != os.getsid(0)
    assert warden.memory_info().rss < 16 << 20
    wait_until(lambda: ignores(warden.pid, signal.SIGTERM))
    warden.terminate()
    guard.release()
    assert warden.is_running()
    guard.close()
    wait_until(lambda: process_gone(warden.pid))
