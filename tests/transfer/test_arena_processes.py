"""Shared memory among real other processes that are killed, and memory that is not there."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import uuid
from pathlib import Path

import numpy as np
import pytest

from proctor.rows import UserError
from proctor.transfer import memory
from proctor.transfer.arena import Arena
from proctor.transfer.errors import Reason, TransferError
from tests.leaks import descriptors
from tests.transfer.arenas import PAGE, filled
from tests.transfer.child import child


def users(name: str) -> set[int]:
    """Processes of this machine that have the memory of that name open or mapped. It is freed when there is none."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        told = []
        with contextlib.suppress(OSError):  # it ends just now, or is another user's
            told.append((process / "maps").read_text())
            for fd in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    told.append(str(fd.readlink()))
        if f"memfd:{name}" in "\n".join(told):
            found.add(int(process.name))
    return found


def test_a_reader_in_another_process() -> None:
    code = """
        import sys
        from proctor.transfer.arena import Arena
        arena = Arena.attach(input())
        print(sum(arena.buffer), flush=True)
        input()
        print(sum(arena.buffer), flush=True)
    """
    arena = filled()
    arena.seal()
    told = str(sum(arena.buffer))
    with child(code) as reader:
        reader.tell(arena.path)
        assert reader.hears() == told
        arena.close()
        reader.tell()
        assert reader.hears() == told
        assert reader.ends() == 0


MAKER = """
    import sys
    from proctor.transfer.arena import Arena
    arena = Arena.create(1 << 20, name=sys.argv[1])
    arena.write(0, [memoryview(bytes([7]) * (1 << 20))])
    if sys.argv[2] == "sealed":
        arena.seal()
    print(arena.path, flush=True)
    input()
"""


@pytest.mark.parametrize("state", ["sealed", "written"])
def test_a_killed_maker_leaves_nothing(state: str) -> None:
    name = f"test-{uuid.uuid4().hex}"
    with child(MAKER, name, state) as maker:
        path = maker.hears()
        assert users(name) == {maker.pid}
        maker.kill()
        assert users(name) == set()
        with pytest.raises(TransferError) as caught:
            Arena.attach(path)
        assert caught.value.reason is Reason.DEAD
    assert not [file for file in Path("/dev/shm").iterdir() if name in file.name]


def test_a_reader_keeps_what_a_killed_maker_made() -> None:
    name = f"test-{uuid.uuid4().hex}"
    with child(MAKER, name, "sealed") as maker:
        arena = Arena.attach(maker.hears())
        view = np.frombuffer(arena.buffer, np.uint8)
        maker.kill()
    assert users(name) == {os.getpid()}
    arena.close()
    assert (view.min(), view.max()) == (7, 7)
    assert users(name) == {os.getpid()}
    del view, arena
    assert users(name) == set()


def test_a_killed_reader_costs_its_maker_nothing() -> None:
    code = """
        from proctor.transfer.arena import Arena
        arena = Arena.attach(input())
        arena.buffer[0] = 9
        print("here", flush=True)
        input()
    """
    before = descriptors()
    with filled() as arena:
        arena.seal()
        with child(code) as reader:
            reader.tell(arena.path)
            assert reader.hears() == "here"
            reader.kill()
        assert arena.buffer[0] == 0
        with Arena.attach(arena.path) as again:
            assert again.buffer[1] == 1
    assert descriptors() <= before


def test_more_than_there_is_is_an_error_here() -> None:
    before = descriptors()
    with pytest.raises(UserError, match=r"no room for .* bytes of shared memory: .* are free"):
        Arena.create(1 << 60)
    assert descriptors() <= before


def test_a_real_limit_is_an_error_here() -> None:
    """A memfd has no tmpfs that could be full; the limit on files is what the kernel really refuses one by."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = descriptors()
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(UserError, match="no room for 2,097,152 bytes of shared memory: File too large"):
            Arena.create(2 << 20)
        Arena.create(1 << 19).close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert descriptors() <= before


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.ENOMEM])
def test_a_full_memory_is_an_error_here(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: neither can be had from a real memfd without taking the machine's memory."""

    def full(fd: int, offset: int, length: int) -> None:
        raise OSError(number, os.strerror(number))

    before = descriptors()
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(UserError, match=os.strerror(number)) as caught:
        Arena.create(PAGE, name="ck-7")
    assert caught.value.where == "ck-7"
    assert descriptors() <= before


def test_a_containers_limit_counts(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    4000 kB\n")
    assert memory.free_bytes(tmp_path) == 4000 << 10
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.current").write_text("900\n")
    (group / "memory.stat").write_text("anon 400\ninactive_file 300\n")
    (group / "memory.max").write_text("max\n")
    assert memory.free_bytes(tmp_path) == 4000 << 10
    (group / "memory.max").write_text("1000\n")
    assert memory.free_bytes(tmp_path) == 400
    (tmp_path / "proc/self").mkdir()
    (tmp_path / "proc/self/cgroup").write_text("1:name=systemd:/x\n0::/user.slice/mine\n")
    inner = group / "user.slice/mine"
    inner.mkdir(parents=True)
    assert memory.free_bytes(tmp_path) == 400
    for name, text in (("memory.max", "500"), ("memory.current", "450"), ("memory.stat", "inactive_file 0")):
        (inner / name).write_text(text)
    assert memory.free_bytes(tmp_path) == 50


def test_no_room_is_no_sigbus() -> None:
    """All of it is reserved: `st_blocks` counts it before a byte is written."""
    with Arena.create(64 * PAGE) as arena:
        assert Path(arena.path.partition("#")[0]).stat().st_blocks * 512 >= 64 * PAGE


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_another_user_gets_nothing() -> None:
    code = """
        import os
        from proctor.rows import UserError
        from proctor.transfer.arena import Arena
        os.setgid(65534)
        os.setuid(65534)
        try:
            Arena.attach(input())
        except UserError as error:
            print(error.what, flush=True)
    """
    with filled() as arena, child(code) as stranger:
        arena.seal()
        stranger.tell(arena.path)
        assert stranger.hears() == "shared memory of another user"
