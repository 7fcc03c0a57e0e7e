"""Sides in processes of their own, some of which are killed or stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
import torch

from proctor.transfer.errors import Reason, TransferError
from proctor.transfer.weights import Publisher, State
from tests.transfer.weights_child import BUCKET_BYTES, COUNT, digest, layout, tensors
from tests.transfer.weights_support import Side, home, receivers

pytestmark = pytest.mark.slow
TRANSPORTS = ["stream", "shm", "gloo"]


class Child:
    """A receiver."""

    def __init__(self, address: str, rank: str) -> None:
        command = [sys.executable, "-m", "tests.transfer.weights_child", "receive", address, rank]
        self.address, self._command = address, command
        self._start()

    def _start(self) -> None:
        self._ready = False
        self.process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self._lines = self.process.stdout

    def alive(self) -> None:
        """Starts it again if it was killed, over the socket file that it left; waits until it listens."""
        if self.process.poll() is not None:
            self.end()
            self._start()
        if not self._ready:
            assert self.line() == "ready"
            self._ready = True

    def line(self) -> str:
        return self._lines.readline().strip()

    def end(self) -> None:
        self.process.kill()
        self.process.wait(10)
        self._lines.close()


@pytest.fixture(scope="module")
def started() -> Iterator[list[Child]]:
    """Two receivers for all tests: to start torch takes longer than anything here."""
    with home() as place:
        made = [Child(f"unix:{place}/{index}", f"r{index}") for index in range(2)]
        try:
            yield made
        finally:
            for child in made:
                child.end()


@pytest.fixture
def made(started: list[Child]) -> list[Child]:
    for child in started:
        child.alive()
    return started


def publisher_to(made: list[Child], transport: str, deadline: float = 20.0) -> Publisher:
    addresses = [child.address for child in made]
    return Publisher(addresses, transport=transport, bucket_bytes=BUCKET_BYTES, deadline=deadline)


def interrupted(at: int, call: Callable[[], None]) -> Iterator[tuple[str, torch.Tensor]]:
    for index, pair in enumerate(tensors(1).items()):
        if index == at:
            call()
        yield pair


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_all_processes_have_the_same(made: list[Child], transport: str) -> None:
    with publisher_to(made, transport) as publisher:
        for seed in range(2):
            sent = tensors(seed)
            receipt = publisher.publish(sent)
            assert [child.line() for child in made] == [f"committed {receipt.epoch} {digest(sent)}"] * 2


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_receiver_that_is_killed_is_named_and_the_others_go_on(made: list[Child], transport: str) -> None:
    with publisher_to(made, transport) as publisher:
        with pytest.raises(TransferError) as raised:
            publisher.publish(interrupted(COUNT // 2, made[1].process.kill), manifest=layout())
        assert (raised.value.reason, raised.value.rank) == (Reason.DEAD, "r1")
        assert made[0].line() == "failed dead r1"
        with publisher_to(made[:1], transport) as other:
            other.publish(tensors(2))
        assert made[0].line() == f"committed 1 {digest(tensors(2))}"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_receiver_that_is_stopped_is_late_by_name(made: list[Child], transport: str) -> None:
    with publisher_to(made, transport, deadline=2.0) as publisher:
        pid = made[1].process.pid
        try:
            with pytest.raises(TransferError) as raised:
                publisher.publish(interrupted(COUNT // 2, lambda: os.kill(pid, signal.SIGSTOP)), manifest=layout())
        finally:
            os.kill(pid, signal.SIGCONT)
        assert (raised.value.reason, raised.value.rank) == (Reason.LATE, "r1")
        assert made[0].line() == "failed late r1"
        assert made[1].line().startswith("failed ")
        publisher._deadline = 30.0
        receipt = publisher.publish(tensors(3))
        assert [child.line() for child in made] == [f"committed {receipt.epoch} {digest(tensors(3))}"] * 2


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_publisher_that_is_killed_leaves_nothing_readable(transport: str) -> None:
    with receivers(2) as made:
        sides = [Side(receiver, wait=60) for receiver in made]
        command = [sys.executable, "-m", "tests.transfer.weights_child", "publish", transport]
        killed = subprocess.run([*command, *(receiver.address for receiver in made)], check=False, timeout=60)
        assert killed.returncode == -signal.SIGKILL
        for side in sides:
            error = side.outcome(30)
            assert isinstance(error, TransferError)
            assert (error.reason, error.rank) == (Reason.DEAD, "publisher")
            assert (side.receiver.state, side.receiver.current) == (State.FAILED, None)
        with Publisher([receiver.address for receiver in made], transport=transport) as publisher:
            again = [Side(receiver) for receiver in made]
            publisher.publish(tensors(1))
            for side in again:
                assert digest(side.received().tensors) == digest(tensors(1))


def test_the_publisher_needs_two_buckets_of_memory(made: list[Child]) -> None:
    """sglang #8076: whole-model copies. Peak memory of a process that publishes 64 MB."""
    program = """
import sys, torch
from pathlib import Path
from proctor.transfer.weights import Publisher
big = torch.zeros(16 << 20).fill_(1).view(4096, 4096).t()
warm = {"a": torch.zeros(64, 64).t()}
def peak(): return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) << 10
with Publisher(sys.argv[1:], bucket_bytes=1 << 20) as publisher:
    publisher.publish(warm)
    before = peak()
    publisher.publish({"a": big})
    print(peak() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, made[0].address], check=True, capture_output=True, text=True, timeout=100
    )
    assert made[0].line().startswith("committed 1")
    assert made[0].line().startswith("committed 2")
    assert int(done.stdout) < 8 << 20
