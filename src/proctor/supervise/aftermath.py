"""What follows the end of an engine's process: who is told, whether a row is to blame, when the next start is."""

from __future__ import annotations

import time
from math import inf

from proctor.supervise.announcer import Announcer
from proctor.supervise.court import Court
from proctor.supervise.death import Death
from proctor.supervise.ledger import Ledger
from proctor.supervise.timing import MAX_BACKOFF_SECONDS, Backoff, Breaker


class Aftermath:
    """Decides when the engine is started again.

    Attributes:
        start_at: moment of the next start (monotonic seconds).
    """

    def __init__(
        self, ledger: Ledger, breaker: Breaker, court: Court, announce: Announcer, backoff_seconds: float
    ) -> None:
        self.start_at = 0.0
        self._ledger, self._breaker, self._court, self._announce = ledger, breaker, court, announce
        self._retry_wait = Backoff(backoff_seconds, MAX_BACKOFF_SECONDS)
        # Restarts that rows are to blame for are few by themselves: the quarantine and the breaker see to that.
        self._restart_wait = Backoff(backoff_seconds, 4 * backoff_seconds)

    def answered(self) -> None:
        """A new process has given its first answer: it works."""
        self._retry_wait.reset()
        self._restart_wait.reset()
        self._breaker.answered()

    def replaced(self) -> None:
        """The process was ended on purpose, for another that has failed at nothing yet."""
        self.answered()
        self._breaker.close()
        self.start_at = 0.0

    def ended_idle(self, found: Death) -> None:
        """An engine without rows is gone. Ray ends an actor's children before it ends the actor: often it is that."""
        wait = self._restart_wait.next()
        self.start_at = time.monotonic() + wait
        self._announce("engine.ended_idle", found.message, action=f"restart in {wait:.1f} s", data=found.facts)

    def failed_at_work(self, found: Death, in_flight: list[int], duration: float) -> None:
        """It had rows, or had answered some: one of those in flight may be to blame."""
        guilty = self._ledger.quarantine.accuse(in_flight) if in_flight else None
        wait = self._restart_wait.next()
        self.start_at = time.monotonic() + wait
        self._announce(
            "engine.stalled" if found.stalled else "engine.crashed",
            found.message,
            action=f"restart in {wait:.1f} s" + (", rows into quarantine" if in_flight and guilty is None else ""),
            rows=in_flight,
            duration=duration,
            data=found.facts,
        )
        reason = self._court.convict(guilty, found) if guilty is not None else None
        if reason is not None:
            self._open_breaker(reason, fatal=False)

    def failed_to_start(self, found: Death, phase: str = "load") -> None:
        """It did not come to answer anything: no row is to blame."""
        used_up = self._breaker.start_failed()
        if found.mistake is not None:
            self._open_breaker(str(found.mistake), fatal=True)
        elif used_up:
            self._open_breaker(found.explained, fatal=False)
        else:
            self.start_at = time.monotonic() + self._retry_wait.next()
        self._announce(
            "engine.stalled" if found.stalled else "engine.init_failed",
            found.explained,
            action="none" if self.start_at == inf else f"start again in {self.start_at - time.monotonic():.1f} s",
            data={**found.facts, "phase": phase, "failed_starts": self._breaker.failures},
        )

    def _open_breaker(self, reason: str, *, fatal: bool) -> None:
        was_open = self._breaker.open
        self._breaker.trip(reason, fatal=fatal)
        self.start_at = time.monotonic() + self._breaker.next_probe()
        if not was_open:
            self._announce("breaker.opened", reason, action="rows go back as engine.init_failed", data={"fatal": fatal})
