"""What a tracker's process does with requests, here without a process."""

from __future__ import annotations

import sys
from queue import SimpleQueue
from types import ModuleType

import msgspec
import pytest

from proctor.trackers.backends.base import RefusedError
from proctor.trackers.child import send, serve
from proctor.trackers.entries import Entry
from proctor.trackers.messages import Batch, Finish, Finished, Open, Ready, Reply, Request, Taken


class Picky:
    """Takes no entry whose number is in `bad`."""

    def __init__(self, *bad: int) -> None:
        self.bad, self.got, self.ended = set(bad), list[int](), list[bool | None]()

    def send(self, entries: list[Entry]) -> bool:
        for entry in entries:
            if entry.n in self.bad:
                raise RefusedError(f"entry {entry.n} is not to my taste")
        self.got += [entry.n for entry in entries]
        return True

    def finish(self, ok: bool | None) -> None:
        self.ended.append(ok)


def batch(*numbers: int) -> Batch:
    return Batch([Entry(n, "metrics", 1.0, n, {"rows.done": n}) for n in numbers])


def test_a_refused_entry_costs_itself_alone() -> None:
    picky = Picky(2)
    assert send(picky, batch(1, 2, 3)) == Taken(3, arrived=True, refused={2: "entry 2 is not to my taste"})
    assert picky.got == [1, 3]
    assert send(picky, batch(4)) == Taken(4, arrived=True)


def test_requests_are_answered_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    picky, module = Picky(), ModuleType("proctor.trackers.backends.tensorboard")
    module.opened = lambda _message: picky  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    inbox: SimpleQueue[Request] = SimpleQueue()
    for request in (Open("tensorboard", {}, "key", "run", None), batch(1, 2), batch(3), Finish(ok=True)):
        inbox.put(request)
    said: list[Reply] = []
    serve(inbox, said.append)
    assert said == [Ready(), Taken(2, arrived=True), Taken(3, arrived=True), Finished()]
    assert (picky.got, picky.ended) == ([1, 2, 3], [True])


@pytest.mark.parametrize("request_", [Open("mlflow", {"uri": None}, "k", "r", None), batch(1), Finish(ok=None)])
def test_requests_survive_the_pipe(request_: Request) -> None:
    assert msgspec.json.decode(msgspec.json.encode(request_), type=Request) == request_


def test_replies_survive_the_pipe() -> None:
    reply = Taken(7, arrived=False, refused={3: "ä\nb"})
    line = msgspec.json.encode(reply)
    assert b"\n" not in line
    assert msgspec.json.decode(line, type=Reply) == reply
