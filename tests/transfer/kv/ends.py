"""One end of the shipping in a process of its own (``python -m tests.transfer.kv.ends KIND ADDRESS``)."""

from __future__ import annotations

import sys
import time

from proctor.transfer.errors import TransferError
from proctor.transfer.kv.receiver import Receiver
from proctor.transfer.kv.sender import Sender
from tests.transfer.kv.conftest import SMALL
from tests.transfer.kv.samples import LAYOUT, block, same


def say(what: str) -> None:
    print(what, flush=True)


def send(address: str) -> None:
    """Ships r0 ... r9, then stays until it is killed."""
    with Sender(address, LAYOUT, SMALL) as sender:
        say("ready")
        for number in range(10):
            sender.put(block(f"r{number}", positions=number + 1))
        say("sent")
        time.sleep(100)


def receive(address: str) -> None:
    """Takes r0 ... r9 in another order, then waits for one that never comes."""
    with Receiver(address, LAYOUT) as receiver:
        say(receiver.way)
        asked = {number: receiver.ask(f"r{number}") for number in (3, 1, 4, 0, 5, 9, 2, 6, 8, 7)}
        right = sum(same(receiver.result(asked[n]), block(f"r{n}", positions=n + 1)) for n in range(10))
        say(f"{right} right")
        try:
            receiver.receive("never")
        except TransferError as error:
            say(error.reason)


if __name__ == "__main__":
    {"send": send, "receive": receive}[sys.argv[1]](sys.argv[2])
