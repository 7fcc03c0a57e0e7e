from __future__ import annotations

from itertools import pairwise
from math import inf

from proctor.supervise.timing import CONVICTIONS_TO_OPEN, MAX_HOLD_SECONDS, Backoff, Breaker, Deadline


def test_deadline_counts_from_the_last_progress() -> None:
    deadline = Deadline()
    assert deadline.remaining(1e9) == inf
    deadline.start(10, now=100)
    assert deadline.remaining(104) == 6
    deadline.touch(now=104)
    assert deadline.remaining(113) == 1
    assert deadline.remaining(114) == 0
    deadline.stop()
    assert not deadline.running


def test_time_in_which_nobody_watched_does_not_count() -> None:
    deadline = Deadline()
    deadline.start(10, now=100)
    deadline.forgive(30)
    assert deadline.remaining(139) == 1


def test_waits_double_up_to_a_limit_and_start_over() -> None:
    backoff = Backoff(1.0, 8.0)
    waits = [backoff.next() for _ in range(6)]
    for wait, base in zip(waits, [1, 2, 4, 8, 8, 8], strict=True):
        assert base <= wait <= base + 0.5
    backoff.reset()
    assert backoff.next() <= 1.5


def test_breaker_opens_when_the_attempts_are_used_up() -> None:
    breaker = Breaker(3, hold_seconds=1, probe_seconds=10)
    assert [breaker.start_failed() for _ in range(3)] == [False, False, True]
    breaker.answered()
    assert not breaker.start_failed()


def test_breaker_opens_when_only_guilty_rows_come_in_a_row() -> None:
    breaker = Breaker(3, hold_seconds=1, probe_seconds=10)
    for _ in range(CONVICTIONS_TO_OPEN - 1):
        assert not breaker.convicted()
    breaker.answered()
    assert not breaker.convicted()


def test_an_open_breaker_sends_rows_back_ever_more_slowly() -> None:
    breaker = Breaker(1, hold_seconds=1, probe_seconds=10)
    assert breaker.hold(5, now=0) == inf
    breaker.trip("broken", fatal=False)
    assert breaker.hold(0, now=0) == inf
    now, holds = 0.0, []
    for _ in range(10):
        due = breaker.hold(5, now)
        assert breaker.hold(7, now + 0.1) == due
        holds.append(due - now)
        now = due
        breaker.released()
    assert all(later >= earlier * 1.2 for earlier, later in pairwise(holds[:6]))
    assert max(holds) <= MAX_HOLD_SECONDS + 0.5
    breaker.close()
    assert breaker.hold(5, now) == inf


def test_a_mistake_of_the_user_is_not_tried_again() -> None:
    breaker = Breaker(3, hold_seconds=1, probe_seconds=10)
    breaker.trip("no such model", fatal=True)
    assert breaker.next_probe() == inf
    assert breaker.open
