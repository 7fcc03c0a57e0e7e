"""Work done ahead of its use: in order, within bounds, and ended with whoever used it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from proctor.storage import ahead as module
from proctor.storage.ahead import Job, ahead
from tests.faults.proxy import wait_until


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 100)
    monkeypatch.setattr(module, "MOST_JOBS", 3)


class Work:
    """Jobs that note when they start; job 0 is the slowest."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes
        self.started: list[int] = []

    def jobs(self) -> Iterator[Job[int]]:
        for number, size in enumerate(self.sizes):
            yield Job(size, lambda given_up, number=number: self.run(number))

    def run(self, number: int) -> int:
        self.started.append(number)
        time.sleep(0.05 if number == 0 else 0)
        return number


def test_results_come_in_order() -> None:
    assert list(ahead(Work([1] * 50).jobs())) == list(range(50))
    assert list(ahead(Work([]).jobs())) == []


@pytest.mark.usefixtures("bound")
@pytest.mark.parametrize(
    ("sizes", "under_way"), [([1] * 9, 3), ([50] * 9, 2), ([90] * 9, 1), ([500] * 9, 1), ([30, 30, 40, 1], 3)]
)
def test_there_is_a_bound_on_what_is_under_way(sizes: list[int], under_way: int) -> None:
    work = Work(sizes)
    results = ahead(work.jobs())
    for number in range(len(sizes)):
        assert next(results) == number
        wait_until(lambda: len(work.started) == min(number + under_way, len(sizes)))  # noqa: B023
    assert list(results) == []


def test_what_a_job_raises_comes_in_its_turn_and_ends_the_others() -> None:
    seen: list[threading.Event] = []

    def fail(given_up: threading.Event) -> int:
        raise ValueError("the second")

    def wait(given_up: threading.Event) -> int:
        seen.append(given_up)
        given_up.wait(10)
        return 3

    results = ahead([Job(1, lambda _: 1), Job(1, fail), Job(1, wait)])
    assert next(results) == 1
    start = time.monotonic()
    with pytest.raises(ValueError, match="the second"):
        next(results)
    assert time.monotonic() - start < 5
    assert not seen or seen[0].is_set()


def test_who_stops_does_not_wait_for_the_rest() -> None:
    started, ended = threading.Event(), threading.Event()

    def wait(given_up: threading.Event) -> int:
        started.set()
        given_up.wait(10)
        ended.set()
        return 0

    results = ahead([Job(1, lambda _: 1), Job(1, wait)])
    assert next(results) == 1
    assert started.wait(5)
    start = time.monotonic()
    results.close()
    assert time.monotonic() - start < 1
    assert ended.wait(5)
