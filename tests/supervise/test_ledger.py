from __future__ import annotations

from concurrent.futures import Future

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from proctor.rows import ErrorKind, Failure, Response
from proctor.supervise.announcer import Announcer
from proctor.supervise.court import Court
from proctor.supervise.death import Death
from proctor.supervise.ledger import Ledger
from proctor.supervise.timing import Breaker
from tests.supervise.helpers import ask

WINDOW = 4


class Rows(RuleBasedStateMachine):
    """A ledger under any order of requests, answers and deaths: each row ends once, and is guilty only if the engine
    has answered after it was accused, or has never answered anything and has nothing else to do."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.futures: list[Future[Response]] = []
        self.with_child: list[int] = []
        self.taken: list[int] = []
        self.answers = 0
        self.answers_at_conviction: dict[int, int] = {}
        self.unchallenged: set[int] = set()
        self.court = Court(self.ledger, Breaker(3, 1.0, 1.0), Announcer("engine", lambda event: None))

    @rule()
    def submit(self) -> None:
        future: Future[Response] = Future()
        self.ledger.admit(ask(len(self.futures)), future)
        self.futures.append(future)

    @rule()
    def hand_out(self) -> None:
        self.with_child += [request.id for request in self.ledger.hand_out(WINDOW)]

    @rule(count=st.integers(1, WINDOW))
    def take(self, count: int) -> None:
        self.ledger.take(count, at=0.0)
        self.taken += self.with_child[:count]
        del self.with_child[:count]

    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        if self.taken:
            row = data.draw(st.sampled_from(self.taken))
            assert self.ledger.answer(Response(row, text="yes"), at=1.0)
            self.answers += 1
            self.court.settle()
            self.taken.remove(row)

    @rule(row=st.integers(0, 50))
    def answer_out_of_turn(self, row: int) -> None:
        if row not in self.taken:
            assert not self.ledger.answer(Response(row, text="stray"), at=1.0)

    @rule()
    def die(self) -> None:
        in_flight = self.ledger.take_back()
        assert in_flight == self.taken
        guilty = self.ledger.quarantine.accuse(in_flight) if in_flight else None
        if guilty is not None:
            self.convict(guilty)
        self.with_child, self.taken = [], []

    @rule()
    def work_and_die(self) -> None:
        self.hand_out()
        self.take(WINDOW)
        self.die()

    @rule(data=st.data())
    def work_and_answer(self, data: st.DataObject) -> None:
        self.hand_out()
        self.take(WINDOW)
        self.answer(data)

    def convict(self, guilty: int) -> None:
        self.answers_at_conviction[guilty] = self.answers
        if not self.answers and len(self.ledger) == sum(row in self.answers_at_conviction for row in self.open_rows()):
            self.unchallenged |= set(self.open_rows())
        if self.court.convict(guilty, Death(ErrorKind.INFER_CRASHED, "died")) is not None:
            assert not self.ledger.only_verdicts
            self.ledger.fail_all(Failure(ErrorKind.ENGINE_INIT_FAILED, "broken"))

    def open_rows(self) -> list[int]:
        return [row for row, future in enumerate(self.futures) if not future.done()]

    @invariant()
    def the_guilty_had_a_fair_trial(self) -> None:
        for row, future in enumerate(self.futures):
            failure = future.result().failure if future.done() else None
            if failure is not None and failure.kind is ErrorKind.INFER_CRASHED:
                assert self.answers > self.answers_at_conviction[row] or row in self.unchallenged

    @invariant()
    def never_more_than_the_window(self) -> None:
        assert self.ledger.with_child == len(self.with_child) + len(self.taken) <= WINDOW

    @invariant()
    def a_suspect_is_alone(self) -> None:
        assert not self.ledger.quarantine or self.ledger.with_child <= 1

    @invariant()
    def open_rows_are_those_without_response(self) -> None:
        witness = self.ledger.witness is not None
        assert len(self.ledger) == len(self.open_rows()) + witness

    def teardown(self) -> None:
        self.take(WINDOW)
        while len(self.ledger):
            self.hand_out()
            self.take(WINDOW)
            for row in list(self.taken):
                assert self.ledger.answer(Response(row, text="yes"), at=1.0)
                self.taken.remove(row)
                self.court.settle()
        assert all(future.done() for future in self.futures)


TestRows = Rows.TestCase
TestRows.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_request_whose_id_is_under_way_shares_its_response() -> None:
    ledger = Ledger()
    first: Future[Response] = Future()
    second: Future[Response] = Future()
    ledger.admit(ask(3), first)
    ledger.admit(ask(3), second)
    assert [request.id for request in ledger.hand_out(8)] == [3]
    ledger.take(1, at=10.0)
    ledger.answer(Response(3, text="yes"), at=12.5)
    assert first.result() == second.result() == Response(3, text="yes", attempts=1, latency_s=2.5)


def test_only_what_the_engine_took_is_accused_and_counts_as_an_attempt() -> None:
    ledger = Ledger()
    futures: list[Future[Response]] = [Future() for _ in range(4)]
    for row, future in enumerate(futures):
        ledger.admit(ask(row), future)
    ledger.hand_out(3)
    ledger.take(2, at=0.0)
    assert ledger.take_back() == [0, 1]
    ledger.quarantine.accuse([0, 1])
    assert [request.id for request in ledger.hand_out(3)] == [0]
    ledger.take(1, at=0.0)
    ledger.answer(Response(0, text="yes"), at=0.0)
    assert futures[0].result().attempts == 2
    ledger.hand_out(3)
    ledger.take(1, at=0.0)
    ledger.answer(Response(1, text="yes"), at=0.0)
    assert [request.id for request in ledger.hand_out(3)] == [2, 3]
    ledger.take(2, at=0.0)
    ledger.answer(Response(2, text="yes"), at=0.0)
    assert futures[2].result().attempts == 1


def test_failing_all_rows_ends_the_quarantine() -> None:
    ledger = Ledger()
    futures: list[Future[Response]] = [Future() for _ in range(3)]
    for row, future in enumerate(futures):
        ledger.admit(ask(row), future)
    ledger.hand_out(2)
    ledger.take(2, at=0.0)
    ledger.quarantine.accuse(ledger.take_back())
    assert ledger.fail_all(Failure(ErrorKind.LOST, "closed")) == [0, 1, 2]
    assert not ledger.quarantine
    assert [future.result().attempts for future in futures] == [1, 1, 0]
    assert ledger.hand_out(2) == []
