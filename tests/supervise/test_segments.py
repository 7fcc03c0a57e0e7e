"""Shared memory of `multiprocessing` that killed processes leave behind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proctor.supervise.guard import Guard
from proctor.supervise.warden import end_group, mapped_segments, members, remove_segments
from tests.supervise.helpers import wait_until

HOLDER = """
import sys
from multiprocessing import get_context, resource_tracker, shared_memory
segment = shared_memory.SharedMemory(create=True, size=4096)
lock = get_context("spawn").Lock()
if sys.argv[1] == "untracked":
    resource_tracker.unregister(segment._name, "shared_memory")
    resource_tracker.unregister(lock._semlock.name, "semaphore")
print("/dev/shm/" + segment.name, "/dev/shm/sem." + lock._semlock.name.lstrip("/"), flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(tracked: str = "untracked") -> Iterator[tuple[subprocess.Popen[bytes], list[Path]]]:
    """A process, in a session of its own, that has a segment and a semaphore and will not unlink them."""
    command = [sys.executable, "-W", "ignore", "-c", HOLDER, tracked]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        paths = [Path(name) for name in process.stdout.readline().decode().split()]
        try:
            assert [path.exists() for path in paths] == [True, True]
            yield process, paths
        finally:
            process.kill()
            process.wait()


def test_only_segments_that_nobody_holds_are_removed() -> None:
    with holder() as (process, paths):
        segments = mapped_segments([process.pid])
        assert {path.stat().st_ino for path in paths} <= segments
        assert remove_segments(segments) == []
        process.kill()
        process.wait()
        assert mapped_segments([process.pid]) == set()
        assert sorted(Path(name.decode()) for name in remove_segments(segments)) == sorted(paths)
        assert not any(path.exists() for path in paths)


def test_the_warden_removes_what_its_group_leaves_behind() -> None:
    with holder() as (process, paths):
        assert all(path.exists() for path in paths)
        guard = Guard()
        guard.watch(process.pid)
        guard.close()
        wait_until(lambda: not any(path.exists() for path in paths), seconds=5)


def test_the_warden_removes_what_it_was_told_of_even_if_the_holder_died_first() -> None:
    with holder() as (process, paths):
        guard = Guard()
        guard.watch(process.pid)
        guard.clean_up(mapped_segments([process.pid]))
        process.kill()
        process.wait()
        assert all(path.exists() for path in paths)
        guard.close()
        wait_until(lambda: not any(path.exists() for path in paths), seconds=5)


def test_a_resource_tracker_has_the_time_to_do_its_work() -> None:
    with holder("tracked") as (process, paths):
        wait_until(lambda: len(members(process.pid)) == 2)
        assert end_group(process.pid) == []
        assert members(process.pid) == []
        assert not any(path.exists() for path in paths)
