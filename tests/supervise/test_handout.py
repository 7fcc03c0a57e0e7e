"""What is handed out at once can be taken at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

from proctor.rows import Request
from proctor.supervise.child import Inbox
from proctor.supervise.mailbox import Mailbox
from proctor.supervise.wire import Work


class Listener:
    def __init__(self) -> None:
        self.said: list[Any] = []

    def send(self, message: Any) -> None:
        self.said.append(message)


def work(*ids: int) -> list[Work]:
    return [Work(Request(row, ()), more=row != ids[-1]) for row in ids]


def inbox_of(messages: Iterator[Work]) -> tuple[Inbox, Listener]:
    listener = Listener()
    inbox = Inbox(listener)  # type: ignore[arg-type]
    threading.Thread(target=inbox.fill, args=(messages,), daemon=True).start()
    return inbox, listener


def test_the_engine_sees_nothing_of_a_hand_out_before_the_last_of_it() -> None:
    line: SimpleQueue[Work | None] = SimpleQueue()
    inbox, listener = inbox_of(iter(line.get, None))
    for message in work(1, 2, 3)[:2]:
        line.put(message)
    assert inbox.take(8, wait=False) == []
    line.put(work(1, 2, 3)[2])
    assert [request.id for request in inbox.take(8, wait=True)] == [1, 2, 3]
    assert [message.count for message in listener.said] == [3]
    line.put(None)
    assert inbox.take(8, wait=True) == []


def test_room_for_fewer_leaves_the_rest_for_later() -> None:
    inbox, _ = inbox_of(iter(work(1, 2, 3, 4, 5)))
    assert [request.id for request in inbox.take(2, wait=True)] == [1, 2]
    assert [request.id for request in inbox.take(8, wait=True)] == [3, 4, 5]


def test_a_mailbox_takes_all_or_nothing() -> None:
    mailbox = Mailbox()
    items: list[Any] = [(Request(row, ()), None) for row in range(3)]
    assert mailbox.put(*items)
    assert mailbox.drain() == items
    mailbox.close()
    assert not mailbox.put(*items)
    assert mailbox.drain() == []
    mailbox.dispose()
