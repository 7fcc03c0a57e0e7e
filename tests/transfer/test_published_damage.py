"""Published weights with something wrong in them: an error, and never tensors."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from proctor.transfer.arena import Arena
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.published import Published
from proctor.transfer.publishing import publish


def copied(published: Published, change: Callable[[bytearray], None]) -> Arena:
    """The same bytes in another arena, changed and sealed."""
    data = bytearray(Arena.attach(published.path).buffer)
    change(data)
    arena = Arena.create(len(data))
    arena.write(0, [memoryview(data)])
    arena.seal()
    return arena


def flipped(at: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        data[at] ^= 0x40

    return change


@pytest.mark.parametrize("at", [0, 7, 8, 16, 24, 32, 39, 40, 60, 100, 130])
def test_a_damaged_head_is_an_error(at: int) -> None:
    with publish({"a": torch.arange(40.0), "b": torch.arange(3)}) as published:
        with copied(published, flipped(at)) as arena, pytest.raises(TransferError) as caught:
            Published.attach(arena.path, verify=False)
        assert caught.value.reason in (Reason.CORRUPT, Reason.MISMATCH)


def test_damaged_data_is_an_error_that_names_the_tensor() -> None:
    with publish({"a": torch.arange(40.0), "b": torch.arange(3)}) as published:
        start = len(Arena.attach(published.path).buffer) - published.nbytes
        with copied(published, flipped(start + 5)) as arena:
            with pytest.raises(TransferError, match=r"checksum differs at a, b") as caught:
                Published.attach(arena.path)
            assert caught.value.reason is Reason.CORRUPT
            Published.attach(arena.path, verify=False).close()
        short = copied(published, lambda data: data.__setitem__(slice(-published.nbytes, None), b""))
        with short, pytest.raises(TransferError, match="does not fit"):
            Published.attach(short.path)


@given(st.integers(0, 399), st.integers(0, 255))
def test_no_change_of_any_byte_goes_unnoticed(at: int, value: int) -> None:
    with publish({"a": torch.arange(20.0), "b": torch.arange(3)}, name="x") as published:
        before = bytes(Arena.attach(published.path).buffer)
        head = struct.unpack_from("<8sQQQQ", before)[2] + 40
        where = at if at < head else len(before) - 1 - at  # what lies between head and data belongs to nothing
        if before[where] == value:
            return
        with copied(published, lambda data: data.__setitem__(where, value)) as arena, pytest.raises(TransferError):
            Published.attach(arena.path)


def test_other_memory_is_no_weights() -> None:
    for nbytes in (1, 39, 5000):
        with Arena.create(nbytes) as arena:
            arena.seal()
            with pytest.raises(TransferError, match="no published weights") as caught:
                Published.attach(arena.path)
            assert caught.value.reason is Reason.MISMATCH
