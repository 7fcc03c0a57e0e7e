"""The ring of slots in shared memory against impostors, strangers and kills, with real other processes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import closing

import msgspec
import pytest

from proctor.transfer.devices.cpu import CpuDevice
from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.links import shm
from proctor.transfer.links.callers import Callers, call
from proctor.transfer.links.mapped import Go, Taken
from proctor.transfer.links.shm import PAGE, ShmInlet, ShmOutlet, ShmRing
from proctor.transfer.slots import Ring
from tests.leaks import descriptors
from tests.transfer.child import Child, child
from tests.transfer.rings import NBYTES, send, slots, soon, take


class Impostor:
    """A publisher by hand, which says what it likes."""

    def __init__(self) -> None:
        self.callers = Callers(["r0"])
        self.inlet = ShmInlet(self.callers.tickets[0])
        ((_, self.line),) = self.callers.all(soon())

    def close(self) -> None:
        self.inlet.close()
        self.callers.close()


GONE = msgspec.msgpack.encode({"path": "/proc/1/fd/9999", "stride": 9})


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"\xc1", "not a message"),
        (msgspec.msgpack.encode(Taken(0)), "not a message"),
        (msgspec.msgpack.encode(Go(1, 1, NBYTES)), "bucket 1 of"),
        (msgspec.msgpack.encode(Go(0, 1, NBYTES)), "bucket 0 of"),
        (msgspec.msgpack.encode(Go(0, 0, NBYTES)), "in no ring"),
        (msgspec.msgpack.encode(Go(0, 0, NBYTES, b"\xc1")), "not a ring"),
        (msgspec.msgpack.encode(Go(0, 0, NBYTES, GONE)), "nothing at /proc/1/fd/9999"),
    ],
)
def test_what_is_no_message_of_a_publisher(said: bytes, why: str) -> None:
    with closing(Impostor()) as impostor, slots().next() as held:
        impostor.line.send(said)
        with pytest.raises(TransferError, match=why) as caught:
            impostor.inlet.receive(held, NBYTES, soon())
        assert caught.value.reason in (Reason.MISMATCH, Reason.DEAD)


def test_a_ring_shorter_than_it_claims_is_not_read() -> None:
    with closing(Impostor()) as impostor, slots().next() as held, shm.Arena.create(2 * PAGE) as arena:
        for stride in (1, PAGE, 1 << 40):
            place = msgspec.msgpack.encode({"path": arena.path, "stride": stride})
            impostor.line.send(msgspec.msgpack.encode(Go(0, 0, NBYTES, place)))
            with pytest.raises(TransferError, match="in no ring"):
                impostor.inlet.receive(held, NBYTES, soon())


def test_strangers_are_hung_up_on() -> None:
    callers = Callers(["r0"])
    with pytest.raises(TransferError, match="not a ticket"):
        call(b"\xc1", soon())
    ticket = msgspec.msgpack.decode(callers.tickets[0])
    stranger = call(msgspec.msgpack.encode(ticket | {"secret": b"guessed"}), soon())
    gone = call(msgspec.msgpack.encode(ticket | {"secret": b""}), soon())
    gone.close()
    real = call(callers.tickets[0], soon())
    twice = call(callers.tickets[0], soon())
    ((name, line),) = callers.all(soon())
    line.send(b"hello")
    assert (name, real.recv(10)) == ("r0", b"hello")
    stranger.settimeout(5)
    assert stranger.recv(10) == b""
    callers.close()
    for sock in (stranger, real, twice):
        sock.close()
    with pytest.raises(TransferError) as caught:
        call(callers.tickets[0], soon())
    assert caught.value.reason is Reason.DEAD


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_another_user_is_hung_up_on_even_with_the_ticket() -> None:
    code = """
        import os, socket, time
        import msgspec
        from proctor.rows import UserError
        from proctor.transfer.links.callers import call
        os.setgid(65534)
        os.setuid(65534)
        ticket = bytes.fromhex(input())
        try:
            call(ticket, time.monotonic() + 20)
        except UserError as error:
            print(error.what, flush=True)
        told = msgspec.msgpack.decode(ticket)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.connect(b"\\0" + told["address"].encode())
            sock.send(told["secret"])
            print("sent", flush=True)
            input()
    """
    callers = Callers(["r0"])
    with closing(callers), child(code) as stranger:
        stranger.tell(callers.tickets[0].hex())
        assert stranger.hears() == "the publisher belongs to another user"
        assert stranger.hears() == "sent"
        with pytest.raises(TransferError) as caught:
            callers.all(soon(0.5))
    assert (caught.value.reason, caught.value.rank) == (Reason.LATE, "r0")


def test_closing_ends_a_thread_that_waits_for_somebody() -> None:
    publisher = ShmRing(["r0"], 60.0)
    mine = slots()
    send(ShmOutlet(publisher), mine, range(1))
    closer = threading.Timer(0.1, publisher.close)
    closer.start()
    with pytest.raises(TransferError) as caught:
        mine.drain(soon())
    assert caught.value.reason is Reason.CANCELLED
    closer.join()
    assert not [thread for thread in threading.enumerate() if thread.name == "proctor-ring"]


RECEIVER = """
    import sys, time, torch
    from proctor.transfer.devices.cpu import CpuDevice
    from proctor.transfer.links.shm import ShmInlet
    from proctor.transfer.slots import Ring
    inlet, slots, nbytes = ShmInlet(bytes.fromhex(input())), Ring(CpuDevice(), int(sys.argv[1])), int(sys.argv[1])
    print("joined", flush=True)
    for number in range(int(sys.argv[2])):
        with slots.next() as held:
            inlet.receive(held, nbytes)
            assert bool((held.part(nbytes) == number % 251).all())
    print("all", flush=True)
    input()
"""


def joined(publisher: ShmRing, *receivers: Child) -> None:
    for receiver, ticket in zip(receivers, publisher.tickets(), strict=True):
        receiver.tell(ticket.hex())
        assert receiver.hears() == "joined"


@pytest.mark.slow
def test_real_processes(ring: Callable[..., ShmRing]) -> None:
    publisher, mine = ring("r0", "r1"), slots()
    with child(RECEIVER, str(NBYTES), "20") as one, child(RECEIVER, str(NBYTES), "20") as two:
        joined(publisher, one, two)
        send(ShmOutlet(publisher), mine, range(20))
        assert (one.hears(), two.hears()) == ("all", "all")


@pytest.mark.slow
def test_a_killed_receiver_is_named_at_once(ring: Callable[..., ShmRing]) -> None:
    publisher, mine = ring("r0", "r1"), Ring(CpuDevice(), NBYTES, 4)
    with child(RECEIVER, str(NBYTES), "20") as one, child(RECEIVER, str(NBYTES), "1") as two:
        joined(publisher, one, two)
        send(ShmOutlet(publisher), mine, range(1))
        assert two.hears() == "all"
        two.kill()
        with pytest.raises(TransferError) as caught:
            send(ShmOutlet(publisher), mine, range(1, 20))  # more than the ring holds
        assert (caught.value.reason, caught.value.rank) == (Reason.DEAD, "r1")


@pytest.mark.slow
def test_a_killed_publisher_is_seen_at_once() -> None:
    code = """
        from proctor.transfer.links.shm import ShmRing
        print(ShmRing(["r0"]).tickets()[0].hex(), flush=True)
        input()
    """
    with child(code) as publisher, slots().next() as held:
        inlet = ShmInlet(bytes.fromhex(publisher.hears()))
        publisher.kill()
        with pytest.raises(TransferError) as caught:
            inlet.receive(held, NBYTES, soon())
        assert (caught.value.reason, caught.value.rank) == (Reason.DEAD, "publisher")
        inlet.close()


def test_fifty_links_leave_nothing() -> None:
    def once() -> None:
        publisher = ShmRing(["r0"])
        inlet = ShmInlet(publisher.tickets()[0])
        send(ShmOutlet(publisher), slots(), range(1))
        take(inlet, slots(), range(1))
        inlet.close()
        publisher.close()

    def left() -> tuple[int, int]:
        return descriptors(), threading.active_count()

    once()
    before = left()
    for _ in range(50):
        once()
    files, threads = left()
    assert files <= before[0]
    assert threads <= before[1]
