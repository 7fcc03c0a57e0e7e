from __future__ import annotations

import pytest

from proctor.transfer.kv.ledger import Ledger
from tests.transfer.kv.samples import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(clock: Clock) -> Ledger:
    return Ledger(4, 30.0, clock)


def test_a_block_gets_all_its_slots_or_none(ledger: Ledger):
    first = ledger.grant("a", 3)
    assert first is not None
    assert len(set(first.slots)) == 3
    assert ledger.grant("b", 2) is None
    assert ledger.free == 1
    with pytest.raises(ValueError, match="a has a lease"):
        ledger.grant("a", 1)


def test_a_slot_that_is_used_again_is_in_another_generation(ledger: Ledger):
    seen = set()
    for number in range(5):
        lease = ledger.grant(f"r{number}", 4)
        assert lease is not None
        seen |= set(zip(lease.slots, lease.generations, strict=True))
        ledger.end(lease.request)
    assert len(seen) == 20
    assert min(generation for _, generation in seen) == 1  # 0 is the mark of an empty slot


def test_a_lease_that_ran_out_cannot_be_finished_though_nobody_has_looked(ledger: Ledger, clock: Clock):
    lease = ledger.grant("a", 1)
    assert lease is not None
    lease.owner = b"x"
    clock.turn(30.0)
    assert ledger.find("a") is None
    assert ledger.finish("a", lease.number, b"x") is None
    assert ledger.late == 1
    assert [over.request for over in ledger.expired()] == ["a"]
    assert ledger.free == 4


def test_a_heartbeat_extends_a_lease_that_holds_and_no_other(ledger: Ledger, clock: Clock):
    lease = ledger.grant("a", 1)
    assert lease is not None
    lease.owner = b"x"
    clock.turn(20.0)
    ledger.beat("a", b"somebody else")
    assert lease.until == clock() + 10.0
    ledger.beat("a", b"x")
    assert lease.until == clock() + 30.0
    clock.turn(30.0)
    ledger.beat("a", b"x")
    assert ledger.find("a") is None


@pytest.mark.parametrize(("number", "owner"), [(2, b"x"), (1, b"y")])
def test_only_the_owner_of_this_very_lease_finishes_it(ledger: Ledger, number: int, owner: bytes):
    lease = ledger.grant("a", 1)
    assert lease is not None
    lease.owner = b"x"
    assert ledger.finish("a", number, owner) is None
    assert ledger.late == 1
    assert ledger.finish("a", 1, b"x") is lease
    assert ledger.finish("a", 1, b"x") is None
    assert (ledger.late, ledger.free) == (2, 4)
