from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from proctor.rows import UserError
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.kv.memory import EDGE, Attached, Memory
from tests.leaks import descriptors


def written(memory: Memory, slot: int, generation: int, byte: int) -> None:
    memory.begin(slot)
    memory.room(slot)[:] = byte
    memory.commit(slot, generation)


def test_a_reader_sees_what_was_written():
    memory = Memory(3, 512)
    readers = Attached(memory.region)
    for slot in range(3):
        written(memory, slot, 7 + slot, 40 + slot)
    for slot in range(3):
        target = np.zeros(300, np.uint8)
        readers.read(slot, 7 + slot, target)
        assert (target == 40 + slot).all()
    readers.close()
    memory.close()


def test_a_slot_that_was_given_back_or_used_again_is_seen():
    memory = Memory(1, 512)
    reader, target = Attached(memory.region), np.zeros(512, np.uint8)
    written(memory, 0, 1, 9)
    memory.begin(0)
    with pytest.raises(TransferError, match="holds generation none, 1 was offered") as freed:
        reader.read(0, 1, target)
    written(memory, 0, 2, 9)
    with pytest.raises(TransferError, match="holds generation 2, 1 was offered") as reused:
        reader.read(0, 1, target)
    assert (freed.value.reason, reused.value.reason) == (Reason.EXPIRED, Reason.EXPIRED)
    reader.close()
    memory.close()


def test_a_slot_that_is_used_again_while_it_is_copied_is_seen(monkeypatch: pytest.MonkeyPatch):
    memory = Memory(1, 512)
    reader, target = Attached(memory.region), np.zeros(512, np.uint8)
    written(memory, 0, 1, 9)
    plain = np.copyto

    def slow(to: object, source: object) -> None:
        plain(to[:100], source[:100])  # type: ignore[index]
        written(memory, 0, 2, 88)
        plain(to[100:], source[100:])  # type: ignore[index]

    monkeypatch.setattr(np, "copyto", slow)
    with pytest.raises(TransferError, match="holds generation 2"):
        reader.read(0, 1, target)
    monkeypatch.undo()
    reader.close()
    memory.close()


def test_bytes_that_run_over_the_end_of_a_slot_are_seen():
    memory = Memory(2, 512)
    reader, target = Attached(memory.region), np.zeros(512, np.uint8)
    written(memory, 0, 1, 9)
    memory._bytes[EDGE + EDGE + 512] ^= 1  # the first byte behind the room of slot 0
    with pytest.raises(TransferError):
        reader.read(0, 1, target)
    reader.close()
    memory.close()


@pytest.mark.parametrize(("slot", "nbytes"), [(-1, 10), (2, 10), (0, 513)])
def test_a_place_that_is_none_is_refused(slot: int, nbytes: int):
    memory = Memory(2, 512)
    reader = Attached(memory.region)
    with pytest.raises(TransferError, match="there is none") as refused:
        reader.read(slot, 1, np.zeros(nbytes, np.uint8))
    assert refused.value.reason is Reason.MISMATCH
    reader.close()
    memory.close()


def test_another_memory_is_not_attached():
    memory, other = Memory(2, 512), Memory(2, 512)
    with pytest.raises(TransferError, match="not the sender's memory"):
        Attached(replace(memory.region, path=other.region.path))
    with pytest.raises(TransferError, match="another size"):
        Attached(replace(memory.region, slots=3))
    memory.close()
    with pytest.raises((TransferError, UserError)):
        Attached(memory.region)
    other.close()


def test_a_reader_cannot_write():
    memory = Memory(1, 512)
    script = (
        "import mmap, os, sys\n"
        "file = os.open(sys.argv[1].partition('#')[0], os.O_RDWR)\n"
        "try:\n    mmap.mmap(file, 0)\nexcept PermissionError:\n    sys.exit(7)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, memory.region.path.partition("#")[0]], check=False)
    assert done.returncode == 7
    memory.close()


def test_nothing_is_left_open():
    before = descriptors()
    for _ in range(20):
        memory = Memory(4, 1024)
        reader = Attached(memory.region)
        written(memory, 1, 1, 5)
        reader.read(1, 1, np.zeros(1024, np.uint8))
        reader.close()
        memory.close()
    assert descriptors() <= before
    assert "proctor-kv" not in Path(f"/proc/{os.getpid()}/maps").read_text()
