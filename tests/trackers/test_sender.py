"""What a tracker's process is asked next, without a process or a clock."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

from proctor.rows import Event
from proctor.trackers.entries import Entry
from proctor.trackers.messages import Batch, Failed, Finish, Finished, Ready, Reply, Request, Taken
from proctor.trackers.sender import Sender


class Desk:
    """A book in memory."""

    def __init__(self, count: int) -> None:
        self.kept = [entry(n) for n in range(1, count + 1)]
        self.arrived = 0

    def unsent(self) -> list[Entry]:
        return [kept for kept in self.kept if kept.n > self.arrived]

    def acknowledge(self, number: int) -> None:
        self.arrived = max(self.arrived, number)


class Messenger:
    """A courier whose replies the test gives."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.replies: deque[Reply] = deque()
        self.ended = False

    def ask(self, request: Request) -> None:
        self.asked.append(request)

    def reply(self) -> Reply | None:
        return self.replies.popleft() if self.replies else None

    def end(self) -> None:
        self.ended = True


class Office:
    """A sender with all that it has started and told."""

    def __init__(self, count: int = 3, patience: float = 10.0) -> None:
        self.desk = Desk(count)
        self.couriers: list[Messenger] = []
        self.events: list[Event] = []
        self.sender = Sender("t", self.desk, self.start, self.events.append, patience)

    def start(self) -> Messenger:
        self.couriers.append(Messenger())
        return self.couriers[-1]

    def say(self, reply: Reply, now: float, *, closing: bool = False) -> None:
        self.couriers[-1].replies.append(reply)
        self.sender.step(now, closing=closing)

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


def entry(n: int, text: str = "") -> Entry:
    return Entry(n, "metrics", 0.0, n, {"value": n, "text": text})


def numbers(request: Request) -> list[int]:
    assert isinstance(request, Batch)
    return [kept.n for kept in request.entries]


def test_one_request_at_a_time_and_what_arrived_is_remembered() -> None:
    office = Office(3)
    office.sender.step(0)
    office.sender.add([entry(4)])
    office.sender.step(1)
    assert office.couriers[0].asked == []
    office.say(Ready(), 2)
    assert [numbers(request) for request in office.couriers[0].asked] == [[1, 2, 3, 4]]
    office.sender.add([entry(5)])
    office.sender.step(3)
    assert len(office.couriers[0].asked) == 1
    office.say(Taken(4, arrived=True), 4)
    assert office.desk.arrived == 4
    assert numbers(office.couriers[0].asked[-1]) == [5]


def test_without_proof_of_arrival_nothing_counts_before_the_end() -> None:
    office = Office(2)
    office.sender.step(0)
    office.say(Ready(), 1)
    office.say(Taken(2, arrived=False), 2)
    assert office.desk.arrived == 0
    office.sender.step(3, closing=True, ok=True)
    assert office.couriers[0].asked[-1] == Finish(ok=True)
    office.say(Finished(), 4, closing=True)
    assert office.desk.arrived == 2
    assert office.sender.done
    assert office.couriers[0].ended


def test_one_without_a_reply_is_ended_and_tried_again_ever_more_rarely() -> None:
    office = Office(1, patience=10)
    starts, now = [], 0.0
    while now < 2000:
        before = len(office.couriers)
        office.sender.step(now)
        if len(office.couriers) > before:
            starts.append(now)
        now += 1
    assert all(courier.ended for courier in office.couriers[:-1])
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    assert gaps[:4] == [16, 21, 31, 51]  # 11 s of patience and 5, 10, 20, 40 s of pause
    assert gaps == sorted(gaps)
    assert max(gaps) <= 311
    assert office.kinds == ["tracker.failed"]


def test_a_tracker_that_works_again_gets_what_it_missed() -> None:
    office = Office(2)
    office.sender.step(0)
    office.say(Ready(), 1)
    office.say(Failed("no route"), 2)
    assert office.sender.trouble == "no route"
    office.desk.kept.append(entry(3))
    office.sender.add([entry(3)])
    office.sender.step(8)
    office.say(Ready(), 9)
    assert numbers(office.couriers[1].asked[0]) == [1, 2, 3]
    assert office.kinds == ["tracker.failed"]
    office.say(Taken(3, arrived=True), 10)
    assert office.kinds == ["tracker.failed", "tracker.recovered"]
    assert office.sender.trouble == ""


def test_one_that_opens_and_takes_nothing_is_told_once_and_tried_ever_more_rarely() -> None:
    office = Office(1)
    starts = []
    for now in range(1000):
        office.sender.step(now)
        if len(office.couriers) > len(starts):
            starts.append(now)
            office.say(Ready(), now)
            office.say(Failed("500"), now)
    assert [later - earlier for earlier, later in pairwise(starts)][:4] == [5, 10, 20, 40]
    assert office.kinds == ["tracker.failed"]


def test_at_the_close_it_is_tried_once_more_and_not_twice() -> None:
    office = Office(1)
    office.sender.step(0)
    office.say(Failed("no route"), 1)
    office.sender.step(2, closing=True)
    assert len(office.couriers) == 2
    office.say(Failed("no route"), 3, closing=True)
    assert office.sender.done
    office.sender.step(1000, closing=True)
    assert len(office.couriers) == 2
    assert office.desk.arrived == 0


def test_a_refused_entry_is_told_and_left_behind() -> None:
    office = Office(3)
    office.sender.step(0)
    office.say(Ready(), 1)
    office.say(Taken(3, arrived=True, refused={2: "no such name"}), 2)
    assert office.desk.arrived == 3
    assert office.kinds == ["tracker.refused"]
    assert "entry 2: no such name" in office.events[0].message


def test_a_process_that_cannot_be_started_is_a_failure_like_others() -> None:
    office = Office(1)

    def start() -> Messenger:
        raise OSError("too many processes")

    sender = Sender("t", office.desk, start, office.events.append, 10)
    sender.step(0)
    assert "too many processes" in sender.trouble
    sender.step(1, closing=True)
    assert sender.done


def test_batches_fit_into_a_pipe() -> None:
    office = Office(0)
    office.desk.kept = [entry(n, "x" * 900) for n in range(1, 101)]
    office.sender.step(0)
    office.say(Ready(), 1)
    sent: list[int] = []
    while sent[-1:] != [100]:
        batch = office.couriers[0].asked[-1]
        assert isinstance(batch, Batch)
        assert sum(len(str(kept.values)) for kept in batch.entries) < 16_000
        sent += numbers(batch)
        office.say(Taken(sent[-1], arrived=True), 2)
    assert sent == list(range(1, 101))
