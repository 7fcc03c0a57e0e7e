from __future__ import annotations

import threading
import time

import pytest

from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.kv.outbox import Outbox


def test_who_finds_it_full_waits_until_one_is_taken():
    outbox: Outbox[str] = Outbox(100, 10)
    outbox.put("a", "A", 60)
    entered = threading.Event()

    def put() -> None:
        outbox.put("b", "B", 60, time.monotonic() + 30)
        entered.set()

    thread = threading.Thread(target=put)
    thread.start()
    assert not entered.wait(0.1)
    assert (outbox.first(), len(outbox), outbox.nbytes) == ("A", 1, 60)
    assert outbox.take("a") == "A"
    assert entered.wait(30)
    thread.join()
    assert (outbox.first(), outbox.nbytes) == ("B", 60)


@pytest.mark.parametrize(("nbytes", "count"), [(50, 10), (1000, 2)])
def test_without_room_it_is_late(nbytes: int, count: int):
    outbox: Outbox[str] = Outbox(nbytes, count)
    outbox.put("a", "A", 20)
    outbox.put("b", "B", 20)
    with pytest.raises(TransferError, match="no room in the queue at the deadline: 2 blocks, 40 bytes") as late:
        outbox.put("c", "C", 20, time.monotonic())
    assert late.value.reason is Reason.LATE


def test_a_block_that_is_larger_than_the_queue_goes_in_alone():
    outbox: Outbox[str] = Outbox(50, 10)
    outbox.put("a", "A", 500, time.monotonic())
    with pytest.raises(TransferError):
        outbox.put("b", "B", 1, time.monotonic())


def test_the_end_wakes_who_waits_and_lets_nobody_in():
    outbox: Outbox[str] = Outbox(50, 10)
    outbox.put("a", "A", 50)
    raised: list[TransferError] = []

    def put() -> None:
        try:
            outbox.put("b", "B", 50)
        except TransferError as error:
            raised.append(error)

    thread = threading.Thread(target=put)
    thread.start()
    error = TransferError(Reason.CANCELLED, "over")
    assert outbox.end(error) == ["A"]
    thread.join(30)
    assert raised == [error]
    with pytest.raises(TransferError, match="over"):
        outbox.put("c", "C", 1)
    assert (len(outbox), outbox.nbytes, outbox.first(), outbox.take("a")) == (0, 0, None, None)


def test_one_id_is_in_it_once():
    outbox: Outbox[str] = Outbox(50, 10)
    outbox.put("a", "A", 1)
    with pytest.raises(ValueError, match="a is in the queue"):
        outbox.put("a", "B", 1)
