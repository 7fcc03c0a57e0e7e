"""The rows that a supervisor answers for: who waits, who is with the child, who is with the engine itself."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass

from msgspec.structs import replace

from proctor.rows import Failure, Request, Response
from proctor.supervise.death import Verdict
from proctor.supervise.quarantine import Quarantine


@dataclass(slots=True)
class Row:
    """A request on its way.

    Attributes:
        attempts: how often an engine has taken it.
        taken_at: when it last did (monotonic seconds).
    """

    request: Request
    future: Future[Response]
    attempts: int = 0
    taken_at: float = 0.0


class Ledger:
    """Every request that was handed in, until it has its response.

    A row waits, is handed to the child, and is taken by the engine: only what the engine has taken can have done it
    any harm, so only that is in flight. Used from one thread.

    Attributes:
        quarantine: the rows under suspicion.
        witness: the row that is asked again, while it is; see `proctor.supervise.quarantine`.
    """

    def __init__(self) -> None:
        self.quarantine = Quarantine()
        self.witness: int | None = None
        self._verdicts: dict[int, Verdict] = {}
        self._last_answered: Request | None = None
        self._rows: dict[int, Row] = {}
        self._waiting: deque[int] = deque()
        self._handed: deque[int] = deque()
        self._taken: dict[int, Row] = {}

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def with_child(self) -> int:
        """How many rows the child has, taken or not."""
        return len(self._handed) + len(self._taken)

    def admit(self, request: Request, future: Future[Response]) -> None:
        """Takes in a request. One whose id is already under way gets the response of that one."""
        known = self._rows.get(request.id)
        if known is not None:
            known.future.add_done_callback(lambda done: future.set_result(done.result()))
            return
        self._rows[request.id] = Row(request, future)
        self._waiting.append(request.id)

    def hand_out(self, window: int) -> list[Request]:
        """Requests that the child gets now, so that it has at most `window`; a suspect goes alone."""
        if self.quarantine:
            ids = [] if self.with_child else [self.quarantine.next()]
        else:
            room = min(window - self.with_child, len(self._waiting))
            ids = [self._waiting.popleft() for _ in range(room)]
        self._handed.extend(ids)
        return [self._rows[row].request for row in ids]

    def take(self, count: int, at: float) -> None:
        """The engine takes the `count` oldest rows that the child was handed, `at` this moment (monotonic seconds)."""
        for _ in range(min(count, len(self._handed))):
            row_id = self._handed.popleft()
            row = self._taken[row_id] = self._rows[row_id]
            row.attempts += 1
            row.taken_at = at

    def answer(self, response: Response, at: float) -> bool:
        """Gives a row in flight its response, which came `at` this moment (monotonic seconds).

        Returns:
            False if the row is not in flight: the response is ignored.
        """
        row = self._taken.get(response.id)
        if row is None:
            return False
        if response.failure is None:
            self._last_answered = row.request
        self._resolve(row, replace(response, attempts=row.attempts, latency_s=at - row.taken_at))
        return True

    def take_back(self) -> list[int]:
        """The child is gone: its rows wait again, but those that the engine had taken.

        Returns:
            The latter, oldest first: the caller has to accuse them.
        """
        taken = list(self._taken)
        # In quarantine a row that was handed over is a suspect and stays one.
        self._waiting.extendleft(row for row in reversed(self._handed) if row not in self.quarantine)
        self._handed.clear()
        self._taken.clear()
        return taken

    def hold(self, row: int, verdict: Verdict) -> bool:
        """A row was found guilty; it gets its verdict with `settle`, once the engine is known to be in order.

        Returns:
            Whether a witness is called, who then comes next; there is none before the first answer.
        """
        self._verdicts[row] = verdict
        last = self._last_answered
        if last is None or last.id in self._rows:
            return False
        self.witness = last.id
        self._rows[last.id] = Row(last, Future())
        self.quarantine.summon(last.id)
        return True

    @property
    def only_verdicts(self) -> bool:
        """Whether all rows that are left were found guilty: there is nothing that could still show the contrary."""
        return 0 < len(self._verdicts) == len(self._rows)

    def settle(self) -> dict[int, Verdict]:
        """The engine is in order: the verdicts stand, and the rows get them.

        Returns:
            The verdicts, by row.
        """
        settled, self._verdicts = self._verdicts, {}
        for row, verdict in settled.items():
            self.fail(row, verdict.failure)
        return settled

    def retract(self) -> None:
        """The engine is out of order: the rows that were found guilty wait again."""
        self._waiting.extendleft(reversed(self._verdicts))
        self._verdicts.clear()

    def attempts(self, row: int) -> int:
        """How often an engine has taken this row."""
        return self._rows[row].attempts

    def fail(self, row: int, failure: Failure) -> None:
        """Gives a row a failure for its response."""
        found = self._rows[row]
        self._resolve(found, Response.failed(row, failure, attempts=found.attempts))

    def fail_all(self, failure: Failure) -> list[int]:
        """Gives every row a failure for its response.

        Returns:
            Which rows they were.
        """
        rows = list(self._rows)
        self._waiting.clear()
        self._handed.clear()
        self._verdicts.clear()
        witness = self.witness
        for row in rows:
            self.fail(row, failure)
        return [row for row in rows if row != witness]

    def _resolve(self, row: Row, response: Response) -> None:
        del self._rows[response.id]
        self._taken.pop(response.id, None)
        if response.id == self.witness:
            self.witness = None
        if self.quarantine:
            self.quarantine.clear(response.id)
        row.future.set_result(response)
