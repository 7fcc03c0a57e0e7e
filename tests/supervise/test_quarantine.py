"""The quarantine as pure logic: a simulated engine that dies of certain rows, and of nothing at certain times."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from proctor.supervise.quarantine import Quarantine


@dataclass
class Simulation:
    """An engine that takes up to `window` rows at once and dies of `poison`, or without reason in its n-th trial."""

    poison: set[int]
    window: int
    transient: set[int] = field(default_factory=set)
    restarts: int = 0
    trials: int = 0
    answered: list[int] = field(default_factory=list)
    convicted: list[int] = field(default_factory=list)

    def run(self, rows: list[int]) -> None:
        quarantine = Quarantine()
        waiting = list(rows)
        while waiting or quarantine:
            if quarantine:
                in_flight = [quarantine.next()]
            else:
                in_flight, waiting = waiting[: self.window], waiting[self.window :]
            self.trials += 1
            if self.poison.isdisjoint(in_flight) and self.trials not in self.transient:
                self.answered += in_flight
                for row in in_flight:
                    quarantine.clear(row)
                continue
            self.restarts += 1
            guilty = quarantine.accuse(in_flight)
            if guilty is not None:
                assert in_flight == [guilty]
                self.convicted.append(guilty)


@given(st.integers(2, 64), st.sets(st.integers(0, 63), max_size=10))
def test_one_window_costs_two_restarts_a_guilty_row_and_one(window: int, poison: set[int]) -> None:
    rows = list(range(window))
    guilty = poison & set(rows)
    engine = Simulation(guilty, window)
    engine.run(rows)
    assert set(engine.convicted) == guilty
    assert sorted(engine.answered) == sorted(set(rows) - guilty)
    assert engine.restarts <= (2 * len(guilty) + 1 if guilty else 0)


@given(st.integers(1, 80), st.integers(1, 16), st.sets(st.integers(0, 79)), st.sets(st.integers(1, 200)))
def test_every_row_ends_once_whatever_happens(n: int, window: int, poison: set[int], transient: set[int]) -> None:
    engine = Simulation(poison, window, transient)
    engine.run(list(range(n)))
    assert sorted(engine.answered + engine.convicted) == list(range(n))


@given(st.integers(1, 80), st.integers(1, 16), st.sets(st.integers(1, 200)))
def test_a_fault_that_does_not_come_back_blames_nobody(n: int, window: int, transient: set[int]) -> None:
    never_twice_in_a_row = {trial for trial in transient if trial - 1 not in transient}
    engine = Simulation(set(), window, never_twice_in_a_row)
    engine.run(list(range(n)))
    assert engine.convicted == []
    assert sorted(engine.answered) == list(range(n))


def test_a_row_is_not_guilty_for_the_company_it_was_in() -> None:
    quarantine = Quarantine()
    for _ in range(5):
        assert quarantine.accuse([1, 2]) is None
    assert quarantine.suspects == [1, 2]


def test_one_failure_alone_is_no_proof() -> None:
    quarantine = Quarantine()
    assert quarantine.accuse([7]) is None
    quarantine.clear(7)
    assert quarantine.accuse([7]) is None
    assert quarantine.accuse([7]) == 7
    assert not quarantine
