"""Shared memory: reserved, sealed, found again, gone with its last user. With real other processes."""

from __future__ import annotations

import gc
import mmap
import os
from pathlib import Path

import numpy as np
import pytest

from proctor.rows import UserError
from proctor.transfer import memory
from proctor.transfer.arena import Arena
from proctor.transfer.errors import Reason, TransferError
from tests.leaks import descriptors
from tests.transfer.arenas import PAGE, filled


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
    assert descriptors() <= before


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
