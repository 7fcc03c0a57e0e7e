"""Who is to blame when an engine fails: pure logic, without processes or time.

After a failure with several rows in flight each of them is suspect. The suspects are then given to the engine one at
a time. Halving the group instead would need fewer trials but more failures, and a failure costs a restart, by far the
dearest step: halving fails about log2(w) times for a guilty row among w, trying singly fails twice, and the innocents
only lose the benefit of a batch, for one window of rows.

A row is guilty when the engine failed twice with that row alone in flight. So p guilty rows cost at most 2p + 1
restarts, counting the failure that brought the suspects here, and a fault that does not come back blames nobody.

Unless the engine itself has broken down and fails with any row. So a verdict is held back until the engine has answered
once more. To that end a witness is called: a row that this engine has answered before, asked again in the process that
has to be started anyhow. If it is answered the verdict stands; if it is found guilty in its turn it is the engine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

FAILURES_TO_CONVICT = 2


class Quarantine:
    """The rows under suspicion."""

    def __init__(self) -> None:
        self._suspects: deque[int] = deque()
        self._alone_failures: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._suspects)

    def __contains__(self, row: int) -> bool:
        return row in self._suspects

    @property
    def suspects(self) -> list[int]:
        """The rows to be tried, in this order."""
        return list(self._suspects)

    def next(self) -> int:
        """The suspect to try next, alone. It stays a suspect until it is accused again or cleared."""
        return self._suspects[0]

    def summon(self, row: int) -> None:
        """This row is tried next, though nobody accused it."""
        self._suspects.appendleft(row)

    def accuse(self, in_flight: Sequence[int]) -> int | None:
        """The engine failed with exactly these rows in flight, oldest first.

        Returns:
            The row that is guilty, if this settles it; it is a suspect no longer.
        """
        if len(in_flight) != 1:
            self._suspects.extend(row for row in in_flight if row not in self._suspects)
            return None
        (row,) = in_flight
        failures = self._alone_failures.get(row, 0) + 1
        if failures >= FAILURES_TO_CONVICT:
            self.clear(row)
            return row
        self._alone_failures[row] = failures
        if row not in self._suspects:
            self._suspects.appendleft(row)
        return None

    def clear(self, row: int) -> None:
        """The row has its answer, or will be asked no more."""
        self._alone_failures.pop(row, None)
        if row in self._suspects:
            self._suspects.remove(row)
