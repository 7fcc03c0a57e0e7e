from __future__ import annotations

import threading
from typing import Any

import torch

from proctor.transfer.kv.rooms import Rooms


def place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def test_memory_is_used_again_when_the_last_view_of_it_is_gone():
    rooms = Rooms()
    room = rooms.take(1000)
    first = place(room)
    view = room[256:512].view(torch.float32)[3:]
    array: Any = view.numpy()
    del room
    others = [rooms.take(1000)]
    del view
    others.append(rooms.take(1000))
    assert first not in map(place, others)
    del array
    assert place(rooms.take(900)) == first


def test_what_is_held_is_never_given_out():
    rooms = Rooms()
    held = [rooms.take(100 * (number + 1)) for number in range(20)]
    for number, room in enumerate(held):
        room.fill_(number)
    for number in range(100):
        rooms.take(50 * (number % 40 + 1)).fill_(99)
    assert [set(room.tolist()) for room in held] == [{number} for number in range(20)]


def test_not_everything_is_kept():
    rooms = Rooms(idle_bytes=3000)
    held = [rooms.take(1000) for _ in range(8)]
    held.clear()
    assert rooms.idle_bytes == 8000
    rooms.take(1000)
    assert rooms.idle_bytes <= 4000


def test_a_small_block_does_not_take_a_large_room():
    rooms = Rooms()
    large = place(rooms.take(8 << 20))
    assert place(rooms.take(1 << 20)) != large
    assert place(rooms.take(7 << 20)) == large


def test_rooms_come_back_from_other_threads():
    rooms = Rooms()
    for _ in range(50):
        room = [rooms.take(5000)]
        thread = threading.Thread(target=room.clear)
        thread.start()
        thread.join()
    assert rooms.idle_bytes == 5000


def test_a_room_is_aligned_and_may_be_empty():
    rooms = Rooms()
    assert len(rooms.take(0)) == 0
    assert all(rooms.take(nbytes).data_ptr() % 64 == 0 for nbytes in (1, 257, 70_000, 3 << 20))
