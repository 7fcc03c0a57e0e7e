"""Two processes, and the sudden end of either."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.kv.receiver import Receiver
from proctor.transfer.kv.sender import Sender
from tests.transfer.kv.samples import LAYOUT, block, same
from tests.transfer.kv.waiting import reason_of, soon, until

ROOT = Path(__file__).parents[3]


@contextmanager
def end(kind: str, address: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.transfer.kv.ends", kind, address]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def hears(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_blocks_go_from_process_to_process(address: str):
    with end("send", address) as sending, end("receive", address) as receiving:
        assert hears(sending) == "ready"
        assert hears(receiving) == "memory"
        assert hears(sending) == "sent"
        assert hears(receiving) == "10 right"
        sending.kill()
        assert hears(receiving) == Reason.DEAD


def test_the_sender_is_killed(address: str):
    with end("send", address) as sending:
        assert hears(sending) == "ready"
        with Receiver(address, LAYOUT, silence_seconds=1000.0) as receiver:
            assert same(receiver.receive("r3", soon()), block("r3", positions=4))
            wanted = [receiver.ask("never"), receiver.ask("nor this")]
            sending.kill()  # SIGKILL: nothing is said any more
            for one in wanted:
                assert reason_of(one.over) is Reason.DEAD
            with pytest.raises(TransferError, match="process is gone"):
                receiver.receive("r4", soon())
            assert receiver._memory is not None  # its pages stay until the receiver lets them go: no SIGBUS


def test_the_receiver_is_killed_while_it_waits_and_while_it_reads(address: str):
    with Sender(address, LAYOUT) as sender, end("receive", address) as receiving:
        assert hears(receiving) == "memory"
        until(lambda: sender.metrics().waiting == 10)
        receiving.kill()
        until(lambda: sender.metrics().receivers == 0)
        assert sender.metrics().waiting == 0
        with Receiver(address, LAYOUT) as other:  # the next one gets what the dead one has not taken
            sender.put(block("r3"))
            assert same(other.receive("r3", soon()), block("r3"))


def test_a_block_that_was_offered_to_a_dead_receiver_fails(address: str):
    with Sender(address, LAYOUT) as sender, end("receive", address) as receiving:
        assert hears(receiving) == "memory"
        until(lambda: sender.metrics().waiting == 10)
        receiving.send_signal(19)  # SIGSTOP: it takes no offer
        ended = sender.put(block("r3"))
        until(lambda: sender.metrics().leases == 1)
        receiving.kill()
        with pytest.raises(TransferError, match="process is gone") as failed:
            ended.wait(soon())
        assert (failed.value.reason, failed.value.rank) == (Reason.DEAD, "decode")
        assert sender.metrics().leases == 0
