"""Deadlines, waits and the breaker: pure logic over a clock that is passed in (monotonic seconds)."""

from __future__ import annotations

from math import inf

from tenacity import RetryCallState, Retrying, wait_exponential, wait_random

MAX_BACKOFF_SECONDS = 30.0
MAX_HOLD_SECONDS = 60.0
MAX_PROBE_SECONDS = 600.0
CONVICTIONS_TO_OPEN = 12


class Deadline:
    """The moment at which an engine counts as stalled."""

    def __init__(self) -> None:
        self._limit = inf
        self._since = 0.0

    @property
    def running(self) -> bool:
        """Whether progress is expected."""
        return self._limit < inf

    @property
    def limit(self) -> float:
        """Longest time without progress."""
        return self._limit

    def start(self, limit: float, now: float) -> None:
        """From now on there must be progress every `limit` seconds."""
        self._limit, self._since = limit, now

    def stop(self) -> None:
        """No progress is expected any more."""
        self._limit = inf

    def relimit(self, limit: float, now: float) -> None:
        """There was progress, and from now on the limit is another one, if progress is expected at all."""
        if self.running:
            self.start(limit, now)

    def touch(self, now: float) -> None:
        """There was progress."""
        self._since = now

    def forgive(self, seconds: float) -> None:
        """The watcher itself did not run for so long: that time does not count against the engine."""
        self._since += seconds

    def remaining(self, now: float) -> float:
        """Seconds until the engine counts as stalled; not positive when it does."""
        return self._since + self._limit - now


class Backoff:
    """Waits that double, with jitter so that engines which failed together do not start together."""

    def __init__(self, first: float, most: float) -> None:
        self._wait = wait_exponential(multiplier=first, max=most) + wait_random(0, first / 2)
        self._state = RetryCallState(Retrying(), None, (), {})

    def next(self) -> float:
        """Seconds to wait this time."""
        seconds = self._wait(self._state)
        self._state.attempt_number += 1
        return seconds

    def reset(self) -> None:
        """The next wait is the first again."""
        self._state.attempt_number = 1


class Breaker:
    """Opens when starting the engine anew has no prospect; rows are then sent back instead of waiting for ever.

    While it is open the rows are held for a time that doubles with each release, so that an engine which is out of
    order takes less and less work from those that are not, however slow they are.
    """

    def __init__(self, attempts: int, hold_seconds: float, probe_seconds: float) -> None:
        self.reason = ""
        self.open = False
        self.fatal = False
        self._attempts = attempts
        self._failures = 0
        self._convictions = 0
        self._hold = Backoff(hold_seconds, MAX_HOLD_SECONDS)
        self._probe = Backoff(probe_seconds, MAX_PROBE_SECONDS)
        self._release_at = inf

    @property
    def failures(self) -> int:
        """Starts that failed one after another."""
        return self._failures

    def start_failed(self) -> bool:
        """A start failed, or what was started ended before it did anything. Returns whether the breaker is to open."""
        self._failures += 1
        return self._failures >= self._attempts

    def convicted(self) -> bool:
        """A row was found guilty. Returns whether so many were, without one answer between, that it is the engine."""
        self._convictions += 1
        return self._convictions >= CONVICTIONS_TO_OPEN

    def answered(self) -> None:
        """The engine gave an answer: it works."""
        self._failures = self._convictions = 0
        self._hold.reset()
        self._probe.reset()

    def trip(self, reason: str, *, fatal: bool) -> None:
        """Opens. If it is `fatal` there is nothing to wait for."""
        self.reason, self.open, self.fatal = reason, True, fatal

    def close(self) -> None:
        """Rows may go to the engine again."""
        self.open = False
        self._release_at = inf

    def next_probe(self) -> float:
        """Seconds until the engine is to be tried again."""
        return inf if self.fatal else self._probe.next()

    def hold(self, rows: int, now: float) -> float:
        """The moment at which the `rows` that are there go back; never if there are none or the breaker is closed."""
        if not self.open or not rows:
            self._release_at = inf
        elif self._release_at == inf:
            self._release_at = now + self._hold.next()
        return self._release_at

    def released(self) -> None:
        """The rows have gone back."""
        self._release_at = inf
