"""Ranks find each other, and who is missing is named."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
import torch.distributed as dist

from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.links.rendezvous import join, roll_call, serve

NAMES = ("publisher", "r1", "r2")


def soon(seconds: float = 20.0) -> float:
    return time.monotonic() + seconds


def test_all_ranks_meet() -> None:
    store, port = serve(deadline=soon())
    with ThreadPoolExecutor() as pool:
        others = [pool.submit(roll_call, join("127.0.0.1", port), rank, NAMES, soon()) for rank in (1, 2)]
        roll_call(store, 0, NAMES, soon())
        for other in others:
            other.result()


def test_who_does_not_come_is_named() -> None:
    store, _ = serve(deadline=soon())
    store.set("here/1", "r1")
    with pytest.raises(TransferError, match="r2: did not come") as caught:
        roll_call(store, 0, NAMES, soon(0.1))
    assert (caught.value.reason, caught.value.rank) == (Reason.LATE, "r2")


def test_the_ranks_of_the_last_group_do_not_count() -> None:
    store, _ = serve(deadline=soon())
    for rank in (1, 2):
        dist.PrefixStore("epoch 1", store).set(f"here/{rank}", "")
    with pytest.raises(TransferError, match="r1"):
        roll_call(dist.PrefixStore("epoch 2", store), 0, NAMES, soon(0.1))


def test_the_store_listens_where_it_is_told_to_and_nowhere_else() -> None:
    store, port = serve(deadline=soon())
    assert store.port == port
    listening = {
        each.laddr.ip
        for each in psutil.Process().net_connections("tcp")
        if each.status == psutil.CONN_LISTEN and each.laddr.port == port
    }
    assert listening == {"127.0.0.1"}


def test_no_store_is_told_at_the_deadline() -> None:
    store, port = serve(deadline=soon())
    del store
    with pytest.raises(TransferError, match=f"no store at 127.0.0.1:{port}") as caught:
        join("127.0.0.1", port, deadline=soon(0.5))
    assert caught.value.reason is Reason.LATE
