"""Every message, mistreated in every way: the right block or an error within the deadline, and nothing stays held."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.kv.receiver import Receiver, Way
from proctor.transfer.kv.sender import Sender
from tests.transfer.kv.bad_network import FAULTS, BadNetwork
from tests.transfer.kv.conftest import SMALL
from tests.transfer.kv.samples import LAYOUT, Clock, block, same
from tests.transfer.kv.waiting import reason_of, until

KINDS = ("greet", "welcome", "fetch", "offer", "done", "freed", "beat", "alive", "cancel", "gone", "leave")
HARMLESS = ("delay", "duplicate")
DEADLINE, SLACK = 0.5, 20.0


def deadline(fault: str) -> float:
    """Where the answer has to be the right one, as long as a loaded machine may need."""
    return time.monotonic() + (30.0 if fault in HARMLESS else DEADLINE)


def talk(sender: Sender, address: str, way: Way, fault: str) -> list[TransferError]:
    """One request that is served, one that the receiver cancels, one that the sender cancels; errors on the way."""
    errors: list[TransferError] = []
    began = time.monotonic()
    try:
        with Receiver(address, LAYOUT, way=way, silence_seconds=0.6, deadline=deadline(fault)) as receiver:
            errors += [*served(sender, receiver, fault), *cancelled(sender, receiver, fault)]
    except TransferError as error:
        errors.append(error)
    assert time.monotonic() - began < (200 if fault in HARMLESS else SLACK)
    return errors


def served(sender: Sender, receiver: Receiver, fault: str) -> list[TransferError]:
    sent = block("a", positions=12)
    sender.put(sent)
    try:
        assert same(receiver.receive("a", deadline(fault)), sent)
    except TransferError as error:
        return [error]
    return []


def cancelled(sender: Sender, receiver: Receiver, fault: str) -> list[TransferError]:
    """The two that have to fail do fail: an error that is not the cancellation is returned."""
    errors = []
    mine, theirs = receiver.ask("b"), receiver.ask("c")
    time.sleep(0.25)  # a beat, and its answer
    receiver.cancel("b")
    sender.cancel("c")
    for wanted in (mine, theirs):
        with pytest.raises(TransferError) as failed:
            receiver.result(wanted, deadline(fault))
        if failed.value.reason is not Reason.CANCELLED:
            errors.append(failed.value)
    return errors


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_message_is_mistreated(kind: str, fault: str, tmp_path: Path):
    run(kind, fault, "memory", 1, tmp_path)


@pytest.mark.parametrize("frame", [0, 2, 3])
@pytest.mark.parametrize("fault", ["truncate", "flip"])
def test_a_checksum_or_a_piece_is_damaged(fault: str, frame: int, tmp_path: Path):
    errors = run("offer", fault, "beside", frame, tmp_path)
    assert Reason.CORRUPT in {error.reason for error in errors}


@pytest.mark.parametrize("fault", FAULTS)
def test_pieces_that_come_beside_the_offer(fault: str, tmp_path: Path):
    run("offer", fault, "beside", 1, tmp_path)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_sender_s_last_word_is_mistreated(fault: str, tmp_path: Path):
    with Sender(f"ipc://{tmp_path}/s", LAYOUT, SMALL) as sender:
        network = BadNetwork(f"ipc://{tmp_path}/n", sender.address, "bye", fault)
        with Receiver(network.address, LAYOUT, silence_seconds=0.6) as receiver:
            wanted = receiver.ask("a")
            until(lambda: sender.metrics().waiting == 1)
            sender.close()
            assert reason_of(wanted.over) in (Reason.CANCELLED, Reason.DEAD, Reason.CORRUPT)
            until(lambda: reason_of(receiver.ask("b").over) in (Reason.CANCELLED, Reason.DEAD, Reason.CORRUPT))
        network.close()


def run(kind: str, fault: str, way: Way, frame: int, directory: Path) -> list[TransferError]:
    clock = Clock()
    with Sender(f"ipc://{directory}/s", LAYOUT, SMALL, clock=clock) as sender:
        network = BadNetwork(f"ipc://{directory}/n", sender.address, kind, fault, frame)
        try:
            errors = talk(sender, network.address, way, fault)
            until(lambda: network.hit)
            if fault in HARMLESS:
                assert errors == []
            clock.turn(61.0)  # whatever the sender could not hear of ends with its lease
            sender.wake()
            until(lambda: sender.metrics().leases == sender.metrics().waiting == sender.metrics().queued == 0)
            assert sender.metrics().free_slots == SMALL.slots
        finally:
            sender.close()
            network.close()
    return errors
