"""The ring of slots in shared memory: what arrives, who is late, who is dead, and a slot written too early."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
import torch

from proctor.transfer.devices.cpu import CpuDevice
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.links import shm
from proctor.transfer.links.shm import PAGE, ShmInlet, ShmOutlet, ShmRing
from proctor.transfer.owner import WrongThreadError
from proctor.transfer.slots import Ring
from tests.transfer.rings import NBYTES, bucket, send, slots, soon, take


@pytest.mark.parametrize("receivers", [1, 3])
def test_all_buckets_arrive_at_all_receivers(ring: Callable[..., ShmRing], receivers: int) -> None:
    publisher = ring(*(f"r{number}" for number in range(receivers)))
    inlets = [ShmInlet(ticket) for ticket in publisher.tickets()]
    with ThreadPoolExecutor(receivers) as pool:
        tasks = [pool.submit(take, inlet, slots(), range(40)) for inlet in inlets]
        mine = slots()
        send(ShmOutlet(publisher), mine, range(40))
        mine.drain(soon())
        for task in tasks:
            task.result()
    assert publisher.busy_seconds() > 0
    for inlet in inlets:
        inlet.close()


def test_many_epochs_and_buckets_that_grow(ring: Callable[..., ShmRing]) -> None:
    publisher = ring()
    sizes = [1, PAGE, 5 * PAGE + 1, 7, 300_000, 300_000]
    with closing(ShmInlet(publisher.tickets()[0])) as inlet, ThreadPoolExecutor(1) as pool:

        def all_of_them() -> None:
            theirs = slots(max(sizes))
            for nbytes in sizes:
                take(inlet, theirs, range(3), nbytes)

        task = pool.submit(all_of_them)
        for nbytes in sizes:  # an outlet of its own for each epoch
            send(ShmOutlet(publisher, ["me"]), slots(nbytes), range(3), nbytes)
        task.result()


def test_the_buffer_is_free_when_it_is_in_the_ring_and_the_ring_is_full_after_two(ring: Callable[..., ShmRing]) -> None:
    publisher = ring()
    inlet = ShmInlet(publisher.tickets()[0])
    link, mine = ShmOutlet(publisher), Ring(CpuDevice(), NBYTES, 4)
    events = []
    for number in range(3):
        with mine.next(soon()) as held:
            held.part(NBYTES).copy_(bucket(number))
            events.append(link.send(held, NBYTES))
    for event in events[:2]:
        event.wait(soon())
    with pytest.raises(TransferError) as caught:
        events[2].wait(soon(0.2))
    assert caught.value.reason is Reason.LATE
    take(inlet, slots(), range(1))
    events[2].wait(soon())
    take(inlet, slots(), range(1, 3)) if inlet._number == 1 else pytest.fail("a bucket was skipped")
    inlet.close()


def test_a_receiver_that_waits_looks_at_its_control_channel(ring: Callable[..., ShmRing]) -> None:
    def watch() -> None:
        raise TransferError(Reason.EXCEPTION, "aborted", rank="r7")

    inlet = ShmInlet(ring().tickets()[0], watch)
    with closing(inlet), slots().next() as held, pytest.raises(TransferError, match="aborted"):
        inlet.receive(held, NBYTES, soon())


def test_nothing_comes_until_the_deadline_and_then_it_does(ring: Callable[..., ShmRing]) -> None:
    publisher = ring()
    with closing(ShmInlet(publisher.tickets()[0])) as inlet, slots().next() as held:
        with pytest.raises(TransferError) as caught:
            inlet.receive(held, NBYTES, soon(0.05))
        assert (caught.value.reason, caught.value.rank) == (Reason.LATE, "publisher")
        send(ShmOutlet(publisher), slots(), range(1))
        inlet.receive(held, NBYTES, soon())
        assert torch.equal(held.part(NBYTES), bucket(0))


def test_a_receiver_that_never_joins_is_named(ring: Callable[..., ShmRing]) -> None:
    publisher = ring("r0", "r1", seconds=0.1)
    inlet = ShmInlet(publisher.tickets()[0])
    mine = slots()
    send(ShmOutlet(publisher), mine, range(1))
    with pytest.raises(TransferError) as caught:
        mine.drain(soon())
    assert (caught.value.reason, caught.value.rank) == (Reason.LATE, "r1")
    inlet.close()


def test_a_receiver_that_does_not_read_is_named(ring: Callable[..., ShmRing]) -> None:
    publisher = ring("r0", "r1", seconds=0.3)
    first, second = (ShmInlet(ticket) for ticket in publisher.tickets())
    link, mine = ShmOutlet(publisher, ["fast", "slow"]), Ring(CpuDevice(), NBYTES, 3)
    send(link, mine, range(2))
    take(first, slots(), range(2))
    send(link, mine, range(1))
    with pytest.raises(TransferError) as caught:
        mine.drain(soon())
    assert (caught.value.reason, caught.value.rank) == (Reason.LATE, "slow")
    with pytest.raises(TransferError, match="slow"):  # it has failed for good
        send(link, slots(), range(1))
    for inlet in (first, second):
        inlet.close()


@pytest.mark.parametrize("change", ["early", "writing"])
def test_a_slot_written_too_early_is_an_error_and_never_data(
    ring: Callable[..., ShmRing], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """The publisher's wait for its readers taken out: the mistake this is there for."""
    publisher = ring()
    monkeypatch.setattr(publisher, "_until_taken", lambda count, deadline: None)
    inlet = ShmInlet(publisher.tickets()[0])
    mine = Ring(CpuDevice(), NBYTES, 4)
    send(ShmOutlet(publisher), mine, range(2 if change == "writing" else 4))
    mine.drain(soon())
    if change == "writing":
        assert publisher._memory is not None
        publisher._memory.generations[0] = 5  # what stands there while bucket 2 is being written
    with slots().next() as held:
        with pytest.raises(TransferError, match="was written again before bucket 0 had been read") as caught:
            inlet.receive(held, NBYTES, soon())
        assert caught.value.reason is Reason.EXPIRED
    inlet.close()


def test_a_slot_written_while_it_is_read_is_an_error(
    ring: Callable[..., ShmRing], monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = ring()
    inlet = ShmInlet(publisher.tickets()[0])
    send(ShmOutlet(publisher), slots(), range(1))
    copy = shm.np.copyto

    def meanwhile(target: object, source: object) -> None:
        copy(target, source)  # type: ignore[call-overload]
        assert publisher._memory is not None
        publisher._memory.generations[0] = 5

    monkeypatch.setattr(shm.np, "copyto", meanwhile)
    with slots().next() as held, pytest.raises(TransferError) as caught:
        inlet.receive(held, NBYTES, soon())
    assert caught.value.reason is Reason.EXPIRED
    inlet.close()


def test_another_length_than_announced_is_an_error(ring: Callable[..., ShmRing]) -> None:
    publisher = ring()
    with closing(ShmInlet(publisher.tickets()[0])) as inlet, slots().next() as held:
        send(ShmOutlet(publisher), slots(), range(1))
        with pytest.raises(TransferError, match="was announced") as caught:
            inlet.receive(held, NBYTES - 1, soon())
        assert caught.value.reason is Reason.MISMATCH


def test_ends_do_what_they_are_for_and_belong_to_one_thread(ring: Callable[..., ShmRing]) -> None:
    publisher = ring()
    link = ShmOutlet(publisher)
    with closing(ShmInlet(publisher.tickets()[0])) as inlet, slots().next() as held:
        with pytest.raises(TransferError, match="sends nothing"):
            inlet.send(held, 1)
        with pytest.raises(TransferError, match="receives nothing"):
            link.receive(held, 1)
        link.send(held, 1)
        with ThreadPoolExecutor(1) as pool, pytest.raises(WrongThreadError):
            pool.submit(link.send, held, 1).result()
