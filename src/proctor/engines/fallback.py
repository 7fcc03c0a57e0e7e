"""Runs micro-batches so that a failing batch costs the guilty row only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from proctor.engines.refusal import one_line
from proctor.rows import ErrorKind, Failure, Request, Response


class HasRequest(Protocol):
    """A row in whatever form the engine runs it."""

    @property
    def request(self) -> Request:
        """The request that the row answers."""


R = TypeVar("R", bound=HasRequest)


class Batches(Generic[R]):
    """Runs rows through `run`; when a batch raises, the rows are tried in smaller company until the guilty stand alone.

    Running out of memory halves the batch, and the size that fits is kept for the batches to come. A row that does
    not even fit alone leaves that size as it was: it is the row that is too large, not the batch.

    Args:
        run: answers a batch, one response a row.
        out_of_memory: whether an exception means that memory ran out.
        broken: whether an exception means that the device itself can no longer be used: it is raised on.
        free: called after memory ran out, once nothing of the failed batch is held any more.
    """

    def __init__(
        self,
        run: Callable[[Sequence[R]], list[Response]],
        *,
        out_of_memory: Callable[[BaseException], bool],
        broken: Callable[[BaseException], bool],
        free: Callable[[], None],
    ) -> None:
        self._run, self._out_of_memory, self._broken, self._free = run, out_of_memory, broken, free
        self.largest: int | None = None

    def answers(self, rows: Sequence[R]) -> Iterator[Response]:
        """One response for each row."""
        before = self.largest
        row_too_large = False
        waiting = list(rows)
        while waiting:
            size = min(self.largest or len(waiting), len(waiting))
            batch, waiting = waiting[:size], waiting[size:]
            responses, failure = self._attempt(batch)
            if failure is None:
                yield from responses
            elif len(batch) == 1:
                row_too_large |= failure.kind is ErrorKind.INFER_OOM
                yield Response.failed(batch[0].request.id, failure)
            elif failure.kind is ErrorKind.INFER_OOM:
                self.largest = len(batch) // 2
                waiting = batch + waiting
            else:
                for row in batch:
                    yield from self.answers([row])
        if row_too_large:
            self.largest = before

    def _attempt(self, batch: Sequence[R]) -> tuple[list[Response], Failure | None]:
        try:
            return self._run(batch), None
        except Exception as error:
            if self._broken(error):
                raise
            kind = ErrorKind.INFER_OOM if self._out_of_memory(error) else ErrorKind.INFER_FAILED
            failure = Failure(kind, one_line(error))
        # Only here are the frames of the failed batch, and the tensors in them, let go.
        if kind is ErrorKind.INFER_OOM:
            self._free()
        return [], failure
