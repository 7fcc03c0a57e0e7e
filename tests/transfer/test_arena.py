"""Shared memory: reserved, sealed, found again, gone with its last user. With real other processes."""

from __future__ import annotations

import contextlib
import errno
import gc
import mmap
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
from tests.transfer.child import child

PAGE = mmap.PAGESIZE


def filled(nbytes: int = 3 * PAGE, *, prefault: bool = False) -> Arena:
    arena = Arena.create(nbytes, prefault=prefault)
    arena.write(0, [memoryview(bytes(range(256)) * (nbytes // 256))])
    return arena


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


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


@pytest.mark.parametrize("prefault", [False, True])
def test_parts_land_one_behind_the_other(prefault: bool) -> None:
    with Arena.create(2 * PAGE, prefault=prefault) as arena:
        arena.write(10, [memoryview(b"abc"), memoryview(b""), memoryview(b"de")])
        assert bytes(arena.buffer[9:16]) == b"\0abcde\0"
        many = [memoryview(bytes([number % 256])) for number in range(3000)]  # more than one system call takes
        arena.write(100, many)
        assert bytes(arena.buffer[100:3100]) == b"".join(many)


@pytest.mark.parametrize("offset", [-1, PAGE - 2, PAGE])
def test_nothing_is_written_outside(offset: int) -> None:
    with Arena.create(PAGE) as arena, pytest.raises(ValueError, match="are not in an arena of"):
        arena.write(offset, [memoryview(b"abc")])


@pytest.mark.parametrize("prefault", [False, True])
def test_what_is_sealed_cannot_change(prefault: bool) -> None:
    with filled(prefault=prefault) as arena:
        assert not arena.sealed
        arena.seal()
        assert arena.sealed
        with pytest.raises(TransferError, match="not open for writing"):
            arena.write(0, [memoryview(b"x")])
        fd = os.open(arena.path.partition("#")[0], os.O_RDWR)
        try:
            with pytest.raises(PermissionError):
                os.pwrite(fd, b"x", 0)
            with pytest.raises(PermissionError):
                os.ftruncate(fd, 0)
            with pytest.raises(PermissionError):
                mmap.mmap(fd, PAGE, flags=mmap.MAP_SHARED, prot=mmap.PROT_WRITE)
        finally:
            os.close(fd)


def test_its_length_is_final_from_the_start() -> None:
    with Arena.create(PAGE) as arena:
        fd = os.open(arena.path.partition("#")[0], os.O_RDWR)
        try:
            for nbytes in (0, PAGE // 2, 2 * PAGE):
                with pytest.raises(PermissionError):
                    os.ftruncate(fd, nbytes)
        finally:
            os.close(fd)


def test_a_reader_writes_to_a_page_of_its_own() -> None:
    with filled() as arena:
        arena.seal()
        with Arena.attach(arena.path) as one, Arena.attach(arena.path) as other:
            assert not one.buffer.readonly
            one.buffer[5] = 99
            assert (one.buffer[5], other.buffer[5], arena.buffer[5]) == (99, 5, 5)


def test_nobody_attaches_before_it_is_sealed() -> None:
    with filled() as arena:
        with pytest.raises(TransferError, match="not sealed") as caught:
            Arena.attach(arena.path)
        assert caught.value.reason is Reason.MISMATCH
        with Arena.attach(arena.path, "read") as live:  # somebody who knows that it changes
            assert live.buffer.readonly
            arena.write(0, [memoryview(b"z")])
            assert live.buffer[0] == ord("z")
            with pytest.raises(TransferError, match="not open for writing"):
                live.write(0, [memoryview(b"z")])
        with Arena.attach(arena.path, "write") as both:
            both.write(1, [memoryview(b"y")])
            assert arena.buffer[1] == ord("y")


def test_it_is_not_sealed_while_somebody_can_write() -> None:
    with filled() as arena:
        view = arena.buffer
        with pytest.raises(TransferError, match="still mapped for writing"):
            arena.seal()
        assert not arena.sealed
        arena.write(0, [memoryview(b"q")])
        del view
        arena.seal()
        assert arena.buffer[0] == ord("q")


def test_only_its_maker_writes_if_it_says_so() -> None:
    with filled() as arena:
        arena.keep_to_myself()
        arena.write(0, [memoryview(b"mine")])
        with pytest.raises(TransferError, match="nobody else writes"):
            Arena.attach(arena.path, "write")
        with Arena.attach(arena.path, "read") as other:
            assert bytes(other.buffer[:4]) == b"mine"
        fd = os.open(arena.path.partition("#")[0], os.O_RDWR)
        try:
            with pytest.raises(PermissionError):
                os.pwrite(fd, b"x", 0)
        finally:
            os.close(fd)
        arena.seal()
        with pytest.raises(TransferError, match="not open for writing"):
            arena.keep_to_myself()


def test_a_view_outlives_everything() -> None:
    arena = filled()
    arena.seal()
    other = Arena.attach(arena.path)
    view = np.frombuffer(other.buffer, np.uint8)
    arena.close()
    other.close()
    del arena, other
    gc.collect()
    assert view[:256].tolist() == list(range(256))
    view[0] = 7
    assert view[0] == 7


def test_closed_is_closed() -> None:
    arena = filled()
    path = arena.path
    arena.close()
    arena.close()
    with pytest.raises(ValueError, match="closed"):
        _ = arena.path
    with pytest.raises(ValueError, match="closed"):
        arena.write(0, [memoryview(b"x")])
    with pytest.raises(TransferError) as caught:
        Arena.attach(path)
    assert caught.value.reason in (Reason.DEAD, Reason.MISMATCH)  # its number may belong to something else already


def test_what_came_next_is_not_taken_for_it() -> None:
    """A number of a descriptor is used again at once, and both are sealed and sound."""
    arena = filled()
    arena.seal()
    path = arena.path
    arena.close()
    with filled() as other:
        other.seal()
        assert other.path != path
        assert other.path.partition("#")[0] == path.partition("#")[0]
        with pytest.raises(TransferError, match="other memory is in its place") as caught:
            Arena.attach(path)
        assert caught.value.reason is Reason.DEAD


def test_fifty_of_them_leave_no_descriptor() -> None:
    before = descriptors()
    for _ in range(50):
        arena = filled()
        arena.seal()
        other = Arena.attach(arena.path)
        other.prefetch()
        assert other.buffer[1] == 1
        other.close()  # and the first is only forgotten
    del arena, other
    gc.collect()
    assert descriptors() == before


@pytest.mark.parametrize("path", ["", "/dev/shm/x", "/proc/self/fd/0", "/proc/1/fd/../mem", "/proc/1/fd/1/", "x"])
def test_only_paths_of_descriptors_are_opened(path: str) -> None:
    with pytest.raises(UserError, match="not the path of shared memory"):
        Arena.attach(path)


def test_what_is_something_else_is_refused(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    plain = os.memfd_create("plain")
    try:
        for fd in (read_end, write_end, file, plain):
            with pytest.raises(TransferError) as caught:
                Arena.attach(memory.path_of(fd), "read")
            assert caught.value.reason is Reason.MISMATCH
    finally:
        for fd in (read_end, write_end, file, plain):
            os.close(fd)


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
    assert descriptors() == before


def test_more_than_there_is_is_an_error_here() -> None:
    before = descriptors()
    with pytest.raises(UserError, match=r"no room for .* bytes of shared memory: .* are free"):
        Arena.create(1 << 60)
    assert descriptors() == before


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
    assert descriptors() == before


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
    assert descriptors() == before


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


def test_no_room_is_no_sigbus() -> None:
    """All of it is reserved: `st_blocks` counts it before a byte is written."""
    with Arena.create(64 * PAGE) as arena:
        assert Path(arena.path.partition("#")[0]).stat().st_blocks * 512 >= 64 * PAGE
