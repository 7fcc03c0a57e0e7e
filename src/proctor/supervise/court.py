"""Who is guilty, the row or the engine: what follows once a row was alone in flight twice when the engine failed."""

from __future__ import annotations

from proctor.rows import ErrorKind, Failure
from proctor.supervise.announcer import Announcer
from proctor.supervise.death import Death
from proctor.supervise.ledger import Ledger
from proctor.supervise.timing import Breaker


class Court:
    """Holds verdicts until the engine is known to be in order, and tells of them."""

    def __init__(self, ledger: Ledger, breaker: Breaker, announce: Announcer) -> None:
        self._ledger, self._breaker, self._announce = ledger, breaker, announce
        self._in_quarantine = False

    def convict(self, row: int, found: Death) -> str | None:
        """The quarantine names a row.

        Returns:
            Why the engine is to be given up, if it turns out that the engine is to blame: no row is then.
        """
        if row == self._ledger.witness:
            return self._acquit(f"the engine fails with a row that it has answered before: {found.message}")
        if self._ledger.hold(row, found.verdict(self._ledger.attempts(row))):
            self._announce("quarantine.witness", action="asked again", rows=self._ledger.quarantine.suspects[:1])
        elif self._breaker.convicted():
            return self._acquit(f"the engine fails with every row that it is given: {found.message}")
        elif self._ledger.only_verdicts:
            self.settle()
        return None

    def settle(self) -> None:
        """The engine has answered: the verdicts stand."""
        for row, (failure, facts) in self._ledger.settle().items():
            self._announce("quarantine.verdict", failure.message, action=failure.kind.value, rows=[row], data=facts)

    def tell_of_quarantine(self) -> None:
        """Tells of its beginning and of its end."""
        suspects = self._ledger.quarantine.suspects
        if bool(suspects) != self._in_quarantine:
            self._in_quarantine = bool(suspects)
            self._announce("quarantine.started" if suspects else "quarantine.ended", rows=suspects)

    def _acquit(self, reason: str) -> str:
        self._ledger.retract()
        if self._ledger.witness is not None:
            self._ledger.fail(self._ledger.witness, Failure(ErrorKind.ENGINE_INIT_FAILED, reason))
        return reason
