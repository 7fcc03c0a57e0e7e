"""Marks one answer: parse, score, and check that the scores fit the record. Nothing a task does escapes from here."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from proctor.rows import ErrorKind, Failure, is_blank, line_of, told
from proctor.tasks.base import ParseError, Scores, Task

# Asking Arrow takes longer than marking itself; for these pairs of types the answer is known.
_ALWAYS_FITS: dict[int, type] = {
    pa.bool_().id: bool,
    pa.float64().id: float,
    pa.string().id: str,
    pa.large_string().id: str,
}


class Mark(NamedTuple):
    """What came of an answer: scores, or why it could not be parsed, or a failure of the task itself.

    Attributes:
        scores: values for the task's columns; empty unless the answer was parsed and scored.
        parse_error: set when the answer does not have the asked-for form; the row is answered, but not scored.
        failure: set when the task raised or gave what does not fit its columns; the row's record is then an error.
    """

    scores: Scores
    parse_error: str | None = None
    failure: Failure | None = None

    @property
    def parsed(self) -> bool:
        """Whether the answer was parsed and scored."""
        return self.parse_error is None and self.failure is None


def mark(task: Task, text: str, target: Any) -> Mark:
    """Marks `text` against `target`; without a target only the columns of the prediction are filled."""
    if is_blank(text):
        return Mark({}, parse_error="the answer is blank")
    try:
        parsed = task.parse(text)
    except ParseError as error:
        return Mark({}, parse_error=line_of(str(error)))
    except (Exception, SystemExit) as error:  # the user's own code may raise anything
        return Mark({}, failure=Failure(ErrorKind.SCORE_FAILED, told(error)))
    try:
        scores = task.score(parsed, target)
        misfit = _misfit(task, scores)
    except (Exception, SystemExit) as error:
        return Mark({}, failure=Failure(ErrorKind.SCORE_FAILED, told(error)))
    return Mark({}, failure=Failure(ErrorKind.SCORE_FAILED, misfit)) if misfit else Mark(scores)


def _misfit(task: Task, scores: Any) -> str | None:
    """What does not fit the task's columns, None if all does."""
    if not isinstance(scores, dict):
        return f"score() returned {type(scores).__name__}, not a dict"
    columns = task.columns
    for name, value in scores.items():
        kind = columns.get(name)
        if kind is None:
            return f"score() returned {_short(name)}, which is not one of the task's columns ({', '.join(columns)})"
        if value is not None and not _fits(value, kind):
            return f"score() returned {_short(value)} for {name!r}, which does not fit {kind}"
    return None


def _fits(value: Any, kind: pa.DataType) -> bool:
    if type(value) is _ALWAYS_FITS.get(kind.id) and (not isinstance(value, str) or value.isascii()):
        return True
    if isinstance(value, float) and pa.types.is_integer(kind):
        return value.is_integer()  # Arrow would silently cut the fraction off
    try:
        pa.array([value], kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
